"""Which backends can run kernels that another Triton build compiles."""

from __future__ import annotations

from ptxdiff.triton.builds import NoBuild
from ptxdiff.triton.targets import probe_with


def unavailable(compiler: str, backend: str, target: str) -> str | None:
    """The reason, in one line, why a backend cannot run what `compiler` compiles for a target; None if it can.

    compiler: the name of a Triton build; "" for this environment's own build, which each backend checks itself.
    """
    if not compiler:
        return None
    if backend == "gpu":
        return f"kernels of compiler {compiler} cannot be launched: the Triton launcher here is of another build"
    try:
        info = probe_with(compiler).get(target)
    except NoBuild as error:
        return str(error)
    if info is None or not info.available:
        return f"compiler {compiler} does not serve {target}{f': {info.words}' if info and info.words else ''}"
    return None
