"""Inline asm within Triton functions: shared registers, and places of a pack that no launch fills."""

import json

import pytest

from ptxdiff.model.dialect import AsmCall
from ptxdiff.running.asm_faults import shared_registers

CLOBBER = '''"""Twice a number, and another one added."""

import triton
import triton.language as tl

from ptxdiff import Case, kernel, plain
from ptxdiff.references.formats import I32

EARLY = """add.s32 $0, $1, $1;
add.s32 $0, $0, $2;"""
LATE = "mad.lo.s32 $0, $1, 2, $2;"
LOADED = """mov.u64 t, $2;
ld.global.s32 $0, [t];
add.s32 $0, $0, $0;
add.s32 $0, $0, $1;"""


@triton.jit
def computed(x, z, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr):
    return tl.inline_asm_elementwise(TEXT, CONSTRAINTS, [x, z], dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def whole(x, z, y, n, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i, i < n), tl.load(z + i, i < n)
    tl.store(y + i, computed(a, b, TEXT, CONSTRAINTS) + (a & b & 0), i < n)


@triton.jit
def from_memory(x, z, y, n, CONSTRAINTS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i = tl.minimum(i, n - 1)
    text: tl.constexpr = "ld.global.s32 $0, [$2]; add.s32 $0, $0, $0; add.s32 $0, $0, $1;"
    made = tl.inline_asm_elementwise(text, CONSTRAINTS, [tl.load(z + i), x + i], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(y + i, made)


def wanted(x, z):
    return (2 * x + z) & 0xFFFFFFFF


def on(function, **meta):
    return kernel(function, grid=lambda v: (triton.cdiv(v["n"], v["BLOCK"]),), meta={**meta, "BLOCK": 128})


kernels = Case(
    inputs={"x": I32["n"], "z": I32["n"]},
    outputs={"y": I32["n"]},
    reference=wanted,
    sizes=[{"n": 200}],
    variants={
        "marked": on(whole, TEXT=EARLY, CONSTRAINTS="=&r,r,r"),
        "not marked": on(whole, TEXT=EARLY, CONSTRAINTS="=r,r,r"),
        "read first": on(whole, TEXT=LATE, CONSTRAINTS="=r,r,r"),
        "loads, marked": on(from_memory, CONSTRAINTS="=&r,r,l"),
        "loads, not marked": on(from_memory, CONSTRAINTS="=r,r,l"),
    },
)
functions = Case(
    inputs={"x": I32, "z": I32},
    outputs={"y": I32},
    reference=wanted,
    variants={
        "marked": plain(computed, constants={"TEXT": EARLY, "CONSTRAINTS": "=&r,r,r"}),
        "not marked": plain(computed, constants={"TEXT": EARLY, "CONSTRAINTS": "=r,r,r"}),
        "read first": plain(computed, constants={"TEXT": LATE, "CONSTRAINTS": "=r,r,r"}),
    },
)
'''


@pytest.fixture
def run_kernels(run_cases, monkeypatch):
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "0")  # asm in kernels is compiled
    return run_cases


def results(pytester):
    lines = (json.loads(line) for line in (pytester.path / "r.jsonl").read_text().splitlines())
    return [r for r in lines if r["record"] == "result"]


def verdicts(found):
    worst = {}
    for r in found:
        key = r["key"]["variant"]
        worst[key] = "fail" if "fail" in (worst.get(key), r["verdict"]) else r["verdict"]
    return worst


@pytest.mark.parametrize(("backend", "case"), [("emulator", "kernels"), ("assembler", "functions")])
def test_an_output_written_early_fails_in_kernels_and_functions(run_kernels, pytester, backend, case):
    run_kernels("--ptx-records=r.jsonl", f"--ptx-backend={backend}", f"-k={case}", case=CLOBBER)
    found = results(pytester)
    expected = {"marked": "pass", "not marked": "fail", "read first": "pass"}
    if case == "kernels":
        expected |= {"loads, marked": "pass", "loads, not marked": "fail"}
    assert verdicts(found) == expected
    failed = [r for r in found if r["verdict"] == "fail"]
    assert len(failed) == len([v for v in expected.values() if v == "fail"]), (
        "each block is reported once, not by every row of the plan"
    )
    words = next(r["findings"][0] for r in failed if r["key"]["variant"] == "not marked")
    for part in (".py:", "line 1", "writes $0 before `add.s32 $0, $0, $2;` reads $2", "'=&r'", "instead of"):
        assert part in words


TWO_GUARDS = """{ .reg .pred p, q; setp.gt.s32 p, $3, 0; setp.lt.s32 q, $3, 0; @p mov.b32 $0, 0;
    @q st.global.b32 [$1], $2; }"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mov.b32 $0, 0; st.global.b32 [$1], $2;", True),
        ("mov.b32 $0, 0; { .reg .pred p; setp.ne.u32 p, $3, 0; @p st.global.b32 [$1], $2; }", True),
        ("{ .reg .pred p; setp.ne.u32 p, $3, 0; mov.b32 $0, 0; @p st.global.b32 [$1], $2; }", True),
        ("{ .reg .pred p; setp.ne.u32 p, $3, 0; @p mov.b32 $0, 0; st.global.b32 [$1], $2; }", True),
        (TWO_GUARDS, None),
        ("{ .reg .pred p; setp.ne.u32 p, $3, 0; @p mov.b32 $0, 0; @!p st.global.b32 [$1], $2; }", False),
        ("{ .reg .pred p; setp.ne.u32 p, $3, 0; @p st.global.b32 [$1], $2; mov.b32 $0, 0; }", False),
    ],
)  # fmt: skip
def test_guards_of_asm_with_memory(text, shown):
    """A finding where a thread must meet the shared register, a note where it may, and nothing where it cannot."""
    fault = shared_registers(AsmCall(text, "=r,l,r,r"))
    assert bool(fault.finding) == (shown is True)
    assert bool(fault.note) == (shown is None)


PACKS = '''"""One bit of each byte flipped, in blocks of several sizes."""

import triton
import triton.language as tl

from ptxdiff import Case, kernel
from ptxdiff.references.formats import U8

FLIP = "xor.b32 $0, $1, 0x01010101;"
BYTES = "{ .reg .b32 t; prmt.b32 t, $1, 0, 0x1230; xor.b32 $0, t, 0x01010101; }"
OTHER = "xor.b32 $0, $1, 0x01030101;"
SECOND_TWICE = "{ .reg .b32 t; prmt.b32 t, $1, 0, 0x3110; xor.b32 $0, t, 0x01010101; }"


@triton.jit
def flipped(x, y, n, TEXT: tl.constexpr, PACK: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    made = tl.inline_asm_elementwise(TEXT, "=r,r", [tl.load(x + i, i < n)], dtype=tl.uint8, is_pure=True, pack=PACK)
    tl.store(y + i, made, i < n)


def on(text, block=64, pack=4, warps=4):
    return kernel(flipped, grid=lambda v: (triton.cdiv(v["n"], v["BLOCK"]),), num_warps=warps,
                  meta={"TEXT": text, "PACK": pack, "BLOCK": block})


case = Case(
    inputs={"x": U8["n"]},
    outputs={"y": U8["n"]},
    reference=lambda x: x ^ 1,
    sizes=[{"n": 1000}],
    variants={
        "right": on(FLIP),
        "filled": on(FLIP, 512),
        "filled by one warp": on(FLIP, 128, warps=1),
        "bytes exchanged": on(BYTES),
        "another constant": on(OTHER),
        "one byte twice": on(SECOND_TWICE),
    },
)
'''


def test_places_of_a_pack_that_hold_padding_in_every_launch_are_run_alone(run_kernels, pytester):
    printed = run_kernels("--ptx-records=r.jsonl", case=PACKS).stdout.str()
    found = results(pytester)
    worst = verdicts(found)
    right = ("right", "filled", "filled by one warp")
    assert {v for v, verdict in worst.items() if verdict == "pass"} == set(right)
    assert {v for v, verdict in worst.items() if verdict == "fail"} == set(worst) - set(right)
    words = {r["key"]["variant"]: r["findings"][0] for r in found if r["verdict"] == "fail"}
    assert "places 1 to 3 of its pack of 4 hold padding in every launch" in words["bytes exchanged"]
    assert "element 1 of result 0 depends on element 3 of argument 0" in words["bytes exchanged"]
    assert "place 2 gives 0x3 as result 0, and place 0 gives 0x1" in words["another constant"]
    assert "make the block 4 times as large" in words["one byte twice"]
    noted = {r["key"]["variant"] for r in found if any("hold padding in every launch" in n for n in r.get("notes", ()))}
    assert noted == {"right"}, "full packs need no remark"
    assert "right: not proved: inline asm at" in printed
