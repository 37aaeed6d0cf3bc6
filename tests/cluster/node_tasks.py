"""The functions that tests run as tasks on nodes."""

import os
import time
from pathlib import Path


def counts(many):
    for number in range(many):
        yield number, os.getpid()


def large(many, size):
    for number in range(many):
        yield bytes([number]) * size


def sees():
    yield os.environ.get("CUDA_VISIBLE_DEVICES")


def compiles_with():
    from ptxdiff.processes.pool import default_size

    yield default_size()


def dies_once(marker, many, at):
    """Ends its process at one value, but only the first time."""
    for number in range(many):
        if number == at and not Path(marker).exists():
            Path(marker).touch()
            os._exit(1)
        yield number


def dies_always(received):
    """Ends its process after the driver has received a value, because values on their way end with it."""
    yield "first"
    while not Path(received).exists():
        time.sleep(0.02)
    os._exit(1)


def raises():
    yield "first"
    raise ValueError("what a case may raise")


def waits(marker):
    yield os.getpid()
    for _ in range(600):
        time.sleep(0.1)
    Path(marker).touch()
