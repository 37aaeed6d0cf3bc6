"""Join a Ray cluster, or start one here. Only this module imports Ray."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

from ptxdiff.cluster.shipping import Shipment

LOCAL, AUTO = "local", "auto"

REACH = 10.0
"""Seconds within which the head of a cluster has to answer."""

SILENCE = 20.0
"""Seconds of joining after which a hint on the possible cause is printed."""


class ClusterError(RuntimeError):
    """A cluster cannot be used. The message says why, and what to do."""


def imported() -> Any:
    """The module `ray`. Raises ClusterError if it cannot be imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning about this default
    try:
        import ray
    except ImportError as error:
        raise ClusterError(
            f"--cluster needs Ray, which cannot be imported ({error}): pip install 'ptxdiff[cluster]'"
        ) from None
    return ray


def check_address(address: str) -> None:
    """Raise ClusterError for a text that is no address."""
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
    """Raise ClusterError if nothing listens at HOST:PORT, because Ray would try for minutes and ignore Ctrl-C."""
    if address in (LOCAL, AUTO):
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(_words(address, ConnectionError(str(error)))) from None


@contextlib.contextmanager
def connected(address: str, shipment: Shipment, **local: Any) -> Iterator[Any]:
    """The module `ray`, connected until the end of the block. A cluster that was started elsewhere keeps running.

    local: arguments of `ray.init` for a cluster that is started here. Raises ClusterError.
    """
    check_address(address)
    _reach(address)
    ray = imported()
    if ray.is_initialized():
        raise ClusterError("this process is already connected to a Ray cluster; ptxdiff needs its own connection")
    own = local if address == LOCAL else {}
    try:
        with _hint_if_slow(address):
            ray.init(
                address=address, runtime_env=shipment.runtime_env(), log_to_driver=False, logging_level="ERROR", **own
            )
    except Exception as error:  # Ray raises many types here: for no answer, another version, too large files
        ray.shutdown()
        raise ClusterError(_words(address, error, listens=address not in (LOCAL, AUTO))) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _hint_if_slow(address: str) -> Iterator[None]:
    """Print a hint on standard error if joining takes long, because Ray waits for minutes without a message."""
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
    """A hint that a missing or wrong token may be the reason."""
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return "a head that runs without a token, or with another one, does not answer"
    return "a head that requires a token does not answer: copy its ~/.ray/auth_token, and set RAY_AUTH_MODE=token"


def _words(address: str, error: Exception, *, listens: bool = False) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    if not (isinstance(error, ConnectionError | TimeoutError) or "Failed to connect" in words):
        return f"the Ray cluster at {address} cannot be used: {words}"
    if listens:
        return f"the server at {address} does not let this process join; {_token()} ({words})"
    where = "this machine belongs to no Ray cluster" if address == AUTO else f"no Ray cluster answers at {address}"
    return f"{where}; start one with `ray start --head`, and give the address that it prints ({words})"
