"""Orders of threads that machine code does not show: the backend passes no wrong program, whatever it shows.

ptxas writes no `.acquire`, no `.relaxed` and no scope for LDS, STS and ATOMS, and makes a loop of ATOMS.CAST of an
atomic addition of floats. Machine code orders a whole warp where one lane acquires. So the backend runs the PTX first,
whose emulator tells all of it apart.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ptxdiff
from ptxdiff.backends import create
from ptxdiff.jobs import Job, Outcome, Setup
from ptxdiff.references.formats import U32

KERNEL = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
 .shared .align 4 .b32 data[64]; .shared .align 4 .b32 flag; .shared .align 4 .f32 total;
 .reg .b64 %o, %i; .reg .b32 %t, %x, %y; .reg .pred %p, %q, %d; .reg .f32 %f, %g;
 ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %i, %t, 4; add.u64 %o, %o, %i;
 setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [flag], 0; @%p st.shared.f32 [total], 0f00000000; bar.sync 0;
 mov.b32 %x, 0;
 BODY
 st.global.u32 [%o], %x; ret;
}
"""
LANE = """setp.ge.u32 %q, %t, 32; @%q bra PRODUCE; setp.ne.u32 %d, %t, 0; @%d bra JOIN;
 LOOP: ld.acquire.cta.shared.u32 %y, [flag]; setp.eq.u32 %d, %y, 0; @%d bra LOOP;
 JOIN: {sync} ld.shared.u32 %x, [data]; bra DONE;
 PRODUCE: setp.ne.u32 %d, %t, 32; @%d bra DONE; st.shared.u32 [data], 5; st.release.cta.shared.u32 [flag], 1;
 DONE:"""
"""Warp 0 reads what thread 32 wrote; thread 0 alone waits for its flag."""
FLAG = """setp.eq.u32 %q, %t, 32; @!%q bra NEXT;
 st.shared.u32 [data], 5; atom.{release}.cta.shared.exch.b32 %y, [flag], 1;
 NEXT: @!%p bra DONE; LOOP: atom.{acquire}.cta.shared.or.b32 %y, [flag], 0; setp.eq.u32 %d, %y, 0; @%d bra LOOP;
 ld.shared.u32 %x, [data]; DONE:"""
FLOAT = """setp.eq.u32 %q, %t, 32; @!%q bra NEXT;
 st.shared.u32 [data], 5; atom.{release}.cta.shared.add.f32 %g, [total], 0f3F800000;
 NEXT: @!%p bra DONE; LOOP: atom.{acquire}.cta.shared.add.f32 %g, [total], 0f00000000;
 setp.eq.f32 %d, %g, 0f00000000; @%d bra LOOP; ld.shared.u32 %x, [data]; DONE:"""
SUM = "atom.shared.add.f32 %g, [total], 0f3F800000; {sync} @%p ld.shared.u32 %x, [total];"
WRONG = {
    "another lane reads": LANE.format(sync=""),
    "both relaxed": FLAG.format(release="relaxed", acquire="relaxed"),
    "no release": FLAG.format(release="relaxed", acquire="acquire"),
    "no acquire": FLAG.format(release="release", acquire="relaxed"),
    "a float flag, both relaxed": FLOAT.format(release="relaxed", acquire="relaxed"),
    "a float flag, no acquire": FLOAT.format(release="release", acquire="relaxed"),
    "a sum of floats without a barrier": SUM.format(sync=""),
}
RIGHT = {
    "a flag": (FLAG.format(release="release", acquire="acquire"), 5),
    "a sum of floats and a barrier": (SUM.format(sync="bar.sync 0;"), 0x42800000),
}
UNSETTLED = {
    "the lanes meet behind the one that waits": LANE.format(sync="bar.warp.sync -1;"),
    "a float flag": FLOAT.format(release="release", acquire="acquire"),
}
"""Right programs whose machine code shows no order: a strong store is a plain STS, and ptxas writes no MEMBAR before a
loop of ATOMS.CAST."""


def ran(body: str, backend: str) -> Outcome:
    made = create(backend)
    if words := made.unavailable("sm_90a"):
        pytest.skip(words)
    case = ptxdiff.Case(
        inputs={}, outputs={"out": U32["N"]}, reference=lambda: None, sizes=[{"N": 64}],
        variants={"k": ptxdiff.ptx(KERNEL.replace("BODY", body), grid=1, block=64, parameters=["out"])},
    )  # fmt: skip
    return made.run(Job(case, "case", Path(__file__), "k", case.variants["k"], "sm_90a", Setup(sizes={"N": 64}), {}))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_has_no_result_of_machine_code(name: str) -> None:
    assert "race" in ran(WRONG[name], "emulator").findings[0]
    outcome = ran(WRONG[name], "sass")
    assert outcome.status == "not run"
    assert "the PTX has no bits to compare machine code with" in outcome.words
    assert "race" in outcome.words


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", RIGHT)
def test_the_right_program_passes(name: str) -> None:
    body, first = RIGHT[name]
    for backend in ("emulator", "sass"):
        outcome = ran(body, backend)
        assert (outcome.status, outcome.findings) == ("ran", ()), outcome.words
        assert np.asarray(outcome.outputs["out"])[0] == first


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", UNSETTLED)
def test_a_right_program_whose_order_does_not_show_is_unsettled(name: str) -> None:
    """Never a failure, and nobody is accused."""
    right = ran(UNSETTLED[name], "emulator")
    assert (right.status, right.findings) == ("ran", ())
    outcome = ran(UNSETTLED[name], "sass")
    assert outcome.status == "not run"
    assert outcome.words.startswith("unsettled: race")
