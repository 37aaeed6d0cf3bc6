"""What random programs teach of machine instructions without a row."""

from __future__ import annotations

import json

from ptxdiff.conformance import taught
from ptxdiff.fuzz.lessons import move_lessons


def test_the_ledger_of_moves_is_of_these_steps() -> None:
    """A step that changed since is not believed, and no machine code that has it accuses ptxas."""
    lessons, differing = move_lessons("sm_90a", programs=32)
    assert differing == []
    entries = [json.loads(line) for line in taught.MOVES.read_text().splitlines()]
    known = {e["form"]: e["digest"] for e in entries if e["target"] == "sm_90a"}
    stale = {form for form, digest in lessons.agreed if known.get(form, digest) != digest}
    assert stale == set(), "teach them again: ptxdiff conformance --teach programs --write"
    assert {"RET.REL.NODEC R,label", "BSYNC B", "LDS R,[R]"} <= {form for form, _ in lessons.agreed} & known.keys()
