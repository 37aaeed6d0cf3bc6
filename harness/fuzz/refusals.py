"""A campaign of refusals: programs with one mechanical change, on which emulator and assemblers should agree.

Each changed program is given to the emulator's checks and to every assembler. A disagreement is grouped with others by
the change, who takes it and who refuses it, and the words of the refusal; the first of each group is kept. A crash or
hang of an assembler, and a fault of the emulator itself, is a group of its own. A journal lets a campaign go on.
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

from harness.fuzz.assemblers import Ptxas, PtxasResult
from harness.fuzz.illegal import Illegal, illegal
from harness.fuzz.journal import CampaignJournal
from harness.ptx import PtxError
from harness.ptx.errors import InternalError
from harness.ptx.kernel.load import load_kernel
from harness.triton.given import header_fault, other_target
from harness.triton.ptxtext import without_comments

EMULATOR = "the emulator"
CHUNK = 8


@dataclass(frozen=True)
class RefusalPlan:
    """What a campaign tries: as `FuzzPlan`, with the signatures of groups that are known in `avoid`."""

    seed: str
    target: str
    capability: int
    assemblers: tuple[Ptxas, ...]
    weights: Mapping[str, float]
    avoid: frozenset[str] = frozenset()

    def identity(self) -> dict[str, Any]:
        """What must be the same for a journal to go on."""
        return {"refusals": self.seed, "target": self.target, "weights": dict(self.weights),
                "assemblers": [a.label for a in self.assemblers]}  # fmt: skip


@dataclass(frozen=True)
class RefusalGroup:
    """A changed program on which the judges differ. takes, refuses: who does. words: of each that refuses or fails."""

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
    """How far a campaign is. known: disagreements of groups that `avoid` names."""

    chunks: set[int] = field(default_factory=set)
    programs: int = 0
    refused: int = 0
    known: int = 0
    groups: dict[str, RefusalGroup] = field(default_factory=dict)


def tried(plan: RefusalPlan, number: int) -> tuple[int, int, list[RefusalGroup]]:
    """Make and judge a chunk of programs: how many, how many all refuse, and the disagreements."""
    found, refused = [], 0
    for place in range(CHUNK):
        made = illegal(f"{plan.seed}/{number * CHUNK + place}", plan.capability, plan.weights, plan.target)
        said = {EMULATOR: emulators_word(made.text, plan.target)}
        for one in plan.assemblers:
            said[one.label] = _word(one.assemble(made.text, plan.target))
        refused += all(w is not None for w in said.values())
        if (one_found := disagreement(made, said)) is not None:
            found.append(one_found)
    return CHUNK, refused, found


def emulators_word(text: str, target: str) -> str | None:
    """Why the emulator refuses a module on a target; None where it would run its kernel."""
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
"""What the word of a judge begins with that neither takes nor refuses a program."""


def _word(done: PtxasResult) -> str | None:
    if done.ended in ("crashed", "hung"):
        return f"{FAILS}: {done.ended}: {done.words}"
    if done.ended == "assembled":
        return None
    lines = [line for line in done.words.splitlines() if re.search(r"error|fatal", line)]
    return (lines or [done.words])[0].split(": ", 1)[-1].strip()


def disagreement(made: Illegal, said: Mapping[str, str | None]) -> RefusalGroup | None:
    """Where the judges differ, or one fails; None where all agree. said: why each refuses, None where it takes it."""
    takes = tuple(n for n, w in said.items() if w is None)
    refuses = {n: w for n, w in said.items() if w is not None}
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
    """Words without what is a program's own: quoted names, registers and numbers. One line."""
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
        self, seconds: float, most: int | None = None, tell: Callable[[RefusalsTried], None] = lambda _: None
    ) -> RefusalsTried:
        """Go on for some seconds, or until `most` programs were tried in all."""
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
                tell(self.state)
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
    """Write the first program of each group, seen most often first, and `refusals.txt` with all signatures.

    That file is what `--avoid` takes, so that the next campaign finds other ones.
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
    """One thread a process: there is one for each core already."""
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
