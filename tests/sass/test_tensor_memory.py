"""Allocation, loads and stores of tensor memory in machine code give the bits of the PTX, and find mistakes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator.errors import ExecutionError, UndefinedBits
from ptxdiff.emulator.kernel.tcgen05.loads import PER_COUNT
from ptxdiff.sass import tensor_memory
from ptxdiff.sass.text import MachineFault, Unsupported
from ptxdiff.triton.targets import probe
from tests.emulator.kernel.tcgen05 import test_loads_with_reductions as reductions
from tests.support.emulator import tensor_memory_text as tm
from tests.support.sass.ahead import read_together
from tests.support.sass.assembly import run

SHAPES = [("32x32b", 1), ("32x32b", 16), ("16x64b", 4), ("16x128b", 2), ("16x256b", 2), ("16x32bx2", 4)]


def ran(kernel: str, count: int, words: int = 32, **options: object) -> np.ndarray:
    """What 128 threads store, `count` words each."""
    if not probe()["sm_100a"].available:
        pytest.skip("no ptxas for sm_100a")
    data = np.random.default_rng(1).integers(0, 1 << 32, 128 * words, np.uint32)
    out = np.zeros(128 * count, np.uint32)
    run_ptx(kernel, 1, 128, data, out, shared=16384, **options)
    return out


def moved(shape: str, num: int, packed: bool, stores: bool = True) -> str:
    """A kernel that fills 32 columns, stores to some of them in a shape, and loads from others in this shape."""
    count = PER_COUNT[shape] * num
    behind = ", 5" if shape == "16x32bx2" else ""
    fill = f"{tm.loaded(32)}  tcgen05.st.sync.aligned.32x32b.x32.b32 [%own], {tm.registers(10, 32)};\n"
    store = f"  tcgen05.st.sync.aligned.{shape}.x{num}.b32 [%own+1]{behind}, {tm.registers(10, count)};\n" * stores
    load = f"  tcgen05.ld.sync.aligned.{shape}.x{num}{'.pack::16b' * packed}.b32 {tm.registers(100, count)}, "
    waits = "  tcgen05.wait::{}.sync.aligned;\n"
    body = fill + waits.format("st") + store + waits.format("st") + f"{load}[%own]{behind};\n" + waits.format("ld")
    return tm.text(body + tm.stored(count, 100), columns=32)


MISTAKES = {
    ("[%own+1]", "[%own+-8]"): "not allocated",
    ("[%own+1]", "[%own+40]"): "above 511",
    ("[%own+1]", "[%base+1]"): "lanes of tensor memory that are not its own",
    ("%base, 32;", "%base, 64;"): "trap",  # ptxas compares with what it noted at the allocation
}


@pytest.fixture(scope="module", autouse=True)
def _read_together() -> Iterator[None]:
    changed = moved("32x32b", 4, False)
    plain = [moved(shape, num, packed) for shape, num in SHAPES for packed in (False, True)]
    kernels = [*plain, *(changed.replace(*change) for change in MISTAKES), moved("16x256b", 2, False, stores=False)]
    with read_together((kernel, 3) for kernel in kernels):
        yield


@pytest.mark.sample(16)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("shape", "num"), SHAPES)
def test_loads_and_stores_give_the_bits_of_the_ptx(shape: str, num: int, packed: bool) -> None:
    kernel, count = moved(shape, num, packed), PER_COUNT[shape] * num
    wanted = ran(kernel, count)
    assert len(np.unique(wanted)) > 100
    np.testing.assert_array_equal(ran(kernel, count, level="sass", opt=3), wanted)


@pytest.mark.parametrize("target", ["sm_103a", "sm_110a"])
def test_ptxas_keeps_book_of_allocations_where_the_target_has_it(target: str) -> None:
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    kernel = moved("32x32b", 1, False)
    there = kernel.replace("sm_100a", target).replace(".version 8.7", ".version 9.0")
    assert there != kernel
    np.testing.assert_array_equal(ran(there, 1, level="sass", opt=3), ran(kernel, 1))


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", [0, 3])
def test_stores_of_halves_give_the_bits_of_the_ptx(level: int) -> None:
    halves = "  tcgen05.st.sync.aligned.16x64b.x2.unpack::16b.b32 [%own], {%r10, %r11};\n"
    load = "  tcgen05.ld.sync.aligned.16x64b.x2.pack::16b.b32 {%r20, %r21}, [%own];\n"
    body = f"{tm.loaded(2)}{halves}  tcgen05.wait::st.sync.aligned;\n{load}  tcgen05.wait::ld.sync.aligned;\n"
    kernel = tm.text(body + tm.stored(2, 20), columns=32)
    np.testing.assert_array_equal(ran(kernel, 2, 2, level="sass", opt=level), ran(kernel, 2, 2))


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("at", [0, 3])
def test_a_shift_gives_the_bits_of_the_ptx(at: int, level: int) -> None:
    fill = f"{tm.loaded(16)}  tcgen05.st.sync.aligned.32x32b.x16.b32 [%own], {tm.registers(10, 16)};\n"
    fill += "  tcgen05.wait::st.sync.aligned;\n  bar.sync 0;\n"
    shift = f"  @%first tcgen05.shift.cta_group::1.down [%base+{at}];\n{tm.waited()}"
    load = (
        f"  tcgen05.ld.sync.aligned.32x32b.x16.b32 {tm.registers(100, 16)}, [%own];\n  tcgen05.wait::ld.sync.aligned;\n"
    )
    kernel, plain = (tm.text(fill + part + load + tm.stored(16, 100), columns=32) for part in (shift, ""))
    wanted = ran(kernel, 16, 16)
    assert (wanted != ran(plain, 16, 16)).sum() > 200
    np.testing.assert_array_equal(ran(kernel, 16, 16, level="sass", opt=level), wanted)


@pytest.mark.sample(8)
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize(
    ("shape", "count", "tail"),
    [("32x32b", 4, "min.f32"), ("32x32b", 2, "max.abs.f32"), ("32x32b", 8, "max.NaN.f32"), ("32x32b", 16, "max.u32"),
     ("32x32b", 2, "min.abs.NaN.f32"), ("16x32bx2", 2, "min.s32"), ("16x32bx2", 4, "max.f32")],
)  # fmt: skip
def test_loads_with_a_reduction_give_the_bits_of_the_ptx(shape: str, count: int, tail: str, level: int) -> None:
    """LDTM.STAT, against the reference."""
    if not probe()["sm_103a"].available:
        pytest.skip("no ptxas for sm_103a")
    data = reductions.cells(level)
    out = np.zeros(128 * (count + 1), np.uint32)
    run_ptx(
        reductions.kernel(shape, count, tail, 5), 1, 128, data.reshape(-1), out, shared=65536, level="sass", opt=level
    )
    wanted = reductions.expected(shape, count, data, tail, 5)
    assert len(np.unique(wanted[:, -1])) > 30
    np.testing.assert_array_equal(out.reshape(128, count + 1), wanted)


STORE_WAIT = "  tcgen05.wait::st.sync.aligned;\n"
BESIDE = f"""{tm.loaded(1)}  setp.lt.u32 %p0, %warp, 4;
  @!%p0 bra stored;
  tcgen05.st.sync.aligned.32x32b.x1.b32 [%own], {{%r10}};
{STORE_WAIT}  tcgen05.fence::before_thread_sync;
stored:
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  @%p0 bra loaded;
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r10}}, [%own];
  tcgen05.wait::ld.sync.aligned;
loaded:
"""
"""Four warps store, and the four warps beside them, of the same quarters, load."""


def _beside(body: str) -> str:
    kernel = tm.text(body + tm.stored(1), columns=32).replace(".reqntid 128", ".reqntid 256")
    return kernel.replace("shl.b32 %own, %warp, 21;", "and.b32 %own, %warp, 3;\n  shl.b32 %own, %own, 21;")


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", [0, 3])
def test_a_load_of_what_another_warp_stores_without_a_wait_is_a_race(level: int) -> None:
    if not probe()["sm_100a"].available:
        pytest.skip("no ptxas for sm_100a")
    data, out = np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)
    options = {"shared": 16384, "level": "sass", "opt": level}
    run_ptx(_beside(BESIDE), 1, 256, data, out, **options)
    np.testing.assert_array_equal(out, np.tile(np.arange(128), 2))
    wrong = _beside(BESIDE.replace(STORE_WAIT, ""))
    with pytest.raises(ExecutionError):
        run_ptx(wrong, 1, 256, data, out, shared=16384)
    with pytest.raises(MachineFault, match=r"race: LDTM.* lane 0, column \d+ of tensor memory, to which warp 0 stores"):
        run_ptx(wrong, 1, 256, data, out, **options)


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", [0, 3])
def test_an_operation_on_what_a_warp_stores_without_a_wait_is_a_race(level: int) -> None:
    fill = f"{tm.loaded(16)}  tcgen05.st.sync.aligned.32x32b.x16.b32 [%own], {tm.registers(10, 16)};\n"
    shift = f"  bar.sync 0;\n  @%first tcgen05.shift.cta_group::1.down [%base];\n{tm.waited()}"
    right, wrong = (tm.text(fill + wait + shift, columns=32) for wait in (STORE_WAIT, ""))
    ran(right, 16, 16, level="sass", opt=level)
    with pytest.raises(MachineFault, match=r"race: .*UTCSHIFT"):
        ran(wrong, 16, 16, level="sass", opt=level)


def test_cells_that_nobody_wrote_are_undefined() -> None:
    body = "  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r10}, [%own];\n  tcgen05.wait::ld.sync.aligned;\n"
    with pytest.raises(UndefinedBits):
        ran(tm.text(body + tm.stored(1), columns=32), 1, level="sass", opt=3)


@pytest.mark.parametrize(("change", "words"), MISTAKES.items())
def test_mistakes_are_found(change: tuple[str, str], words: str) -> None:
    kernel = moved("32x32b", 4, False)
    assert change[0] in kernel
    with pytest.raises(MachineFault, match=words):
        ran(kernel.replace(*change), 4, level="sass", opt=3)


def swapped(right, shape: str, num: int, *more):
    """The cells of a shape, of 16x256b those of 16x128b."""
    return right("16x128b", 2 * num, *more) if shape == "16x256b" else right(shape, num, *more)


def test_a_planted_layout_gives_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = moved("16x256b", 2, False, stores=False)
    wanted, right = ran(kernel, 8), tensor_memory.image
    monkeypatch.setattr(tensor_memory, "image", lambda shape, num, *more: swapped(right, shape, num, *more))
    assert (ran(kernel, 8, level="sass", opt=3) != wanted).any()


@pytest.mark.parametrize("text", [
    "LDTM.x3 R4, tmem[UR4]", "LDTM.EXPAND16BIT R4, tmem[UR4]", "STTM.PACK16BIT tmem[UR4], R4", "LDTM RZ, tmem[UR4]",
    "LDTM.x2.FOO R4, tmem[UR4]", "LDTM.x4 R252, tmem[UR4]", "UTCATOMSWS.OR URZ, UR4", "UTCATOMSWS.AND UR5, UR4",
    "UTCATOMSWS.FIND_AND_SET UP0, UR4, UR4", "UTCBAR.MULTICAST [UR4], URZ", "UTCBAR [UR4], UR6", "BPT.TRAP 0x2",
    "LDTM.STAT.x2.MIN R4, R4, tmem[UR4]", "LDTM.STAT.x2.MIN.U32 R7, R4, tmem[UR4]", "LDTM.x2.MIN R7, R4, tmem[UR4]",
    "LDTM.STAT.x2.MINABS.S32 R7, R4, tmem[UR4]", "LDTM.STAT.x2.MAX.S32.NAN R7, R4, tmem[UR4]",
    "LDTM.STAT.x2.MAX R4, tmem[UR4]", "LDTM.STAT.x2.PACK16BIT.MAX R7, R4, tmem[UR4]",
    "UVIRTCOUNT.ALLOC.SMPOOL 0x80", "NANOSLEEP.FOO 0x64", "MOV.SPILL R4, R5", "R2UR.FILL UR4, UR5",
])  # fmt: skip
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        run(f"{text}\nEXIT", [])
