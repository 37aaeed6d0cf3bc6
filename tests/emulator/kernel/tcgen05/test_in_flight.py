"""Which tensor core operations of one thread run in order without a wait (ISA 9.7.16.6.2), and which are a race."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.errors import MemoryFault
from tests.support.emulator import tensor_memory_text as tm
from tests.support.emulator.tensor_work_text import ELSEWHERE, MATRIX, SMALL, A, D, mma


def cp(at: int, shape: str = "128x256b") -> str:
    return f"  @%first tcgen05.cp.cta_group::1.{shape} [%base+{at}], %a;\n"


def shift(at: int) -> str:
    return f"  @%first tcgen05.shift.cta_group::1.down [%base+{at}];\n"


def ran(*lines: str) -> None:
    """Run operations of one thread, and then wait for all of them."""
    body = f"  mov.b64 %a, {MATRIX};\n  mov.b32 %r280, 1;\n  mov.b32 %r281, 0;\n"
    body += f"{tm.loaded(64)}  tcgen05.st.sync.aligned.32x32b.x64.b32 [%own], {tm.registers(10, 64)};\n"
    body += "  tcgen05.wait::st.sync.aligned;\n  bar.sync 0;\n" + "".join(lines) + tm.waited()
    tm.run(tm.text(body, 2048, columns=64), np.zeros(8192, np.uint32), np.zeros(1, np.uint32))


WAITED = """  mov.u32 %r0, smem;
  add.s32 %r0, %r0, 24;
  @%first mbarrier.init.shared::cta.b64 [%r0], 1;
  bar.sync 0;
  @%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r0];
earlier:
  mbarrier.try_wait.parity.shared::cta.b64 %done, [%r0], 0;
  @!%done bra earlier;
"""
MASK = ", {%r280, %r281, %r281, %r281}"
ORDERED = {
    "mma, mma of one accumulator": (mma(), mma(enable=True), mma(enable=True, mask=MASK), mma(enable=True)),
    "mma, mma elsewhere": (mma(), mma(ELSEWHERE, product=SMALL)),
    "mma reads a, mma writes": (mma(ELSEWHERE, A), mma(A, product=SMALL)),
    "mma reads a, cp writes": (mma(D, A), cp(A)),
    "mma reads a, shift writes": (mma(D, A), shift(A)),
    "cp, mma reads a": (cp(A), mma(D, A)),
    "4 rows, mma reads a": (cp(A, "4x256b"), mma(D, A)),
    "shift, mma reads a": (shift(A), mma(D, A)),
    "shift, cp of 4 rows": (shift(A), cp(A, "4x256b")),
    "cp, mma reads a, cp writes": (cp(A), mma(D, A), cp(A), mma(D, A, enable=True)),
}
UNORDERED = {
    "mma, mma of another shape": (mma(), mma(product=SMALL)),
    "mma, mma of another address": (mma(), mma(8)),
    "mma, mma reads it as a": (mma(A), mma(D, A)),
    "mma, cp": (mma(), cp(D)),
    "mma, shift": (mma(), shift(D)),
    "cp, cp": (cp(A), cp(A)),
    "cp, mma accumulates": (cp(D), mma(enable=True)),
    "cp, shift": (cp(A), shift(A)),
    "4 rows, cp": (cp(A, "4x256b"), cp(A)),
    "shift, shift": (shift(A), shift(A)),
    "shift, cp": (shift(A), cp(A)),
    "shift, mma writes": (shift(D), mma()),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("lines", ORDERED.values(), ids=ORDERED)
def test_pairs_in_the_list_need_no_wait(lines: tuple[str, ...]) -> None:
    ran(*lines)


@pytest.mark.parametrize("lines", UNORDERED.values(), ids=UNORDERED)
def test_other_pairs_need_one(lines: tuple[str, ...]) -> None:
    with pytest.raises(MemoryFault, match=r"still (writes|reads): tcgen05.commit, and a wait for its mbarrier, must"):
        ran(*lines)
    ran(lines[0], WAITED, *lines[1:])


def test_a_commit_without_a_wait_orders_nothing() -> None:
    commit = WAITED.partition("earlier:")[0]
    with pytest.raises(MemoryFault, match="a wait for the mbarrier at offset 24, to which it is committed, must come"):
        ran(mma(), commit, mma(product=SMALL))


TWO = """  mov.u32 %r0, smem;
  add.s32 %r0, %r0, 24;
  add.s32 %r2, %r0, 8;
  @%first mbarrier.init.shared::cta.b64 [%r0], 1;
  @%first mbarrier.init.shared::cta.b64 [%r2], 1;
  bar.sync 0;
"""
AWAIT = """{at}:
  mbarrier.try_wait.parity.shared::cta.b64 %done, [{barrier}], 0;
  @!%done bra {at};
"""
LOADED = "  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r10}, [%own+32];\n  tcgen05.wait::ld.sync.aligned;\n"


def test_a_commit_completes_no_later_operation() -> None:
    """Both commits arrive at one moment, and a thread that has waited for the first knows nothing of the second."""
    later = tm.COMMIT.replace("%r0", "%r2")
    both = (TWO, mma(), f"  {tm.COMMIT}\n", mma(ELSEWHERE, product=SMALL), f"  {later}\n")
    first, second = AWAIT.format(at="one", barrier="%r0"), AWAIT.format(at="two", barrier="%r2")
    ran(*both, first, second, LOADED)
    with pytest.raises(MemoryFault, match=r"race: .* which a tcgen05 operation of thread 0 wrote"):
        ran(*both, first, LOADED)
