"""Loads from tensor memory that reduce (tcgen05.ld.red): against the reference, legality, and planted mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator import isa
from ptxdiff.emulator.errors import ExecutionError, MemoryFault, OperandError, PtxError, UndefinedBits
from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.kernel.run import load_kernel
from ptxdiff.emulator.kernel.tcgen05 import loads
from ptxdiff.emulator.targets import Target
from ptxdiff.references import tensor_memory_reductions as reference
from tests.support.emulator import tensor_memory_text as tm
from tests.support.emulator.legality import errors_of_ptxas, needs

COLUMNS = 32
SPECIALS = np.array(
    [0, 1 << 31, 1, 0x80000001, 0x7F800000, 0xFF800000, 0x7FC12345, 0xFFC00001, 0x7F800001, 0x3F800000, 0xBF800000],
    np.uint32,
)
"""f32: zeros, subnormals, infinities, NaNs, ones."""


def cells(seed: int) -> np.ndarray:
    """Tensor memory, 128 lanes of columns: lanes of ordinary numbers, of zeros, of specials, and of NaNs alone."""
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((128, COLUMNS)).astype(np.float32).view(np.uint32)
    found[1::4] = rng.choice(SPECIALS, (32, COLUMNS))
    found[2::4] = rng.choice(SPECIALS[:2], (32, COLUMNS))
    found[3::8] = rng.choice(SPECIALS[6:9], (16, COLUMNS))
    found[7::8] = rng.integers(0, 1 << 32, (16, COLUMNS))
    found[12, :4] = SPECIALS[6:10]  # a number behind NaNs
    return found


def kernel(shape: str, count: int, tail: str, apart: int = 0, *, store: bool = True, free: str = tm.FREE) -> str:
    """Each thread loads its lane's columns, and stores them and their reduction."""
    fill = f"{tm.loaded(COLUMNS)}  tcgen05.st.sync.aligned.32x32b.x{COLUMNS}.b32 [%own], {tm.registers(10, COLUMNS)};\n"
    fill += "  tcgen05.wait::st.sync.aligned;\n"
    half = f", {apart}" if shape == "16x32bx2" else ""
    load = f"  tcgen05.ld.red.sync.aligned.{shape}.x{count}.{tail} {tm.registers(100, count)}, "
    load += f"%r{100 + count}, [%own]{half};\n  tcgen05.wait::ld.sync.aligned;\n"
    text = tm.text((fill if store else "") + load + tm.stored(count + 1, 100), columns=64, free=free)
    return text.replace(".version 8.7", ".version 8.8").replace(".target sm_100a", ".target sm_103a")


def ran(text: str, count: int, data: np.ndarray) -> np.ndarray:
    return tm.run(text, data.reshape(-1), np.zeros(128 * (count + 1), np.uint32)).reshape(128, count + 1)


def expected(shape: str, count: int, data: np.ndarray, tail: str, apart: int) -> np.ndarray:
    words = tail.split(".")
    kind = next(w for w in words if w in ("u32", "s32", "f32"))
    operation = next(w for w in words if w in ("min", "max"))
    rows = []
    for thread in range(128):
        places = reference.columns_of(shape, count, thread % 32, apart)
        codes = [int(data[thread // 32 * 32 + lane, column]) for lane, column in places]
        result = reference.reduced(codes, kind, operation, absolute="abs" in words, nan="NaN" in words)
        rows.append([*codes, result])
    return np.array(rows, np.uint32)


TAILS = [
    *(f"{op}.{kind}" for op in ("min", "max") for kind in ("u32", "s32")),
    *(f"{op}{a}{n}.f32" for op in ("min", "max") for a in ("", ".abs") for n in ("", ".NaN")),
    "u32.max", "s32.min", "f32.max.abs.NaN", "f32.min",
]  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(("shape", "count", "apart"), [("32x32b", 4, 0), ("16x32bx2", 4, 8)])
def test_reductions(shape: str, count: int, apart: int, tail: str) -> None:
    data = cells(3)
    got = ran(kernel(shape, count, tail, apart), count, data)
    np.testing.assert_array_equal(got, expected(shape, count, data, tail, apart))


@pytest.mark.parametrize(("shape", "count", "apart"), [("32x32b", 2, 0), ("32x32b", 32, 0), ("16x32bx2", 16, 16)])
def test_other_counts(shape: str, count: int, apart: int) -> None:
    data = cells(4)
    got = ran(kernel(shape, count, "max.f32", apart), count, data)
    np.testing.assert_array_equal(got, expected(shape, count, data, "max.f32", apart))


def test_what_a_gpu_of_sm_103a_gave() -> None:
    """The published results of a probe on such a GPU, by both definitions."""
    one, minus_four, two = 0x3F800000, 0xC0800000, 0x40000000
    given = {
        "max.u32": ([9, 2, 15, 4], 15),
        "min.s32": ([-5 & 0xFFFFFFFF, 7, -20 & 0xFFFFFFFF, 3], -20 & 0xFFFFFFFF),
        "max.abs.NaN.f32": ([one, minus_four, 0x7FC12345, two], 0x7FFFFFFF),
        "min.abs.f32": ([0x40800000, 0xC0000000, 0x3F000000, 0xC1000000], 0x3F000000),
    }
    for tail, (codes, result) in given.items():
        data = np.tile(np.array(codes + [0] * (COLUMNS - 4), np.uint32), (128, 1))
        assert ran(kernel("32x32b", 4, tail), 4, data)[0].tolist() == [*codes, result]
        assert expected("32x32b", 4, data, tail, 0)[0].tolist() == [*codes, result]


def test_both_halves_of_a_lane_reduce_apart() -> None:
    """Threads 0 and 16 load columns of one lane, and each has its own result."""
    data = np.tile(np.arange(COLUMNS, dtype=np.uint32), (128, 1))
    got = ran(kernel("16x32bx2", 4, "max.u32", 8), 4, data)
    assert got[0, -1] == 3
    assert got[16, -1] == 11


# planted mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", ["max.f32", "min.abs.NaN.f32", "max.s32"])
def test_another_operation_gives_other_bits(tail: str) -> None:
    data = cells(3)
    wanted = expected("32x32b", 4, data, tail, 0)
    for other in TAILS:
        words = set(other.split("."))
        if words != set(tail.split(".")):
            assert (ran(kernel("32x32b", 4, other), 4, data) != wanted).any(), other


def test_a_reduction_of_all_halves_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake planted in the emulator: the second half of a .16x32bx2 at the first. No other test has this text."""
    right = loads.image
    monkeypatch.setattr(loads, "image", lambda shape, count, packed, apart: right(shape, count, packed, 0))
    data = cells(3)
    assert (ran(kernel("16x32bx2", 4, "max.f32", 12), 4, data) != expected("16x32bx2", 4, data, "max.f32", 12)).any()


def test_cells_that_nobody_wrote_give_an_undefined_result() -> None:
    text = kernel("32x32b", 2, "max.f32", store=False)
    assert text.count("st.global.b32") == 3
    only = "\n".join(line for line in text.splitlines() if "st.global.b32" not in line or "%r102" in line)
    with pytest.raises(UndefinedBits):
        ran(only, 2, cells(3))


def test_a_missing_wait_before_the_cells_are_freed() -> None:
    text = kernel("32x32b", 4, "max.f32").replace("  tcgen05.wait::ld.sync.aligned;\n", "")
    with pytest.raises(
        ExecutionError, match=r"reads %r\d+, which the tcgen05\.ld\.red\S* in line \d+ is still to write"
    ):
        ran(text, 4, cells(3))
    text = "\n".join(line for line in text.splitlines() if "st.global.b32" not in line)
    with pytest.raises(MemoryFault, match=r"of which a tcgen05\.ld is under way: tcgen05\.wait::ld must come first"):
        ran(text, 4, cells(3))


def test_a_missing_wait_for_stores() -> None:
    text = kernel("32x32b", 4, "max.f32").replace("  tcgen05.wait::st.sync.aligned;\n", "")
    with pytest.raises(MemoryFault, match=r"tcgen05\.wait::st must come first"):
        ran(text, 4, cells(3))


# legality ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (", %r104, [%own]", ", [%own]", OperandError),
        ("%r104, [%own]", "%r104, [%own], 8", OperandError),
        ("{%r100, %r101, %r102, %r103}", "{%r100, %r101}", OperandError),
        ("max.f32", "max.pack::16b.f32", PtxError),
        (".target sm_103a", ".target sm_100a", PtxError),
    ],
)
def test_what_is_illegal_is_refused(old: str, new: str, kind: type[PtxError]) -> None:
    text = kernel("32x32b", 4, "max.f32")
    assert old in text
    with pytest.raises(kind):
        load_kernel(text.replace(old, new))


def asked() -> list[str]:
    found = []
    for shape, half in (("32x32b", ""), ("16x32bx2", ", 16")):
        for count in (1, 2, 128):
            for tail in (*TAILS, "min.abs.u32", "max.NaN.s32", "max.b32", "max.pack::16b.f32"):
                registers = ".reg .b32 r<130>; "
                head = f"tcgen05.ld.red.sync.aligned.{shape}.x{count}.{tail}"
                vector = ", ".join(f"r{i}" for i in range(count))
                found.append(f"{registers}{head} {{{vector}}}, r129, [%b32_0]{half};")
    return found


@pytest.mark.parametrize(
    "target",
    [
        "sm_100a",
        "sm_103a",
        *(pytest.param(f"sm_{t}", marks=pytest.mark.slow) for t in ("103f", "107a", "110f", "120a")),
    ],
)
def test_the_table_has_what_ptxas_takes(target: str) -> None:
    """Slow: what the quick ones say, of more targets."""
    needs(target)
    isa.load()
    device, different = Target.parse(target), []
    for text, words in zip(asked(), errors_of_ptxas(asked(), target), strict=True):
        name = text.split("; ")[1].split(" ")[0]
        opcode, *modifiers = name.split(".")
        ours: Any = [f for f in find(opcode, tuple(modifiers)) if f.requirement_unmet(device) is None]
        if bool(ours) == bool(words):
            different.append(f"{name}: ptxas {words or 'takes it'}")
    assert different == []
