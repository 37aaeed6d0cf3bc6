"""Products that read registers again: a changed register gives the product of its new value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ptxdiff.emulator.binding.program import WriteSlot
from ptxdiff.emulator.errors import UndefinedBits
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.emulator.machine.frame import Frame

WARPS, WORDS = 2, 10
NAMES = [*(f"a{i}" for i in range(4)), "b0", "b1", *(f"c{i}" for i in range(4))]
HEAD = f"""
.version 8.7
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) .reqntid {32 * WARPS}
{{
.reg .b32 %t, {", ".join(NAMES)}; .reg .b64 %x, %y, %o;
ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, {4 * WORDS}; add.s64 %x, %x, %o;
mul.wide.u32 %o, %t, 16; add.s64 %y, %y, %o;
"""
LOAD = "\n".join(f"ld.global.b32 {name}, [%x+{4 * i}];" for i, name in enumerate(NAMES))
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {c0,c1,c2,c3}, {a0,a1,a2,a3}, {b0,b1}, {c0,c1,c2,c3};"
STORE = "\n".join(f"st.global.b32 [%y+{4 * i}], c{i};" for i in range(4)) + "\nret;\n}\n"
NEGATE = {name: f"xor.b32 {name}, {name}, {0x80000000 if name[0] == 'c' else 0x80008000:#x};" for name in NAMES}


def ran(body: str, x: np.ndarray, load: str = LOAD) -> np.ndarray:
    y = np.zeros((32 * WARPS, 4), np.uint32)
    kernel = load_kernel(HEAD + load + body + STORE)
    run_kernel(kernel, [Buffer(x, "x"), Buffer(y, "y")], (1,))
    return y


def drawn(special: bool) -> np.ndarray:
    rng = np.random.default_rng(3)
    halves = rng.standard_normal((32 * WARPS, 2 * 6)).astype(np.float16)
    if special:
        halves[40, 3] = np.inf  # in the second warp
    c = rng.standard_normal((32 * WARPS, 4)).astype(np.float32)
    return np.concatenate([halves.view(np.uint32), c.view(np.uint32)], axis=1)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("special", [False, True])
def test_a_register_that_changes_between_two_products(name: str, special: bool) -> None:
    """The second product alone, of registers that the test has changed, gives the same bits."""
    x = drawn(special)
    again = x.copy()
    again[:, 6:] = ran(MMA, x)
    at = NAMES.index(name)
    again[:, at] ^= np.uint32(0x80000000 if name[0] == "c" else 0x80008000)
    twice = ran(f"{MMA} {NEGATE[name]} {MMA}", x)
    np.testing.assert_array_equal(twice, ran(MMA, again))
    assert (twice != ran(f"{MMA} {MMA}", x)).any()


def test_a_warp_that_changes_its_register_alone() -> None:
    """Threads of the first warp negate a; those of the second keep it."""
    x = drawn(False)
    again = x.copy()
    again[:, 6:] = ran(MMA, x)
    again[:32, 0] ^= np.uint32(0x80008000)
    body = f".reg .pred first; setp.lt.u32 first, %t, 32; {MMA} @first {NEGATE['a0']} {MMA}"
    np.testing.assert_array_equal(ran(body, x), ran(MMA, again))


SWAPPED = "mov.b32 %t, c0; mov.b32 c0, c1; mov.b32 c1, %t;"


@pytest.mark.parametrize(
    ("between", "change"),
    [
        (SWAPPED, lambda c: c[:, [1, 0, 2, 3]]),
        ("mov.b32 c0, c1; mov.b32 c1, c0;", lambda c: c[:, [1, 1, 2, 3]]),
        ("mov.b32 c3, 0;", lambda c: c * np.array([1, 1, 1, 0], np.uint32)),
        (f"{SWAPPED} {MMA} {SWAPPED.replace('%t', 'a0')} mov.b32 a0, c0;", None),
    ],
    ids=["swapped", "copied", "cleared", "a result as a factor"],
)
def test_results_that_move_before_the_next_product(
    between: str, change: Callable[[np.ndarray], np.ndarray] | None
) -> None:
    """Results are laid out in registers when somebody reads these: each step alone, from memory, gives the same."""
    x = drawn(False)
    again = x.copy()
    again[:, 6:] = ran(MMA, x)
    if change is not None:
        again[:, 6:] = change(again[:, 6:])
    else:
        again[:, 6:] = ran(MMA, np.concatenate([x[:, :6], again[:, 6:][:, [1, 0, 2, 3]]], axis=1))[:, [1, 0, 2, 3]]
        again[:, 0] = again[:, 6]
    np.testing.assert_array_equal(ran(f"{MMA} {between} {MMA}", x), ran(MMA, again))


def test_values_that_are_made_later_are_those_that_are_written_at_once() -> None:
    """Registers with undefined bits become defined; narrow values are widened, and results of no register are lost."""
    given = [np.array([0x80000001, 2], np.uint32), np.array([0x8001, 2], np.uint16), np.array([5, 6], np.uint32)]
    writers = [WriteSlot(1, 32), WriteSlot(2, 64, signed=True), WriteSlot(-1, 32)]
    frames = [Frame(load_kernel(HEAD + STORE).program, 2) for _ in range(2)]
    for frame in frames:
        for slot in (1, 2):
            frame.undefined[slot] = np.ones(2, np.uint32)
    for writer, value in zip(writers, given, strict=True):
        frames[0].write(writer, value, None, None)
    frames[1].write_later(writers, lambda: given)
    for slot, (now, after) in enumerate(zip(frames[0].values, frames[1].values, strict=True)):
        assert (now is None) == (after is None), slot
        if now is not None:
            np.testing.assert_array_equal(after, now)
            assert after.dtype == now.dtype
    assert frames[0].undefined[1:3] == frames[1].undefined[1:3] == [None, None]


def test_values_are_made_when_they_are_read_and_once() -> None:
    made: list[int] = []

    def make() -> list[np.ndarray]:
        made.append(1)
        return [np.zeros(2, np.uint32), np.ones(2, np.uint32)]

    frame = Frame(load_kernel(HEAD + STORE).program, 2)
    held, _ = frame.write_later([WriteSlot(1, 32), WriteSlot(2, 32)], make)
    registers = frame.values
    assert held is registers.held(1)
    assert registers[0] is None
    assert not made
    assert registers[2].tolist() == [1, 1]
    assert registers[1] is registers[1]
    assert made == [1]
    assert held is registers.held(1)
    assert [None if r is None else r.tolist() for r in registers][:3] == [None, [0, 0], [1, 1]]


@pytest.mark.parametrize(("word", "half"), [(1, 1), (4, 0), (6, 0)], ids=["a", "b", "c"])
def test_an_infinity_of_one_warp_reaches_its_row_or_column_alone(word: int, half: int) -> None:
    """Lane 8 holds elements of a's row 2 and 10, of b's column 2, and of c's row 2."""
    x = drawn(False)
    if word < 6:
        x.view(np.uint16)[32 + 8, 2 * word + half] = 0x7C00
    else:
        x[32 + 8, word] = 0x7F800000
    d = ran(MMA, x).view(np.float32).reshape(WARPS, 32, 4)
    lane, register = np.meshgrid(np.arange(32), np.arange(4), indexing="ij")
    row, column = lane // 4 + 8 * (register // 2), lane % 4 * 2 + register % 2
    hit = {1: row == 10, 4: column == 2, 6: (row == 2) & (column == 0)}[word]
    assert np.isfinite(d[0]).all()
    np.testing.assert_array_equal(~np.isfinite(d[1]), hit)


@pytest.mark.parametrize("name", ["a3", "b1", "c2"])
def test_a_register_that_nothing_wrote_makes_results_undefined(name: str) -> None:
    load = next(line for line in LOAD.splitlines() if f" {name}," in line)
    with pytest.raises(UndefinedBits):
        ran(MMA, drawn(False), LOAD.replace(load, ""))
