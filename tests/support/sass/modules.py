"""The kernels of many modules in one, so that a test file starts ptxas and nvdisasm once for a target and a level.

ptxas makes the same machine code of a kernel alone as among others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ptxdiff.emulator import Buffer
from ptxdiff.sass.cubin import MachineCode, disassembled, machine_codes
from ptxdiff.sass.run import run_machine_code
from ptxdiff.triton.assemble import cubin_of
from ptxdiff.triton.targets import assembler, tool

_SIZE = ".address_size 64"
_ENTRY = ".visible .entry k("


@lru_cache(maxsize=64)
def together(texts: tuple[str, ...], opt: int) -> Mapping[str, MachineCode]:
    """The machine code of the kernel `k` of each module, by its text. The modules have the same header."""
    headers = {text.partition(_SIZE)[0] for text in texts}
    (header,) = headers
    kernels = []
    for number, text in enumerate(texts):
        body = text.partition(_SIZE)[2]
        assert body.count(_ENTRY) == 1
        kernels.append(body.replace(_ENTRY, f".visible .entry k{number}("))
    target = header.partition(".target")[2].split()[0]
    cubin = cubin_of(f"{header}{_SIZE}{''.join(kernels)}", assembler(target).path, opt, contracts=False)
    codes = machine_codes(cubin, disassembled(cubin, tool("nvdisasm")))
    return {text: codes[f"k{number}"] for number, text in enumerate(texts)}


def run_one(
    text: str, others: Sequence[str], opt: int, grid: Sequence[int] | int, threads: int, *arrays: np.ndarray
) -> None:
    """Run the machine code of one of some modules on arrays, which change in place. Raises what running raises."""
    texts = tuple(dict.fromkeys([*others, text]))
    buffers: list[Any] = [Buffer(a, f"argument {k}") for k, a in enumerate(arrays)]
    sizes = (grid,) if isinstance(grid, int) else tuple(grid)
    run_machine_code(together(texts, opt)[text], buffers, sizes, threads)
