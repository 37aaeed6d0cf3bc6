"""Rarer instructions of whole kernels: results as the ISA's text gives them, and the forms that ptxas accepts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np
import pytest

import ptxdiff.emulator.kernel.run  # noqa: F401  the machine's own instructions
from ptxdiff.emulator.errors import MemoryFault, PtxError
from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.targets import Requirement
from tests.support.emulator import legality
from tests.support.emulator.one_warp import LANES, STORE, one_warp


def floats(*values: float) -> np.ndarray:
    """A warp's float32 values, the last repeated, as bits."""
    return np.array([*values, *[values[-1]] * (32 - len(values))], np.float32).view(np.uint32)


NAN, CANONICAL = float("nan"), 0x7FFFFFFF


@pytest.mark.parametrize(
    ("form", "values", "expected"),
    [
        ("min", (3.0, -5.0, 1.0), np.float32(-5).view(np.uint32)),
        ("max.abs", (3.0, -5.0, 1.0), np.float32(5).view(np.uint32)),
        ("min.abs", (3.0, -5.0, -1.0), np.float32(1).view(np.uint32)),
        ("max", (-0.0, 0.0, -0.0), 0),
        ("min", (0.0, -0.0, 0.0), 0x80000000),
        ("max", (NAN, 2.0, 1.0), np.float32(2).view(np.uint32)),
        ("max.NaN", (1.0, NAN, 2.0), CANONICAL),
        ("min.abs.NaN", (1.0, -NAN, 2.0), CANONICAL),
        ("min", (NAN, -NAN, NAN), CANONICAL),
    ],
)
def test_redux_of_floats(form: str, values: tuple[float, ...], expected: int) -> None:
    y = one_warp(f"redux.sync.{form}.f32 %r3, %r2, -1; {STORE}", floats(*values))
    assert set(y.tolist()) == {int(expected)}


def test_redux_reads_only_the_members_of_its_mask() -> None:
    body = f"setp.lt.u32 %p1, %r1, 16; mov.u32 %r3, 0; @%p1 redux.sync.add.u32 %r3, %r2, 0xFFFF; {STORE}"
    y = one_warp(body, LANES)
    np.testing.assert_array_equal(y, np.where(LANES < 16, LANES[:16].sum(), 0))


def test_match_any_gives_the_lanes_with_the_same_value() -> None:
    x = LANES % 3
    y = one_warp(f"match.any.sync.b32 %r3, %r2, -1; {STORE}", x)
    np.testing.assert_array_equal(y, [sum(1 << j for j in range(32) if x[j] == v) for v in x])
    wide = f"cvt.u64.u32 %rd6, %r2; shl.b64 %rd6, %rd6, 32; match.any.sync.b64 %r3, %rd6, -1; {STORE}"
    np.testing.assert_array_equal(one_warp(wide, x), y)


@pytest.mark.parametrize("odd", [False, True])
def test_match_all_gives_the_members_if_all_agree(odd: bool) -> None:
    x = np.full(32, 7, np.uint32)
    x[9] += odd
    y = one_warp(f"match.all.sync.b32 %r3|%p1, %r2, -1; @%p1 xor.b32 %r3, %r3, 0xF0; {STORE}", x)
    assert set(y.tolist()) == ({0} if odd else {0xFFFFFF0F})


def test_elect_chooses_one_member() -> None:
    half = "setp.ge.u32 %p2, %r1, 20; mov.u32 %r3, 99; @!%p2 bra DONE;"
    body = f"{half} elect.sync %r3|%p1, 0xFFF00000; @%p1 add.u32 %r3, %r3, 100; DONE: {STORE}"
    y = one_warp(body, LANES, "sm_90a")
    assert set(y[:20].tolist()) == {99}
    leader = int(y[20:].min())
    assert 20 <= leader < 32
    np.testing.assert_array_equal(y[20:], np.where(LANES[20:] == leader, leader + 100, leader))


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("num", [1, 2, 4])
def test_stmatrix_stores_what_ldmatrix_loads(num: int, trans: str) -> None:
    """Thread t holds elements 2 (t mod 4) and the next of row t / 4; lane 8 m + i has the address of m's row i."""
    registers = ", ".join(f"%r{10 + m}" for m in range(num))
    make = "".join(f"add.u32 %r{10 + m}, %r2, {m << 24 | m << 8};" for m in range(num))
    rows = "mov.u32 %r4, smem; shl.b32 %r5, %r1, 4; add.u32 %r6, %r4, %r5;"
    out = "".join(
        f"ld.shared.b32 %r7, [%r8+{128 * m}]; st.global.b32 [%rd5+{128 * m}], %r7;" for m in range(num)
    )  # shared memory in the order of its addresses
    body = f"""{make}{rows}
    stmatrix.sync.aligned.m8n8.x{num}{trans}.shared.b16 [%r6], {{{registers}}};
    bar.sync 0; shl.b32 %r9, %r1, 2; add.u32 %r8, %r4, %r9; {out}"""
    x = (2 * LANES + 1) << 16 | 2 * LANES  # element e of the matrix is e
    y = one_warp(body, x, "sm_90a", 32 * num).view(np.uint16).reshape(num, 8, 8)
    for m in range(num):
        matrix = np.arange(64).reshape(8, 8) + 256 * m
        np.testing.assert_array_equal(y[m], matrix.T if trans else matrix)


def test_a_swap_of_16_bits_does_not_change_its_neighbour() -> None:
    body = f"""
    cvt.u16.u32 %h1, %r1; mov.b16 %h2, 0xBEEF;
    st.global.b32 [%rd5], %r2; atom.global.cas.b16 %h3, [%rd5+2], %h1, %h2;
    ld.global.b32 %r3, [%rd5]; cvt.u32.u16 %r4, %h3; xor.b32 %r3, %r3, %r4; {STORE}"""
    x = (LANES & ~np.uint32(1)) << 16 | 0x1234  # an even thread's comparison succeeds
    now = np.where(LANES % 2 == 0, np.uint32(0xBEEF1234), x)
    np.testing.assert_array_equal(one_warp(body, x, "sm_90a"), now ^ (x >> 16))


V8 = "{" + ", ".join(f"%r{i}" for i in range(10, 18)) + "}"


@pytest.mark.parametrize("vector", [f".v8.b32 {V8}", ".v4.b64 {%rd10, %rd11, %rd12, %rd13}"])
def test_accesses_of_32_bytes(vector: str) -> None:
    kind, registers = vector.split(" ", 1)
    body = f"""
    mul.wide.u32 %rd6, %r1, 32; add.s64 %rd7, %rd1, %rd6; add.s64 %rd8, %rd2, %rd6; setp.lt.u32 %p1, %r1, 4;
    @%p1 ld.global.L2::evict_first{kind} {registers}, [%rd7];
    @%p1 st.global{kind} [%rd8], {registers};"""
    np.testing.assert_array_equal(one_warp(body, LANES + 5), LANES + 5)
    with pytest.raises(MemoryFault, match="misaligned access of 32 bytes"):
        one_warp(body.replace("[%rd7]", "[%rd7+16]"), LANES)
    with pytest.raises(PtxError, match=r"sm_100"):
        one_warp(body, LANES, "sm_90a")


@pytest.mark.parametrize(("op", "wanted"), [("min", 0xBC003C00), ("max", 0xB8004000), ("add", 0xBE004200)])
def test_vectors_of_halves_are_updated_element_by_element(op: str, wanted: int) -> None:
    """-0.5 and 2 in memory, -1 and 1 in registers; min and max of a NaN and a number give the number."""
    body = f"""st.global.b32 [%rd5], %r2; mov.b32 %r3, 0xbc003c00; mov.b32 {{%h1, %h2}}, %r3;
    red.relaxed.gpu.global.{op}.noftz.v2.f16 [%rd5], {{%h1, %h2}};"""
    got = one_warp(body, np.array([0xB8004000] * 31 + [0x7E007E00], np.uint32))
    nan = 0x7FFF7FFF if op == "add" else 0xBC003C00
    assert got.tolist() == [wanted] * 31 + [nan]


def error_of_machine(line: str, target: str) -> str | None:
    """The error of the machine of whole kernels for a line; None if it would run."""
    return legality.error_of_emulate(line, target, elementwise=False)


def _vector(count: int, width: int) -> str:
    names = ", ".join(f"%b{width}_{i}" for i in range(count))
    return f".v{count}.b{width} {{{names}}}" if count > 1 else f".b{width} {names}"


def _moves() -> list[str]:
    lines = []
    l1s, l2s = ("", ".L1::evict_first", ".L1::no_allocate"), ("", ".L2::evict_normal", ".L2::evict_last")
    shapes = ((1, 32), (4, 16), (2, 64), (4, 32), (4, 64), (8, 32), (8, 64))
    spaces = (".global", ".shared", ".local", "")
    for l1, l2, (count, width), space in itertools.product(l1s, l2s, shapes, spaces):
        kind, registers = _vector(count, width).split(" ", 1)
        lines.append(f"ld{space}{l1}{l2}{kind} {registers}, [%b64_7];")
        lines.append(f"st{space}{l1}{l2}{kind} [%b64_7], {registers};")
    return lines


def _updates() -> list[str]:
    types = ["b16", "b32", "b64", "u32", "s32", "u64", "s64", "f16", "bf16", "f16x2", "bf16x2", "f32", "f64"]
    lines = []
    for op, t, noftz in itertools.product(["exch", "cas", "add", "min", "and", "inc"], types, ("", ".noftz")):
        width = 32 if t.endswith("x2") else int(re.sub(r"\D", "", t))
        third = f", %b{width}_2" if op == "cas" else ""
        lines.append(f"atom.global.{op}{noftz}.{t} %b{width}_0, [%b64_7], %b{width}_1{third};")
        lines.append(f"red.shared.{op}{noftz}.{t} [%b64_7], %b{width}_1{third};")
    floats = [("f32", 32), ("f16", 16), ("bf16", 16), ("f16x2", 32), ("bf16x2", 32), ("u32", 32)]
    choices = itertools.product(["add", "min", "max", "and"], floats, ("", ".noftz"), (2, 4, 8))
    for op, (t, width), noftz, count in choices:
        registers = ", ".join(f"%b{width}_{i}" for i in range(count))
        spelling = f"global.{op}{noftz}.v{count}.{t}"
        lines.append(f"atom.{spelling} {{{registers}}}, [%b64_7], {{{registers}}};")
        lines.append(f"red.{spelling} [%b64_7], {{{registers}}};")
    return lines


def _exchanges() -> list[str]:
    lines = ["elect.sync %b32_0, -1;", "elect.sync %b32_0|%pred_0, -1;", "elect.sync _|%pred_0, -1;"]
    for op, t, q in itertools.product(("add", "min", "and", "xor"), ("u32", "s32", "b32", "f32"), ("", ".abs.NaN")):
        lines.append(f"redux.sync.{op}{q}.{t} %b32_0, %b32_1, -1;")
    for mode, width, to in itertools.product(("any", "all"), (32, 64), ("%b32_0", "%b32_0|%pred_0", "%b32_0|_")):
        lines.append(f"match.{mode}.sync.b{width} {to}, %b{width}_1, -1;")
    for trans, kind in itertools.product(("", ".trans"), ("b16", "b8")):
        lines.append(f"stmatrix.sync.aligned.m8n8.x1{trans}.shared.{kind} [%b32_7], {{%b32_0}};")
    return lines


def disagreements(lines: list[str], target: str) -> list[str]:
    legality.needs(target)
    errors = legality.errors_of_ptxas(lines, target)
    return [
        line for line, p in zip(lines, errors, strict=True) if (p is None) != (error_of_machine(line, target) is None)
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_the_machine_accepts_the_forms_that_ptxas_accepts(target: str) -> None:
    assert disagreements([*_moves(), *_updates(), *_exchanges()], target) == []


def test_planted_mistakes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One form combines modifiers that ptxas does not combine, one claims too many targets."""
    narrow, wide = (
        find("ld", modifiers)[0].form for modifiers in (("global", "b32"), ("global", "L2::evict_last", "v8", "b32"))
    )
    with monkeypatch.context() as planted:
        planted.setattr(wide, "requires", Requirement(minimum=75))
        assert disagreements(_moves(), "sm_90a")
    monkeypatch.setattr(narrow, "excludes", ())
    find.cache_clear()
    assert disagreements(_moves(), "sm_100a")


@pytest.fixture(autouse=True)
def _fresh_forms() -> Iterator[None]:
    """Clear the cache of `find` after a test that changed a table."""
    yield
    find.cache_clear()


@pytest.mark.parametrize(
    "line",
    ["ld.global.L2::evict_first.b32 %b32_0, [%b64_7];", "st.shared.L1::evict_first.b32 [%b64_7], %b32_0;",
     "ld.shared.v4.b64 {%b64_0, %b64_1, %b64_2, %b64_3}, [%b64_7];", "atom.global.add.bf16 %b16_0, [%b64_7], %b16_1;"],
)  # fmt: skip
def test_what_ptxas_refuses_is_refused(line: str) -> None:
    assert error_of_machine(line, "sm_100a")
