"""Products of several blocks are computed at once, and a mistake of one block alone is still an error.

In every kernel here three blocks issue the same products. What is wrong is wrong in the last block only, in one element
or one warp where that is possible, so that a check of the first block, or of all blocks together, would pass.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.errors import MemoryFault, PtxError, UndefinedBits
from ptxdiff.emulator.kernel import run
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.grid import KernelGrid
from ptxdiff.emulator.kernel.tcgen05 import products
from ptxdiff.emulator.kernel.tcgen05.cell_access import Rows
from ptxdiff.emulator.kernel.tcgen05.in_flight import TensorWork
from ptxdiff.emulator.limits import Deadline
from tests.emulator.kernel.tcgen05 import test_products
from tests.support.emulator import tensor_memory_text as tm
from tests.support.emulator.tensor_work_text import MATRIX, A, D, mma

BLOCKS = 3
HEAD = f"""  .reg .pred %last, %one, %issuer;
  .reg .b32 %c;
  mov.u32 %c, %ctaid.x;
  setp.eq.u32 %last, %c, {BLOCKS - 1};
  setp.eq.and.u32 %one, %t, 40, %last;
  setp.eq.and.u32 %issuer, %t, 0, %last;
  mov.b64 %a, {MATRIX};
  mov.b64 %b, {MATRIX};
"""
STORE = f"tcgen05.st.sync.aligned.32x32b.x64.b32 [%own], {tm.registers(10, 64)};\n"
LOAD = f"tcgen05.ld.sync.aligned.32x32b.x64.b32 {tm.registers(10, 64)}, [%own];\n"
WORD = f"  @%one st.shared.b32 [smem+{tm.DATA + 132}], 7;\n"
STORED, MET = "  tcgen05.wait::st.sync.aligned;\n", "  bar.sync 0;\n"


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each product instruction that several blocks of a frame execute, whether it was computed at once."""
    monkeypatch.setattr(run, "cores", lambda: 1)
    answers: list[bool] = []
    own = products._together

    def spied(*arguments: object) -> bool:
        answers.append(own(*arguments))  # type: ignore[arg-type]
        return answers[-1]

    monkeypatch.setattr(products, "_together", spied)
    return answers


def ran(body: str, words: int = 2048, blocks: int = BLOCKS, threads: str = "") -> np.ndarray:
    kernel = tm.text(HEAD + body, words, columns=64)
    kernel = kernel.replace(".reqntid 128", threads) if threads else kernel
    out = np.zeros(8192, np.uint32)
    given = [run.Buffer(np.full(16384, 0x3C003C00, np.uint32), "input"), run.Buffer(out, "out")]
    run.run_kernel(run.load_kernel(kernel), given, (blocks,), shared_bytes=65536)
    return out


def body_of(mistake: str = "", store: str = "  " + STORE, product: str = mma(enable=True)) -> str:
    return tm.loaded(64) + store + STORED + MET + mistake + product + mma(enable=True) + tm.waited()


MISTAKES = {
    "a thread writes one word of the matrix": (WORD, "race: the tcgen05.mma of .* reads shared memory at offset 1152"),
    "a copy to the matrix is under way": (
        f"  @%one cp.async.ca.shared.global [smem+{tm.DATA + 132}], [%in], 4;\n  fence.proxy.async.shared::cta;\n{MET}",
        "gives tcgen05.mma shared memory at offset .* an asynchronous copy is under way",
    ),
    "no fence follows one word of the matrix": (WORD + MET, "fence.proxy.async lies between"),
    "the issuer does not wait for the fence": (
        WORD + MET + "  @%one fence.proxy.async.shared::cta;\n", "fence.proxy.async lies between",
    ),
    "a copy to d is under way": (f"  @%issuer tcgen05.cp.cta_group::1.128x256b [%base+{D}], %a;\n", "still writes"),
    "a store to d is not waited for": (f"  @%last {STORE}", "tcgen05.wait::st must come first"),
    "a load of d is not waited for": (f"  @%last {LOAD}", "tcgen05.wait::ld must come first"),
    "a store to d has no barrier behind it": (f"  @%last {STORE}  @%last{STORED}", "no barrier lies between"),
    "a load of d has no barrier behind it": (
        f"  @%last {LOAD}  @%last tcgen05.wait::ld.sync.aligned;\n", "no barrier lies between",
    ),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize(("mistake", "words"), MISTAKES.values(), ids=MISTAKES)
@pytest.mark.parametrize("of", ["d", "a"])
def test_a_mistake_of_the_last_block(together: list[bool], mistake: str, words: str, of: str) -> None:
    """of: the product accumulates into d, or also reads a from cells beside it."""
    product = mma(enable=True) if of == "d" else mma(D, A, enable=True)
    with pytest.raises(PtxError, match=words) as error:
        ran(body_of(mistake, product=product))
    assert "(2, 0, 0)" in error.value.message
    assert together == [False]
    together.clear()
    repaired = (
        "  cp.async.wait_all;\n  fence.proxy.async.shared::cta;\n" + STORED + "  tcgen05.wait::ld.sync.aligned;\n" + MET
    )
    if "tcgen05.cp" not in mistake:
        ran(body_of(mistake + repaired, product=product))
        assert together == [True, True]


def test_an_accumulator_that_one_block_never_wrote(together: list[bool]) -> None:
    with pytest.raises(PtxError, match=r"takes d from .* was never written") as error:
        ran(body_of(store="  @!%last " + STORE))
    assert "(2, 0, 0)" in error.value.message
    assert together == [False]


def test_an_undefined_byte_of_a_matrix_makes_results_undefined(together: list[bool]) -> None:
    read = "  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r10}, [%own];\n  tcgen05.wait::ld.sync.aligned;\n"
    product = tm.loaded(64) + "  " + STORE + STORED + MET + mma(enable=True) + tm.waited() + read + tm.stored(1)
    ran(product)
    assert together == [True]
    together.clear()
    with pytest.raises(UndefinedBits):
        ran(product, words=8)
    assert not any(together)


@pytest.mark.parametrize("what", ["st", "ld"])
def test_two_warps_of_a_block_at_the_same_cells(together: list[bool], what: str) -> None:
    """Warps 1 and 5 have the same quarter of the lanes: their stores in one instruction race, their loads do not."""
    fill = "  setp.lt.u32 %p0, %t, 128;\n  and.b32 %own, %warp, 3;\n  shl.b32 %own, %own, 21;\n"
    fill += f"  add.s32 %own, %own, %base;\n{tm.loaded(64)}  @%p0 {STORE}{STORED}{MET}"
    body = fill + f"  {STORE if what == 'st' else LOAD}  tcgen05.wait::{what}.sync.aligned;\n"
    if what == "st":
        with pytest.raises(PtxError, match=r"of which a tcgen05\.st is under way"):
            ran(body, threads=".reqntid 256")
    else:
        ran(body, threads=".reqntid 256")


DENSE = [p for p in test_products.PRODUCTS if not p.ws and p.kind != "i8"]


@pytest.mark.sample(4)
@pytest.mark.parametrize("product", DENSE, ids=lambda p: f"{p.kind}-{p.a}-{p.d}-{p.m}-{p.across}-{p.swizzle}")
def test_products_at_once_have_the_bits_of_one(
    together: list[bool], product: test_products.Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = test_products.drawn(product, 3)
    cells = np.random.default_rng(4).integers(0, 1 << 32, (128, 64), np.uint32)
    monkeypatch.setattr(tm, "BLOCKS", 1)
    alone = test_products.ran(product, a, b, cells, enable=1)
    assert together == [False]
    monkeypatch.setattr(tm, "BLOCKS", BLOCKS)
    np.testing.assert_array_equal(alone, test_products.ran(product, a, b, cells, enable=1))
    assert together == [False, True]


def test_compiled_checks_suspect_all_that_the_checks_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """On random records of cells: whatever `refuse` refuses is suspected, and most of what is right is not."""
    kernel = run.load_kernel(tm.text(HEAD + body_of(), 2048, columns=64))

    def name(*arguments: object) -> None:
        raise MemoryFault("an operation is under way")

    monkeypatch.setattr(TensorWork, "_name_work", name)
    rng, refused, passed = np.random.default_rng(8), 0, 0
    for trial in range(200):
        buffers = [run.Buffer(np.zeros(64, np.uint32), "input"), run.Buffer(np.zeros(64, np.uint32), "out")]
        grid = KernelGrid(kernel, buffers, (2, 1, 1), (128, 1, 1), 4096, True, Deadline(None))
        frame = KernelFrame(grid, 0, 2)
        tensor, memory, order = frame.tensor, frame.tensor.memory, frame.order
        tensor.fast = False
        memory.split[:] = 1  # the records below are by cell
        memory.open[:, :8] = True
        for _ in range(int(rng.integers(0, 4))):
            order.tick()
            block = int(rng.integers(2))
            if rng.random() < 0.6:
                order.block_barriers(np.arange(256) // 128 == block)
            some = block * 65536 + np.arange(4) + 512 * int(rng.integers(2))
            who = int(rng.choice([0, 1, 3, 4096, 4100]))
            if rng.random() < 0.5:
                memory.note_write(some, who, order.clock)
            else:
                memory.note_read(some, who, order.clock, 0)
        number = int(rng.integers(2)) * 65536 + int(rng.integers(4)) + 512 * int(rng.integers(2))
        match rng.integers(8):
            case 0:
                memory.storing[number] = int(rng.integers(1, 4))
            case 1:
                memory.loading[number] = 1
            case 2:
                memory.busy[number], memory.writer[number] = 1, 4100
            case 3:
                memory.being_read[number], memory.reader[number] = 1, 4100
            case 4:
                memory.open[number // 65536, number % 512] = False
        block, warp, cores, writes = (int(rng.integers(n)) for n in (2, 4, 2, 2))
        lane = block * 128 + 32 * warp
        cells = block * 65536 + np.arange(4) + 512 * int(rng.integers(2))
        step = kernel.program.steps[0]
        try:
            tensor.refuse(step, lane, cells, "accesses", writes=bool(writes), cores=bool(cores))
            wrong = False
        except PtxError:
            wrong = True
        tensor.fast = True
        suspect = tensor.suspect(np.array([lane]), Rows.of(cells[None]), writes=bool(writes), cores=bool(cores))
        assert suspect or not wrong, trial
        refused, passed = refused + wrong, passed + (not suspect)
    assert refused > 30
    assert passed > 50
