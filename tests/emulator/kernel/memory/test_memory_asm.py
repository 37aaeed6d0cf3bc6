"""Asm with memory operands in Triton kernels, and kernels whose programs wait for each other, right and wrong.

Each kernel is compiled once; mistakes are planted in its PTX, where the asm stands as written.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these tests")

from ptxdiff.emulator.errors import MemoryFault, PtxError, UndefinedBits
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.spec import Compilation, FunctionRef, Parameters, PointerType, specialise
from tests.support.emulator import memory_asm_kernels

N, B, PROGRAMS = 200, 128, 4
Changes = tuple[tuple[str, str], ...]


@cache
def compiled(name: str) -> Compilation:
    function = getattr(memory_asm_kernels, name)
    given = {p.name: PointerType("i32") for p in function.params} | {"n": N, "programs": PROGRAMS, "B": B}
    given = {p.name: given[p.name] for p in function.params}
    found = compile_kernel(
        specialise(
            FunctionRef.of(function),
            given,
            Parameters.of(function),
            target="sm_90a",
            enable_fp_fusion=False,
            num_warps=4,
        )
    )
    assert isinstance(found, Compilation), found
    return found


def launch(name: str, changes: Changes, *values: np.ndarray | int) -> None:
    """Run a kernel after changes of its PTX: a pattern, and what replaces its first match; one of "" removes it."""
    text = compiled(name).ptx
    for pattern, to in changes:
        text, count = re.subn(pattern, to, text, count=1)
        assert count, pattern
    buffers = [Buffer(v, f"argument {n}") if isinstance(v, np.ndarray) else v for n, v in enumerate(values)]
    shared = compiled(name).shared
    run_kernel(load_kernel(text), buffers, (PROGRAMS,), num_threads=128, shared_bytes=shared)


def tripled(*changes: tuple[str, str]) -> bool:
    x = np.arange(N, dtype=np.int32) * 0x12345 + 1
    y, total = np.full(N, -7, np.int32), np.zeros(2, np.int32)
    launch("tripled", changes, x, y, total, N)
    return bool((y == x * 3).all() and total[0] == x.sum(dtype=np.int32) and total[1] == N)


def met(name: str, *changes: tuple[str, str]) -> bool:
    x, y, count = np.zeros(PROGRAMS * B, np.int32), np.zeros(PROGRAMS * B, np.int32), np.zeros(1, np.int32)
    launch(name, changes, x, y, count, PROGRAMS)
    return y.tolist() == np.roll(np.arange(PROGRAMS * B), -B).tolist()


def locked(*changes: tuple[str, str]) -> bool:
    x, y, lock = np.arange(B, dtype=np.int32), np.zeros(B, np.int32), np.zeros(1, np.int32)
    launch("locked", changes, x, y, lock)
    return y.tolist() == (x * PROGRAMS).tolist()


def test_right_loads_stores_and_atomics_in_asm_pass() -> None:
    assert tripled()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((r"@p ld\.global", "ld.global"), "out of bounds"),
        ((r"@p st\.global", "st.global"), "out of bounds"),
        ((r"@p ld\.global", "@!p ld.global"), "out of bounds"),
        ((r"(L2::128B.b32 %r\d+, \[%rd\d+)\]", r"\1+4]"), "out of bounds"),
        ((r"(L2::128B.b32 %r\d+, \[%rd\d+)\]", r"\1+2]"), "misaligned"),
        ((r"(@p st\S+ \[%rd\d+)\]", r"\1-4]"), "out of bounds|race"),
        ((r"L2::128B", "L2::96B"), "ld has no modifier"),
        ((r"\.reg \.b64 policy", ".reg .b32 policy"), "needed: 64 bits"),
        ((r"createpolicy[^;]*evict_first[^;]*;", ""), "undefined bits reach a cache policy"),
        ((r"createpolicy[^;]*evict_last[^;]*;", ""), "undefined bits reach a cache policy"),
        ((r"(cache_hint[^;]*), policy;", r"\1;"), "operands"),
        ((r"st\.global(\.L2::cache_hint)", r"st.shared\1"), "lie outside|no modifier|no form|excludes|cannot"),
        ((r"prefetch\.global\.L2 \[%rd\d+\]", "prefetch.global.L2 [p]"), "cannot hold a global address"),
        ((r"prefetch\.global\.L2", "prefetch.global.L3"), "prefetch has no modifier"),
        ((r"atom\.relaxed\.gpu", "atom.relaxed.cta"), "race"),
        ((r"red\.relaxed\.gpu", "red.relaxed.cta"), "race"),
        ((r"(@p red\S+ \[%rd\d+)\+4\]", r"\1+8]"), "out of bounds"),
        (
            (r"@p red\.relaxed\.gpu\.global\.add\.u32 (\[%rd\d+\+4\]), 1;",
             r"@p ld.global.u32 old, \1; add.u32 old, old, 1; @p st.global.u32 \1, old;"),
            "race",
        ),
    ],
)  # fmt: skip
def test_wrong_predicates_addresses_hints_and_scopes_are_found(change: tuple[str, str], message: str) -> None:
    with pytest.raises(PtxError, match=message):
        tripled(change)


@pytest.mark.parametrize(
    "change",
    [
        (r"@p st\.global", "@!p st.global"),
        (r"@p atom", "@!p atom"),
        (r"L2::128B.b32", "L2::128B.u16"),
        (r"global\.add\.u32 (\[%rd\d+\+4\]), 1", r"global.max.u32 \1, 1"),
    ],
)
def test_mistakes_without_a_fault_give_wrong_bits(change: tuple[str, str]) -> None:
    with suppress(MemoryFault, UndefinedBits):
        assert not tripled(change)


def test_locks_and_barriers_in_tritons_atomics_and_in_asm_pass() -> None:
    assert locked()
    assert met("met")
    assert met("met_in_asm")


@pytest.mark.parametrize(
    "change",
    [
        (r"atom\.global\.acq_rel\.gpu\.cas", "atom.global.relaxed.gpu.cas"),
        (r"atom\.global\.gpu\.acq_rel\.exch", "atom.global.gpu.relaxed.exch"),
        (r"atom\.global\.gpu\.acq_rel\.exch", "atom.global.cta.acq_rel.exch"),
        (r"bar\.sync\s+0;\s[^;]*?bar\.sync\s+0;", ""),
    ],
)
def test_wrong_locks_are_found(change: tuple[str, str]) -> None:
    with pytest.raises(MemoryFault, match="race"):
        locked(change)


@pytest.mark.parametrize(
    "change",
    [
        (r"red\.release", "red.relaxed"),
        (r"red\.release\.gpu", "red.release.cta"),
        (r"ld\.acquire", "ld.relaxed"),
        (r"ld\.acquire\.gpu\.global", "ld.global"),
        (r"ld\.acquire\.gpu", "ld.acquire.cta"),
        (r"setp\.lt\.u32 p, v, %r\d+", "setp.lt.u32 p, v, 3"),
        (r"bar\.sync\s+0;", ""),
    ],
)
def test_wrong_barriers_in_asm_are_found(change: tuple[str, str]) -> None:
    with pytest.raises(MemoryFault, match="race"):
        met("met_in_asm", change)
