"""A campaign of refusals: emulator and assemblers should agree on whether a mechanically changed program is legal.

The emulator's checks and every assembler (the judges) get each changed program. Disagreements are grouped by the kind
of change, by who accepts and who refuses the program, and by the text of the refusal. The first program of each group
is kept. Crashes and hangs of an assembler, and internal errors of the emulator, form their own groups. A journal lets a
stopped campaign continue.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ptxdiff.emulator import InternalError, PtxError, load_kernel
from ptxdiff.fuzz.assemblers import Ptxas, PtxasResult
from ptxdiff.fuzz.illegal import Illegal, illegal
from ptxdiff.fuzz.journal import CampaignJournal
from ptxdiff.triton.from_ptx import header_fault, other_target
from ptxdiff.triton.ptx_text import without_comments

EMULATOR = "the emulator"
CHUNK = 8


@dataclass(frozen=True)
class RefusalPlan:
    """The plan of a campaign, as `FuzzPlan`. avoid: signatures of known groups."""

    seed: str
    target: str
    capability: int
    assemblers: tuple[Ptxas, ...]
    weights: Mapping[str, float]
    avoid: frozenset[str] = frozenset()

    def identity(self) -> dict[str, Any]:
        """The values that must be the same to continue a journal."""
        return {"refusals": self.seed, "target": self.target, "weights": dict(self.weights),
                "assemblers": [a.label for a in self.assemblers]}  # fmt: skip


@dataclass(frozen=True)
class RefusalGroup:
    """Changed programs on which the judges disagree; seed, change and text are those of the first.

    takes, refuses: the judges that accept and refuse it. words: the error texts of those that refuse or fail. seen: the
    number of programs in the group.
    """

    signature: str
    seed: str
    kind: str
    change: str
    takes: tuple[str, ...]
    refuses: tuple[str, ...]
    words: tuple[str, ...]
    text: str
    seen: int = 1


@dataclass
class RefusalsTried:
    """The progress of a campaign. refused: programs that all judges refuse. known: disagreements of groups in
    `avoid`."""

    chunks: set[int] = field(default_factory=set)
    programs: int = 0
    refused: int = 0
    known: int = 0
    groups: dict[str, RefusalGroup] = field(default_factory=dict)


def tried(plan: RefusalPlan, number: int) -> tuple[int, int, list[RefusalGroup]]:
    """Make and judge a chunk of programs. Returns their number, the number that all judges refuse, and
    disagreements."""
    found, refused = [], 0
    for place in range(CHUNK):
        made = illegal(f"{plan.seed}/{number * CHUNK + place}", plan.capability, plan.weights, plan.target)
        answers = {EMULATOR: emulator_refusal(made.text, plan.target)}
        for one in plan.assemblers:
            answers[one.label] = _word(one.assemble(made.text, plan.target))
        refused += all(w is not None for w in answers.values())
        if (one_found := disagreement(made, answers)) is not None:
            found.append(one_found)
    return CHUNK, refused, found


def emulator_refusal(text: str, target: str) -> str | None:
    """The reason why the emulator refuses a module on a target; None if it would run its kernel."""
    try:
        code = without_comments(text)
        if words := other_target(code, target) or header_fault(code):
            return words
        load_kernel.__wrapped__(text)
    except InternalError as error:
        return f"{FAILS}: {error.message}"
    except PtxError as error:
        return error.message
    return None


FAILS = "fails"
"""The prefix of the answer of a judge that failed: it neither accepts nor refuses the program."""


def _word(done: PtxasResult) -> str | None:
    if done.ended in ("crashed", "hung"):
        return f"{FAILS}: {done.ended}: {done.words}"
    if done.ended == "assembled":
        return None
    lines = [line for line in done.words.splitlines() if re.search(r"error|fatal", line)]
    return (lines or [done.words])[0].split(": ", 1)[-1].strip()


def disagreement(made: Illegal, answers: Mapping[str, str | None]) -> RefusalGroup | None:
    """The disagreement on a program, or the failure of a judge; None if all agree.

    answers: for each judge the reason why it refuses the program; None if it accepts it.
    """
    takes = tuple(n for n, w in answers.items() if w is None)
    refuses = {n: w for n, w in answers.items() if w is not None}
    failing = {n: w for n, w in refuses.items() if w.startswith(FAILS)}
    if not failing and not (takes and refuses):
        return None
    words = tuple((failing or refuses).values())
    who = f"{', '.join(failing)} fails" if failing else f"{', '.join(takes)}: yes; {', '.join(refuses)}: no"
    signature = f"{made.kind} | {who} | {_general(words[0])}".strip()
    return RefusalGroup(
        signature, made.seed, made.kind, made.change, takes, tuple(failing or refuses), words, made.text
    )


def _general(words: str) -> str:
    """An error text on one line, with the program's names, registers and numbers replaced."""
    words = re.sub(r"'[^']*'", "'…'", " ".join(words.split()))
    return re.sub(r"[%$]?\b[\w$]*\d[\w$]*\b", "N", words)[:120]


class RefusalCampaign:
    """Runs a plan. journal: a file with a line for each finished chunk."""

    def __init__(self, plan: RefusalPlan, journal: Path, *, jobs: int = 1) -> None:
        self.plan, self.jobs = plan, jobs
        self.state = RefusalsTried()
        self._journal = CampaignJournal(journal, plan.identity())
        for line in self._journal.earlier:
            self._count(line["chunk"], line["programs"], line["refused"], [_group(fields) for fields in line["groups"]])

    def run(
        self, seconds: float, most: int | None = None, progress: Callable[[RefusalsTried], None] = lambda _: None
    ) -> RefusalsTried:
        """Continue for some seconds, or until `most` programs were tried in all. progress: called after some chunks."""
        end = time.monotonic() + seconds
        with ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn"), initializer=_alone) as pool:
            number = 0
            while time.monotonic() < end and (most is None or self.state.programs < most):
                wanted: list[int] = []
                left = 2 * self.jobs if most is None else -(-(most - self.state.programs) // CHUNK)
                while len(wanted) < min(left, 2 * self.jobs):
                    if number not in self.state.chunks:
                        wanted.append(number)
                    number += 1
                for done, result in zip(wanted, pool.map(tried, [self.plan] * len(wanted), wanted), strict=True):
                    self._take(done, *result)
                progress(self.state)
        return self.state

    def _take(self, number: int, programs: int, refused: int, found: Sequence[RefusalGroup]) -> None:
        self._count(number, programs, refused, found)
        groups = [asdict(g) for g in found]
        self._journal.note({"chunk": number, "programs": programs, "refused": refused, "groups": groups})

    def _count(self, number: int, programs: int, refused: int, found: Sequence[RefusalGroup]) -> None:
        for one in found:
            if one.signature in self.plan.avoid:
                self.state.known += 1
                continue
            before = self.state.groups.get(one.signature)
            self.state.groups[one.signature] = one if before is None else replace(before, seen=before.seen + 1)
        self.state.programs += programs
        self.state.refused += refused
        self.state.chunks.add(number)


def _group(fields: Mapping[str, Any]) -> RefusalGroup:
    given: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()}
    return RefusalGroup(**given)


def write_groups(folder: Path, groups: Sequence[RefusalGroup]) -> list[Path]:
    """Write the first program of each group, most frequent first, and `refusals.txt` with all signatures.

    With that file as `--avoid` the next campaign ignores these groups.
    """
    ordered = sorted(groups, key=lambda g: (-g.seen, g.signature))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "refusals.txt").write_text("".join(f"{g.signature}\n" for g in ordered), encoding="utf-8")
    places = []
    for number, group in enumerate(ordered, 1):
        place = folder / re.sub(r"\W+", "-", f"refusal-{number:02}-{group.kind}")
        place.mkdir(exist_ok=True)
        (place / "program.ptx").write_text(group.text, encoding="utf-8")
        (place / "refusal.json").write_text(json.dumps(asdict(group), indent=1) + "\n", encoding="utf-8")
        places.append(place)
    return places


def _alone() -> None:
    """Use one thread in each process, because there is a process for each core."""
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
