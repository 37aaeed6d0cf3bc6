"""Machine code of many kernels that is read together, before tests run them one by one.

A start of nvdisasm takes a quarter of a second of processor time, however small the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from ptxdiff import launcher
from ptxdiff.emulator.text import without_header
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.words import WordDecoder
from ptxdiff.triton.assemble import NotAssembled, cubin_of
from ptxdiff.triton.targets import assembler, probe, tool


@contextmanager
def read_together(kernels: Iterable[tuple[str, int | None]]) -> Iterator[None]:
    """Within it, `run_ptx` has the machine code of these modules, each with ptxas's level; others are read as ever."""
    cubins: dict[str, dict[tuple[str, int | None], bytes]] = {}
    for text, level in kernels:
        target = without_header(text).target or "sm_90a"
        if probe()[target].available:
            with suppress(NotAssembled):  # its own test shows that
                made = cubin_of(text, assembler(target).path, level, contracts=True)
                cubins.setdefault(target, {})[text, level] = made
    known: dict[tuple[str, int | None], Mapping[str, MachineCode]] = {}
    for target, some in cubins.items():
        read = WordDecoder(target, tool("nvdisasm")).codes(list(some.values()))
        known |= {kernel: codes for kernel, codes in zip(some, read, strict=True) if isinstance(codes, Mapping)}
    alone = launcher._machine_code

    def found(text: str, entry: str | None, ptxas: str | None, opt: int | None, *more: Any) -> MachineCode:
        codes = None if ptxas else known.get((text, opt))
        return codes[entry] if entry and codes else alone(text, entry, ptxas, opt, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launcher, "_machine_code", found)
        yield
