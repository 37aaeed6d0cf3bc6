"""What a backend can do with kernels that another Triton build compiles."""

from __future__ import annotations

from harness.triton.builds import NoBuild
from harness.triton.targets import probe_with


def unavailable(compiler: str, backend: str, target: str) -> str | None:
    """Why a backend can run nothing that `compiler` compiles for a target, in one line; None where it can.

    compiler: the name of a Triton build; "" for the one of this environment, which the backends know themselves.
    """
    if not compiler:
        return None
    if backend == "gpu":
        return f"kernels that compiler {compiler} compiles are not launched: Triton's launcher here is another build's"
    try:
        info = probe_with(compiler).get(target)
    except NoBuild as error:
        return str(error)
    if info is None or not info.available:
        return f"compiler {compiler} does not serve {target}{f': {info.words}' if info and info.words else ''}"
    return None
