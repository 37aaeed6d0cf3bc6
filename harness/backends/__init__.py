"""Backends by name."""

from __future__ import annotations

from collections.abc import Collection

from harness.jobs import BACKEND_NAMES, Backend
from harness.ptx.limits import KERNEL_SECONDS


def create(
    name: str,
    *,
    limit: float | None = None,
    sanitize: str = "",
    disassembled: Collection[str] | None = None,
    approximate: str = "hopper",
) -> Backend:
    """The backend called `name`; raises ValueError for a name that is none.

    limit: seconds after which work on a GPU, or one run on the emulator, is given up; None for the defaults. sanitize:
    the tool of compute-sanitizer that watches kernels on a GPU. disassembled: the targets whose machine code the
    assembler also takes apart; None for all. approximate: the bits of approximate instructions on the emulator.
    """
    if name == "gpu":
        from harness.backends.watched import WatchedGpu

        return WatchedGpu(limit=limit, sanitize=sanitize)
    if name == "emulator":
        from harness.backends.emulator import EmulatorBackend

        return EmulatorBackend(KERNEL_SECONDS if limit is None else limit, approximate)
    if name == "assembler":
        from harness.backends.assembler import AssemblerBackend

        return AssemblerBackend(disassembled=disassembled)
    raise ValueError(f"no backend is called {name!r}; known: {', '.join(BACKEND_NAMES)}")
