"""Tensor memory: allocation, loads and stores in every shape, copies, shifts, and errors."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault, PtxError, UndefinedBits
from ptxdiff.emulator.kernel.tcgen05.loads import PER_COUNT
from ptxdiff.emulator.kernel.tcgen05.memory import TensorMemory
from ptxdiff.emulator.kernel.tcgen05.operands import SWIZZLES, MatrixDescriptor, Swizzle
from tests.support.emulator import tensor_memory_text as tm

COLUMNS = 32


def numbers(count: int) -> np.ndarray:
    """Every cell has a number of its own."""
    return np.arange(1, 128 * count + 1, dtype=np.uint32)


STORE = f"  tcgen05.st.sync.aligned.32x32b.x32.b32 [%own], {tm.registers(10, 32)};\n"
STORED = tm.loaded(32) + STORE + "  tcgen05.wait::st.sync.aligned;\n"
LOADED = "  tcgen05.wait::ld.sync.aligned;\n"


def load(shape: str, num: int, at: str = "%own", packing: str = "", behind: str = "") -> str:
    to = tm.registers(100, PER_COUNT[shape] * num)
    return f"  tcgen05.ld.sync.aligned.{shape}.x{num}{packing}.b32 {to}, [{at}]{behind};\n"


def figure(shape: str, num: int, apart: int = 0) -> np.ndarray:
    """Row and column of each register of each thread, cell by cell from the figures of ISA 9.7.16.2.3.1.

    16x64b: the two cells of a row belong to two threads, of rows 0 to 7 to even ones. 16x128b: the four cells of a row
    belong to four threads, whose next registers are 8 rows below. 16x256b: as 16x128b, with two neighbours in a thread.
    """
    found = np.zeros((32, PER_COUNT[shape] * num, 2), int)
    for n in range(num):
        if shape in ("32x32b", "16x32bx2"):
            for t in range(32):
                found[t, n] = (t, n) if shape == "32x32b" else (t % 16, n + apart * (t >= 16))
        elif shape == "16x64b":
            for row in range(16):
                for half in range(2):
                    found[4 * (row % 8) + 2 * half + (row >= 8), n] = (row, 2 * n + half)
        else:
            each = PER_COUNT[shape] // 2
            for row in range(16):
                for quad in range(4):
                    for neighbour in range(each):
                        register = PER_COUNT[shape] * n + each * (row >= 8) + neighbour
                        found[4 * (row % 8) + quad, register] = (row, 4 * each * n + each * quad + neighbour)
    return found


SHAPES = [("32x32b", 1), ("32x32b", 16), ("16x64b", 1), ("16x64b", 4), ("16x128b", 2), ("16x256b", 1), ("16x256b", 4)]


@pytest.mark.parametrize(
    ("shape", "num", "lower"), [(s, n, low) for s, n in SHAPES for low in ((0,) if s == "32x32b" else (0, 16))]
)
def test_loads(shape: str, num: int, lower: int) -> None:
    count = PER_COUNT[shape] * num
    at = f"  add.s32 %x, %own, {lower << 16};\n"
    kernel = tm.text(STORED + at + load(shape, num, "%x") + LOADED + tm.stored(count, 100), columns=COLUMNS)
    got = tm.run(kernel, numbers(32), np.zeros(128 * count, np.uint32)).reshape(4, 32, count)
    cells = numbers(32).reshape(4, 32, 32)
    place = figure(shape, num)
    np.testing.assert_array_equal(got, cells[:, place[..., 0] + lower, place[..., 1]])


def test_loads_of_two_halves_that_are_apart() -> None:
    kernel = tm.text(STORED + load("16x32bx2", 4, behind=", 20") + LOADED + tm.stored(4, 100), columns=COLUMNS)
    got = tm.run(kernel, numbers(32), np.zeros(512, np.uint32)).reshape(4, 32, 4)
    place = figure("16x32bx2", 4, 20)
    np.testing.assert_array_equal(got, numbers(32).reshape(4, 32, 32)[:, place[..., 0], place[..., 1]])


@pytest.mark.parametrize(("shape", "num"), [("32x32b", 8), ("16x64b", 4), ("16x256b", 2), ("16x128b", 4)])
def test_a_store_writes_the_cells_that_a_load_of_its_shape_reads(shape: str, num: int) -> None:
    """Other cells keep their values."""
    count = PER_COUNT[shape] * num
    store = f"  tcgen05.st.sync.aligned.{shape}.x{num}.b32 [%own], {tm.registers(100, count)};\n"
    add = "".join(
        f"  mov.b32 %r{100 + i}, %r{10 + i};\n  add.s32 %r{100 + i}, %r{100 + i}, 9000;\n" for i in range(count)
    )
    body = STORED + add + store + "  tcgen05.wait::st.sync.aligned;\n" + load("32x32b", 32) + LOADED
    got = tm.run(tm.text(body + tm.stored(32, 100), columns=COLUMNS), numbers(32), np.zeros(4096, np.uint32))
    wanted = numbers(32).reshape(4, 32, 32).copy()
    place = figure(shape, num)
    wanted[:, place[..., 0], place[..., 1]] = numbers(32).reshape(4, 32, 32)[:, :, :count] + 9000
    np.testing.assert_array_equal(got.reshape(4, 32, 32), wanted)


def test_packing() -> None:
    """.pack::16b puts the low halves of two columns into a register, .unpack::16b does the reverse; upper halves are
    undefined.
    """
    body = STORED + load("32x32b", 4, packing=".pack::16b") + LOADED + tm.stored(4, 100)
    got = tm.run(tm.text(body, columns=COLUMNS), numbers(32), np.zeros(512, np.uint32)).reshape(128, 4)
    low = numbers(32).reshape(128, 32)[:, :8] & 0xFFFF
    np.testing.assert_array_equal(got, low[:, ::2] | low[:, 1::2] << 16)
    store = f"  tcgen05.st.sync.aligned.32x32b.x4.unpack::16b.b32 [%own], {tm.registers(10, 4)};\n"
    back = tm.loaded(32) + store + "  tcgen05.wait::st.sync.aligned;\n"
    body = back + load("32x32b", 4, packing=".pack::16b") + LOADED + tm.stored(4, 100)
    got = tm.run(tm.text(body, columns=COLUMNS), numbers(32), np.zeros(512, np.uint32)).reshape(128, 4)
    np.testing.assert_array_equal(got, numbers(32).reshape(128, 32)[:, :4])
    body = back + load("32x32b", 4) + LOADED + tm.stored(4, 100)
    with pytest.raises(UndefinedBits, match="undefined bits reach a store"):
        tm.run(tm.text(body, columns=COLUMNS), numbers(32), np.zeros(512, np.uint32))


# copies -----------------------------------------------------------------------------------------------------------


def copied(shape: str, data: np.ndarray, descriptor: MatrixDescriptor, words: int) -> np.ndarray:
    """All lanes of the columns after a copy; cells that it does not write are zero."""
    zero = "".join(f"  mov.b32 %r{10 + i}, 0;\n" for i in range(32))
    body = zero + STORE + "  tcgen05.wait::st.sync.aligned;\n  bar.sync 0;\n"
    body += f"  mov.b64 %a, {descriptor.code};\n  @%first tcgen05.cp.cta_group::1.{shape} [%base], %a;\n"
    body += tm.waited() + load("32x32b", 8) + LOADED + tm.stored(8, 100)
    octets = data.reshape(-1).view(np.uint8)
    out = tm.run(tm.text(body, len(octets) // 4, COLUMNS), octets.view(np.uint32).copy(), np.zeros(1024, np.uint32))
    return out.reshape(128, 8)[:, :words]


def source(rows: int, words: int, swizzle: Swizzle) -> tuple[np.ndarray, np.ndarray, MatrixDescriptor]:
    """Rows of words, shared memory that holds them as a K-major matrix (ISA 9.7.16.4.1), and its descriptor."""
    matrix = np.arange(1, rows * words + 1, dtype=np.uint32).reshape(rows, words)
    image = np.zeros(4096, np.uint32)
    stride, leading = 8 * swizzle.row, 2048
    for r in range(rows):
        for w in range(words):
            chunk, low = divmod(w, 4)
            byte = r % 8 * swizzle.row + r // 8 * stride + (chunk * (leading if swizzle.row == 16 else 16))
            for bit in range({16: 0, 32: 1, 64: 2, 128: 3}[swizzle.row]):
                byte ^= (byte >> 7 + bit & 1) << 4 + bit
            image[byte // 4 + low] = matrix[r, w]
    return matrix, image, MatrixDescriptor(tm.BASE + tm.DATA, leading, stride, swizzle)


@pytest.mark.parametrize("mode", [0, 2, 4, 6])
@pytest.mark.parametrize(("shape", "rows", "words"), [("128x256b", 128, 8), ("128x128b", 128, 4)])
def test_copies_of_all_lanes(shape: str, rows: int, words: int, mode: int) -> None:
    matrix, image, descriptor = source(rows, words, SWIZZLES[mode])
    np.testing.assert_array_equal(copied(shape, image, descriptor, words), matrix)


def test_copies_to_several_lanes() -> None:
    for shape, rows, words, lanes in (
        ("4x256b", 4, 8, {r: [32 * r] for r in range(4)}),
        ("64x128b.warpx2::02_13", 64, 4, {r: [r, r + 64] for r in range(64)}),
        ("64x128b.warpx2::01_23", 64, 4, {r: [r + 32 * (r >= 32), r + 32 + 32 * (r >= 32)] for r in range(64)}),
        ("32x128b.warpx4", 32, 4, {r: [r, r + 32, r + 64, r + 96] for r in range(32)}),
    ):
        matrix, image, descriptor = source(rows, words, SWIZZLES[0])
        wanted = np.zeros((128, words), np.uint32)
        for row, to in lanes.items():
            wanted[to] = matrix[row]
        np.testing.assert_array_equal(copied(shape, image, descriptor, words), wanted, shape)


@pytest.mark.parametrize(("name", "bits", "up"), [("b4x16_p64", 4, 2), ("b6x16_p32", 6, 0)])
def test_decompression(name: str, bits: int, up: int) -> None:
    _, image, descriptor = source(128, 4, SWIZZLES[0])
    rng = np.random.default_rng(1)
    elements = rng.integers(0, 1 << bits, (128, 16))
    octets = np.full((128, 16), 0xEE, np.uint8)  # padding, which the copy does not read
    for row in range(128):
        whole = sum(int(e) << bits * i for i, e in enumerate(elements[row]))
        octets[row, : 2 * bits] = np.frombuffer(whole.to_bytes(2 * bits, "little"), np.uint8)
    image.reshape(-1, 4)[:128] = octets.view(np.uint32)
    got = copied(f"128x128b.b8x16.{name}", image, descriptor, 4)
    np.testing.assert_array_equal(np.ascontiguousarray(got).view(np.uint8), elements << up)


def test_shift() -> None:
    body = STORED + "  bar.sync 0;\n  @%first tcgen05.shift.cta_group::1.down [%base];\n" + tm.waited()
    body += load("32x32b", 16) + LOADED + tm.stored(16, 100)
    got = tm.run(tm.text(body, columns=COLUMNS), numbers(32), np.zeros(2048, np.uint32)).reshape(128, 16)
    wanted = numbers(32).reshape(128, 32)[:, :16].copy()
    wanted[1:32, :8] = wanted[:31, :8].copy()
    np.testing.assert_array_equal(got, wanted)


# mistakes ---------------------------------------------------------------------------------------------------------

FENCES = "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n  tcgen05.fence::after_thread_sync;\n"
SHIFT = "  @%first tcgen05.shift.cta_group::1.down [%base];\n"
READ = load("32x32b", 8) + LOADED + tm.stored(8, 100)
FREED = tm.FREE.replace("{columns}", "32")
DEALLOC = FREED.partition("\n")[2]


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (STORED.replace("[%own]", "[%own+-8]"), MemoryFault, "column 472 .* which is held by no tcgen05.alloc"),
        (FREED + "  bar.sync 0;\n" + READ, MemoryFault, r"freed by the tcgen05.dealloc in line \d+"),
        (READ, UndefinedBits, "undefined bits reach a store"),
        (tm.loaded(32) + STORE + READ, MemoryFault, "tcgen05.st is under way: tcgen05.wait::st must come first"),
        (STORED + load("32x32b", 8), MemoryFault, "frees .*tcgen05.ld is under way: tcgen05.wait::ld must come first"),
        (STORED + SHIFT + tm.waited() + READ, MemoryFault, "race: thread 0 .* gives tcgen05.shift lane 33"),
        (
            STORED + "  bar.sync 0;\n" + SHIFT + READ,
            MemoryFault,
            r"shift.* in line \d+ still (reads|writes): tcgen05.commit, and a wait for its mbarrier, must come first",
        ),
        (
            STORED + "  bar.sync 0;\n" + SHIFT + tm.waited().partition("wait:")[0] + READ,
            MemoryFault,
            "a wait for the mbarrier at offset 16, to which it is committed, must come first",
        ),
        (STORED + "  bar.sync 0;\n" + SHIFT + tm.waited(""), ExecutionError, "deadlock: .* lacks 1 of 1 arrivals"),
        (
            STORED.replace("[%own]", "[%base]"), MemoryFault,
            "begins at lane 0 of tensor memory; its warp, number 1, begins at lane 32",
        ),
        (
            tm.ALLOCATE.replace("{columns}", "64"), ExecutionError,
            r"allocates columns behind the tcgen05.relinquish_alloc_permit in line \d+",
        ),
    ],
    ids=[
        "out of columns", "freed", "unwritten", "wait st", "wait ld", "barrier", "commit", "wait", "no commit", "lanes",
        "permit",
    ],
)  # fmt: skip
def test_mistakes_are_reported(body: str, kind: type[PtxError], words: str) -> None:
    kernel = tm.text(body, columns=COLUMNS)
    if "race" in words:  # a shift of another warp's rows is not ordered after that warp's stores
        kernel = kernel.replace("shift.cta_group::1.down [%base]", "shift.cta_group::1.down [%base+2097152]")
    with pytest.raises(kind, match=words):
        tm.run(kernel, numbers(32), np.zeros(4096, np.uint32))


def test_columns_that_are_not_freed_are_reported() -> None:
    with pytest.raises(ExecutionError, match=r"ends with 32 columns of tensor memory that no tcgen05.dealloc has"):
        tm.run(tm.text("", columns=COLUMNS, free=""), numbers(1), np.zeros(1, np.uint32))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ("dealloc.cta_group::1.sync.aligned.b32 %base, 32", "dealloc.cta_group::1.sync.aligned.b32 %base, 64"),
            "32 are held",
        ),
        (("[smem], 32", "[smem], 48"), "columns come in 32, 64, 128, 256 or 512, not in 48"),
        (
            ("  ret;", "  @%warp0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %base, 32;\n  ret;"),
            "none are held there since",
        ),
    ],
    ids=["other number", "odd number", "twice"],
)
def test_wrong_numbers_of_columns_are_reported(change: tuple[str, str], words: str) -> None:
    with pytest.raises(ExecutionError, match=words):
        tm.run(tm.text("", columns=COLUMNS).replace(*change), numbers(1), np.zeros(1, np.uint32))


def twice(first: int, second: int) -> str:
    """A kernel that allocates twice."""
    more = f"  @%warp0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem+4], {second};\n"
    allocate = tm.ALLOCATE.replace("  bar.sync 0;", more + "  bar.sync 0;", 1)
    return tm.text("", columns=first, allocate=allocate)


def test_an_allocation_beyond_the_free_columns_is_reported() -> None:
    with pytest.raises(ExecutionError, match="waits for 64 columns of tensor memory; of 512 are held 512 by line"):
        tm.run(twice(512, 64), numbers(1), np.zeros(1, np.uint32))


def test_an_allocation_of_more_columns_than_the_last_one_is_reported() -> None:
    """ISA 9.7.16.7.1: the number must not increase between two allocations of a block."""
    with pytest.raises(ExecutionError, match=r"allocates 64 columns, and its block has allocated 32 in line \d+"):
        tm.run(twice(32, 64), numbers(1), np.zeros(1, np.uint32))


@pytest.mark.parametrize("missing", ["before", "after", ""])
def test_a_kernel_with_fences_needs_both_of_them(missing: str) -> None:
    """A kernel with a fence needs the other one too; kernels without fences, such as Triton's, rely on ptxas."""
    fences = FENCES.replace(f"  tcgen05.fence::{missing}_thread_sync;\n", "")
    body = STORED + fences + SHIFT.replace("[%base]", "[%base+2097152]") + tm.waited()
    body += "  tcgen05.fence::after_thread_sync;\n" + READ
    kernel = tm.text(body, columns=COLUMNS)
    if not missing:
        tm.run(kernel, numbers(32), np.zeros(1024, np.uint32))
        return
    with pytest.raises(MemoryFault, match=f"no tcgen05.fence::{missing}_thread_sync lies"):
        tm.run(kernel, numbers(32), np.zeros(1024, np.uint32))


@pytest.mark.parametrize("taken", ["words", "undefined"])
def test_kept_values_are_forgotten_when_anybody_may_change_cells(taken: str) -> None:
    memory, values = TensorMemory(1), np.ones((1, 128, 8), np.uint32)
    memory.keep(values, 0, 1, "f32")
    assert memory.kept(0, 1, "f32") is values
    assert memory.kept(0, 1, "f16") is None
    getattr(memory, taken)[:8] = 0
    assert memory.kept(0, 1, "f32") is None
