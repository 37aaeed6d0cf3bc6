"""A run on one target finds the same mistakes as a run on all targets, which distributes the compiled rows over
them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxdiff.backends import create
from ptxdiff.model import load as loader
from ptxdiff.model.targets import KNOWN
from ptxdiff.running.item import Item, ItemResults
from ptxdiff.running.run import run_item

CASE = """
import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references.formats import {format}


@triton.jit
def called(x):
    return {called}


case = Case(
    inputs={{"x": {format}}},
    outputs={{"y": {format}}},
    reference=lambda x: {reference},
    variants={{"v": {variant}}},
)
"""


def run_on(
    folder: Path,
    variant: str,
    backend: str,
    target: str,
    *,
    called: str = "x",
    number_format: str = "U32",
    reference: str = "(x + 1) & 0xFFFFFFFF",
) -> ItemResults:
    """A variant's results on one target, at quick effort."""
    path = folder / "planted.py"
    path.write_text(CASE.format(variant=variant, called=called, format=number_format, reference=reference))
    (loaded,) = loader.load(path)
    return run_item(Item(loaded, "v", target, backend), create(backend), "quick")


# Names that occur once in the text of a block, and twice in one scope of PTX if a thread has several packs.
REPEATED = {
    "register": ('".reg .b32 t;\\nmov.b32 t, $1;\\nadd.u32 $0, t, 1;"', "register t"),
    "registers": ('".reg .b32 t<2>;\\nmov.b32 t0, $1;\\nadd.u32 $0, t0, 1;"', "registers t<2>"),
    "label": ('"add.u32 $0, $1, 1;\\nbra L;\\nL:"', "label L"),
    "label beside a unique one": ('"bra L${:uid};\\nL${:uid}: add.u32 $0, $1, 1;\\nbra M;\\nM:"', "label M"),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("backend", ["emulator", "assembler"])
@pytest.mark.parametrize("target", KNOWN)
def test_a_register_outside_braces_fails_on_every_target(tmp_path, target, backend):
    found = run_on(tmp_path, f'asm({REPEATED["register"][0]}, constraints="=&r,r", pack=1)', backend, target)
    here = create(backend).unavailable(target) is None
    assert found.verdict == ("fail" if here else "not run")


@pytest.mark.parametrize("backend", ["emulator", "assembler"])
@pytest.mark.parametrize("text", REPEATED)
def test_a_name_outside_braces_is_named(tmp_path, text, backend):
    """On sm_86 no compiled row has a thread with several packs."""
    asm, named = REPEATED[text]
    found = run_on(tmp_path, f'asm({asm}, constraints="=&r,r", pack=1)', backend, "sm_86")
    assert found.verdict == "fail"
    assert f"{named} is declared outside braces" in found.results[0].message


@pytest.mark.sample(2)
@pytest.mark.parametrize("backend", ["emulator", "assembler"])
@pytest.mark.parametrize(
    "text", ["{{ .reg .b32 t; mov.b32 t, $1; add.u32 $0, t, 1; }}", "bra L${{:uid}}; L${{:uid}}: add.u32 $0, $1, 1;"]
)
def test_a_name_within_braces_or_unique_passes(tmp_path, text, backend):
    found = run_on(tmp_path, f'asm("{text.format()}", constraints="=&r,r", pack=1)', backend, "sm_86")
    assert found.verdict == "pass"


CALL = """tl.inline_asm_elementwise(
        "{begin} .reg .b32 t; mov.b32 t, $4; add.u32 $0, t, 1; add.u32 $1, $5, 1; add.u32 $2, $6, 1; "
        "add.u32 $3, $7, 1; {end}",
        "=&r,=&r,=&r,=&r,r,r,r,r", [x], dtype=tl.int32, is_pure=True, pack=4,
    ).to(tl.uint32, bitcast=True)"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("backend", ["emulator", "assembler"])
@pytest.mark.parametrize(("begin", "end", "verdict"), [("", "", "error"), ("{", "}", "pass")])
def test_a_register_outside_braces_of_a_triton_function(tmp_path, backend, begin, end, verdict):
    """With pack 4 a thread of our template has one copy of the block, except with one warp."""
    found = run_on(tmp_path, "plain(called)", backend, "sm_86", called=CALL.format(begin=begin, end=end))
    assert found.verdict == verdict
    assert ("register t is declared outside braces" in found.results[0].message) == (verdict == "error")


def test_asm_that_cannot_be_parsed_is_compiled_with_several_packs_per_thread(tmp_path):
    text = '# 3 \\"x\\"\\n.reg .b32 t; mov.b32 t, $1; add.u32 $0, t, 1;'
    found = run_on(tmp_path, f'asm("{text}", constraints="=&r,r", pack=1)', "assembler", "sm_86")
    assert found.verdict == "error"
    assert "Duplicate definition" in found.results[-1].words


PLANTED = """
import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, kernel, plain
from ptxdiff.references.formats import F32, U32


def one_more(x):
    return (x + 1) & 0xFFFFFFFF


def square_plus(x, z):
    x, z = (c.to(torch.int32).view(torch.float32) for c in (x, z))
    return (x * x + z).view(torch.int32).to(torch.int64) & 0xFFFFFFFF


@triton.jit
def exchanges(x):
    return tl.inline_asm_elementwise(
        "{ add.u32 $0, $4, 1; add.u32 $1, $5, 1; add.u32 $2, $7, 1; add.u32 $3, $6, 1; }",
        "=&r,=&r,=&r,=&r,r,r,r,r", [x], dtype=tl.int32, is_pure=True, pack=4,
    ).to(tl.uint32, bitcast=True)


@triton.jit
def two_with_one_warp(x):
    return tl.inline_asm_elementwise(
        "{ .reg .b32 t; .reg .pred p; mov.u32 t, %ntid.x; setp.eq.u32 p, t, 32; selp.u32 t, 2, 1, p; "
        "add.u32 $0, $1, t; }", "=&r,r", [x], dtype=tl.int32, is_pure=True, pack=1,
    ).to(tl.uint32, bitcast=True)


@triton.jit
def fused(x, z):
    return x * x + z


@triton.jit
def but_for_one(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=(at < n) & (n > 1))


@triton.jit
def aligned(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if (tl.program_id(0) + 1) * BLOCK <= n:
        tl.store(tl.multiple_of(y + at, 16), tl.load(tl.multiple_of(x + at, 16)) + 1)
    else:
        tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def grid(sizes):
    return (-(-sizes["n"] // 1024),)


def case_of(variant):
    return Case(inputs={"x": U32}, outputs={"y": U32}, reference=one_more, variants={"v": variant})


def sum_of(variant):
    return Case(inputs={"x": F32, "z": F32}, outputs={"y": F32}, reference=square_plus, nan="any",
                variants={"v": variant})


in_a_pack = case_of(plain(exchanges))
by_warps = case_of(plain(two_with_one_warp))
fused_by_triton = sum_of(plain(fused))
fused_by_ptxas = sum_of(asm("{ .reg .f32 p; mul.f32 p, $1, $1; add.f32 $0, p, $2; }", constraints="=&f,f,f", pack=1))
one_element = case_of(kernel(but_for_one, grid=grid, meta={"BLOCK": 1024}))
alignment = case_of(kernel(aligned, grid=grid, meta={"BLOCK": 1024}))
misspelt_at_pack_4 = case_of(asm({
    1: ("add.u32 $0, $1, 1;", "=r,r"),
    2: ("add.u32 $0, $2, 1; add.u32 $1, $3, 1;", "=&r,=&r,r,r"),
    4: ("add.u32 $0, $4, 1; add.u32 $1, $5, 1; add.u32 $2, $6, 1; ad.u32 $3, $7, 1;", "=&r,=&r,=&r,=&r,r,r,r,r"),
}))
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("planted", "backend", "verdict", "words"),
    [
        ("in_a_pack", "emulator", "fail", "num_warps 1"),
        ("by_warps", "emulator", "error", "%ntid depends on where Triton places an element"),
        ("by_warps", "assembler", "error", "%ntid depends on where Triton places an element"),
        ("fused_by_triton", "emulator", "fail", "fusion on"),
        ("fused_by_ptxas", "emulator", "fail", "fusion on"),
        ("one_element", "emulator", "fail", "shape 1,"),
        ("alignment", "emulator", "fail", "misaligned access"),
        ("misspelt_at_pack_4", "assembler", "error", "'ad'"),
    ],
)
def test_a_mistake_in_few_setups_is_found_on_one_target(tmp_path, planted, backend, verdict, words):
    """Each of these once passed on sm_86 alone, because the row that shows the mistake ran on other targets."""
    path = tmp_path / "planted.py"
    path.write_text(PLANTED)
    (loaded,) = (case for case in loader.load(path) if case.attribute == planted)
    found = run_item(Item(loaded, "v", "sm_86", backend), create(backend), "quick")
    assert found.verdict == verdict
    assert any(words in r.message for r in found.results if r.verdict == verdict)
