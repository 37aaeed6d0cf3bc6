"""Backends by name."""

from __future__ import annotations

from collections.abc import Collection

from ptxdiff.emulator import KERNEL_SECONDS
from ptxdiff.jobs import BACKEND_NAMES, Backend


def create(
    name: str,
    *,
    limit: float | None = None,
    sanitize: str = "",
    disassembled: Collection[str] | None = None,
    approximate: str = "hopper",
) -> Backend:
    """The backend called `name`. Raises ValueError for an unknown name.

    limit: the time limit in seconds for work on a GPU, or for one run on the emulator; None for the defaults.
    sanitize: the tool of compute-sanitizer that checks kernels on a GPU; "" for none. disassembled: the targets whose
    machine code the assembler backend also disassembles; None for all. approximate: the bits of approximate
    instructions on the emulator, one of `ptxdiff.emulator.binding.approximate.APPROXIMATE`.
    """
    if name == "gpu":
        from ptxdiff.backends.gpu_process import WatchedGpu

        return WatchedGpu(limit=limit, sanitize=sanitize)
    if name == "emulator":
        from ptxdiff.backends.emulator import EmulatorBackend

        return EmulatorBackend(KERNEL_SECONDS if limit is None else limit, approximate)
    if name == "assembler":
        from ptxdiff.backends.assembler import AssemblerBackend

        return AssemblerBackend(disassembled=disassembled)
    if name == "sass":
        from ptxdiff.backends.sass import SassBackend

        return SassBackend(KERNEL_SECONDS if limit is None else limit)
    raise ValueError(f"no backend is called {name!r}; known: {', '.join(BACKEND_NAMES)}")
