"""Joining a Ray cluster, or starting one here. The only place that imports Ray."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

from harness.cluster.shipping import Shipment

LOCAL, AUTO = "local", "auto"

REACH = 10.0
"""Seconds in which the head of a cluster has to answer."""

SILENCE = 20.0
"""Seconds of joining after which a reader is told what may be wrong."""


class ClusterError(RuntimeError):
    """A cluster cannot be used; the message says why and what to do."""


def imported() -> Any:
    """The module `ray`. Raises ClusterError where it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # its warning about a change of this default
    try:
        import ray
    except ImportError as error:
        raise ClusterError(
            f"--cluster needs Ray, which cannot be imported ({error}): pip install 'ptxdiff[cluster]'"
        ) from None
    return ray


def check_address(address: str) -> None:
    """Raise ClusterError for words that are no address."""
    if address in (LOCAL, AUTO):
        return
    if address.startswith("ray://"):
        raise ClusterError(
            f"--cluster {address}: Ray's client cannot stream results; start ptxdiff on a machine of the cluster with "
            "--cluster auto, or with `ray job submit`"
        )
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise ClusterError(f"--cluster {address!r}: write HOST:PORT (as `ray start --head` prints it), auto, or local")


def _reach(address: str) -> None:
    """Raises ClusterError where nobody listens at HOST:PORT: Ray would try for minutes, and not hear Ctrl-C."""
    if address in (LOCAL, AUTO):
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(_words(address, ConnectionError(str(error)))) from None


@contextlib.contextmanager
def connected(address: str, shipment: Shipment, **local: Any) -> Iterator[Any]:
    """The module `ray`, connected until the end of the block. A cluster that was not started here goes on then.

    local: arguments of `ray.init` for a cluster that is started here. Raises ClusterError.
    """
    check_address(address)
    _reach(address)
    ray = imported()
    if ray.is_initialized():
        raise ClusterError("this process is connected to a Ray cluster already; ptxdiff needs a connection of its own")
    own = local if address == LOCAL else {}
    try:
        with _telling(address):
            ray.init(
                address=address, runtime_env=shipment.runtime_env(), log_to_driver=False, logging_level="ERROR", **own
            )
    except Exception as error:  # Ray raises many kinds here: no answer, another version, files that are too large
        ray.shutdown()
        raise ClusterError(_words(address, error, listens=address not in (LOCAL, AUTO))) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _telling(address: str) -> Iterator[None]:
    """Say on standard error what may be wrong where joining takes long; Ray waits for minutes and says nothing."""
    timer = threading.Timer(SILENCE, lambda: print(_waiting(address), file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _waiting(address: str) -> str:
    return f"--cluster {address}: Ray has been joining for {SILENCE:g} s; {_token()}"


def _token() -> str:
    """How a missing or wrong token may keep the driver out, in words."""
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return "a head that runs without a token, or with another one, does not answer"
    return "a head that asks for a token does not answer: copy its ~/.ray/auth_token, and set RAY_AUTH_MODE=token"


def _words(address: str, error: Exception, *, listens: bool = False) -> str:
    told = " ".join(str(error).split()) or type(error).__name__
    if not (isinstance(error, ConnectionError | TimeoutError) or "Failed to connect" in told):
        return f"the Ray cluster at {address} cannot be used: {told}"
    if listens:
        return f"what listens at {address} does not let this process join; {_token()} ({told})"
    where = "this machine belongs to no Ray cluster" if address == AUTO else f"no Ray cluster answers at {address}"
    return f"{where}; start one with `ray start --head`, and name the address that it prints ({told})"
