"""Gathers results for reports: rows (a case's variant), cells (a row on a target), groups of failures.

How several results become one cell:

- The worst state wins, in the order of `STATES`: an error before a failure before an expected failure before a pass.
  `unsupported` and `not run` show only if a cell has no other state.
- A pass of the assembler alone means that the code assembles; its bits are unknown. That is a state of its own.
- Each pack and context of a cell has the strongest evidence of its backends. A cell shows the strongest evidence of its
  packs and contexts, and also the weakest if it differs.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from ptxdiff.records import CaseInfo, Offender, Proof, Result, RunRecords, Split, VariantInfo, splits
from ptxdiff.records.causes import blocks, cause_in_words, cause_of, shown_first
from ptxdiff.records.history_facts import RANK, STRENGTH, state_of


@dataclass(frozen=True)
class State:
    """The state that a cell shows. The symbol and the word are each clear without colour."""

    name: str
    symbol: str
    word: str
    meaning: str

    @property
    def slug(self) -> str:
        """The name as a CSS class."""
        return self.name.replace(" ", "-")


STATES: dict[str, State] = {
    s.name: s
    for s in (
        State("error", "⚠", "error", "cannot run as it is written"),
        State("fail", "✗", "fail", "ran, and gives wrong bits"),
        State("expected", "⊗", "expected failure", "fails as the case declares, with the diagnosis reproduced"),
        State("pass", "✓", "pass", "ran, and its results meet the policy"),
        State("assembled", "◇", "assembles", "compiles and assembles; nothing was executed"),
        State("unsupported", "⊘", "unsupported", "the target lacks it, as the case declares"),
        State("not run", "○", "not run", "could not run here, so nothing is known"),
        State("absent", "·", "no record", "not part of this run"),
    )
}


@dataclass(frozen=True)
class Evidence:
    """The evidence of a pass."""

    name: str
    symbol: str
    word: str
    meaning: str


EVIDENCE: dict[str, Evidence] = {
    e.name: e
    for e in (
        Evidence("hardware", "■", "hardware", "ran on the real device"),
        Evidence("confirmed", "◧", "confirmed", "emulated; each instruction was confirmed on hardware"),
        Evidence("specification", "□", "specification", "emulated from the specification; not confirmed on hardware"),
        Evidence("model", "≈", "model only", "emulated; approximate bits may differ from this GPU's"),
        Evidence("none", "", "", "nothing was executed"),
    )
}
PROVED = Evidence(
    "proved", "∀", "proved", "the code around the instructions is right for all inputs, by a solver; no run on a device"
)
"""Beside the evidence of a pass, which says who computed the bits that were tried."""

BACKENDS = ("gpu", "emulator", "assembler", "sass")


def worst_state(states: Iterable[str]) -> str:
    """The worst of several states."""
    return min(states, key=RANK.__getitem__, default="absent")


def evidence_of(results: Iterable[Result]) -> tuple[str, str]:
    """The strongest and the weakest evidence of the passes; "none" if nothing that was executed passed."""
    strongest: dict[tuple[int, str, bool], str] = {}
    for r in results:
        if state_of(r) == "pass":
            part = (r.key.pack, r.key.context, r.key.fusion)
            name = r.evidence if r.evidence in STRENGTH else "none"
            if part not in strongest or STRENGTH[name] > STRENGTH[strongest[part]]:
                strongest[part] = name
    ranked = sorted(strongest.values(), key=STRENGTH.__getitem__) or ["none"]
    return ranked[-1], ranked[0]


@dataclass
class Cell:
    """One variant on one target: its results over all backends, packs, shapes and contexts."""

    case: str
    variant: str
    target: str
    results: list[Result] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)

    @cached_property
    def counts(self) -> Counter[str]:
        """The number of results in each state."""
        return Counter(map(state_of, self.results))

    @cached_property
    def state(self) -> State:
        """The state that the cell shows."""
        return STATES[worst_state(self.counts)]

    @cached_property
    def evidence(self) -> tuple[Evidence, ...]:
        """The evidence of the cell's pass: the strongest, and the weakest if it differs; empty without a pass."""
        names = dict.fromkeys(evidence_of(self.results))
        return tuple(EVIDENCE[name] for name in names if name != "none")

    @cached_property
    def proved(self) -> tuple[Evidence, ...]:
        """`PROVED` if the variant passes, and a proof by its reference is of the same definition and of all packs that
        ran; else empty. A proof changes no state and no evidence."""
        if self.state.name != "pass":
            return ()
        accepted = [r for r in self.results if state_of(r) in ("pass", "assembled")]
        packs = {r.key.pack for r in accepted}
        for proof in self.proofs:
            same = proof.fingerprint and all(r.fingerprint == proof.fingerprint for r in accepted)
            if proof.verdict == "proved" and proof.against == "reference" and same and packs <= {*proof.packs}:
                return (PROVED,)
        return ()

    @property
    def marks(self) -> tuple[Evidence, ...]:
        """What stands behind a pass: the proof first, then the evidence."""
        return (*self.proved, *self.evidence)

    @property
    def model_only(self) -> bool:
        """Whether some pack or context of the cell passed on a model alone."""
        return EVIDENCE["model"] in self.evidence

    @cached_property
    def backends(self) -> dict[str, tuple[State, int]]:
        """The state of each backend that gave a result, and its number of results."""
        groups: dict[str, list[Result]] = defaultdict(list)
        for r in self.results:
            groups[r.key.backend].append(r)
        return {b: (STATES[worst_state(map(state_of, rs))], len(rs)) for b, rs in sorted(groups.items())}

    @property
    def anchor(self) -> str:
        """The id under which the page links to this cell."""
        return anchor("cell", self.case, self.variant, self.target)

    @property
    def wrong(self) -> str:
        """How many results of the items in the cell's state have it: `26 of 26`, as the terminal counts an item."""
        backends = {r.key.backend for r in self.results if state_of(r) == self.state.name}
        return f"{self.counts[self.state.name]} of {sum(r.key.backend in backends for r in self.results)}"

    @property
    def describe(self) -> str:
        """The cell in one sentence, for a tooltip and for a screen reader."""
        counts = ", ".join(f"{n} {STATES[s].word}" for s, n in sorted(self.counts.items(), key=lambda i: RANK[i[0]]))
        evidence = f"; evidence: {', in part '.join(e.word for e in self.evidence)}" if self.evidence else ""
        evidence += "; proved for all inputs" if self.proved else ""
        return f"{self.case} {self.variant} on {self.target}: {counts or 'no record'}{evidence}"


def counted(states: Iterable[str]) -> str:
    """States in words, the worst first: `76 of 78 fail, 2 pass`, or `78 pass` if all are equal."""
    counts = sorted(Counter(states).items(), key=lambda c: RANK[c[0]])
    total = sum(n for _, n in counts)
    parts = [f"{n:,} {STATES[name].word}" for name, n in counts]
    if len(counts) > 1:
        parts[0] = f"{counts[0][1]:,} of {total:,} {STATES[counts[0][0]].word}"
    return ", ".join(parts)


@dataclass
class Row:
    """One variant over all targets."""

    case: str
    variant: str
    info: VariantInfo | None
    cells: dict[str, Cell]

    @property
    def state(self) -> State:
        """The worst of its cells."""
        return STATES[worst_state(c.state.name for c in self.cells.values())]

    @property
    def by_backend(self) -> list[tuple[str, str, str]]:
        """For each backend its results in words (`counted`), and how many of them were reused."""
        results: dict[str, list[Result]] = defaultdict(list)
        for r in self.results:
            results[r.key.backend].append(r)
        order = [b for b in BACKENDS if b in results] + sorted(results.keys() - set(BACKENDS))
        return [(b, counted(map(state_of, results[b])), reused_words(results[b])) for b in order]

    @property
    def results(self) -> list[Result]:
        """All results of the row."""
        return [r for c in self.cells.values() for r in c.results]


@dataclass
class Family:
    """Cases under one heading of the matrix. name: "" if the run has no other family."""

    name: str
    cases: list[str]
    rows: list[Row]

    @property
    def states(self) -> Counter[str]:
        """The number of its rows in each state."""
        return Counter(row.state.name for row in self.rows)

    @property
    def passes(self) -> bool:
        """Whether nothing in it is wrong, and something passed: the matrix shows such a family collapsed."""
        states = self.states
        return not states["error"] and not states["fail"] and bool(states["pass"] + states["expected"])

    def on(self, target: str) -> list[tuple[State, int]]:
        """How many of its cells on a target have errors, and fail; if none does, those in the worst state."""
        states = Counter(row.cells[target].state.name for row in self.rows)
        shown = [name for name in ("error", "fail") if states[name]] or [worst_state(states)]
        return [(STATES[name], states[name]) for name in shown]

    @property
    def anchor(self) -> str:
        """The id of its heading."""
        return anchor("family", self.name)


@dataclass
class FailureGroup:
    """Failures of one cause: of one variant, on any backends, targets, packs and shapes (`ptxdiff.records.causes`).

    simplest: the result whose message stands for all of them.
    """

    case: str
    variant: str
    state: State
    results: list[Result]
    simplest: Result
    kinds: int = 1
    """The number of causes that it stands for."""

    @property
    def backends(self) -> list[str]:
        """The backends that ran it, a device first."""
        names = {r.key.backend for r in self.results}
        return [b for b in BACKENDS if b in names] + sorted(names.difference(BACKENDS))

    @property
    def targets(self) -> list[str]:
        """Where it happens."""
        return sorted({r.key.target for r in self.results}, key=target_order)

    @property
    def reused(self) -> str:
        """How many of its results are reused from earlier runs, and from which runs."""
        return reused_words(self.results)

    @property
    def items(self) -> int:
        """The number of items: the variant on a target and a backend, what a terminal counts."""
        return len({r.key.item for r in self.results})

    @property
    def packs(self) -> list[int]:
        """With which packs."""
        return sorted({r.key.pack for r in self.results})

    @property
    def contexts(self) -> list[str]:
        """In which contexts."""
        return sorted({r.key.context for r in self.results})

    @property
    def shapes(self) -> list[str]:
        """At which shapes."""
        return sorted({r.key.shape for r in self.results if r.key.shape}, key=shape_order)

    @property
    def offender(self) -> Offender | None:
        """The input to look at: the first that fails (`worst` may lie within its bound); None if no bits differ."""
        return offender_of(self.simplest)

    @property
    def cause(self) -> str:
        """The diagnosis and the repair, in words; "" if they are not known."""
        return cause_in_words(self.simplest)

    @property
    def command(self) -> str:
        """The command that repeats the failure; "" if there is none."""
        return command_of(self.simplest)

    @property
    def mapped(self) -> bool:
        """Whether one of its results has a map of failing inputs."""
        return any(r.grid is not None for r in self.results)

    @property
    def anchor(self) -> str:
        """The id under which the page links to this group."""
        k = self.simplest.key
        return anchor("failure", self.case, self.variant, k.backend, k.target, k.pack, k.context, k.shape, k.input_set)


@dataclass
class View:
    """One run, with its results gathered."""

    records: RunRecords
    targets: list[str]
    rows: list[Row]

    @cached_property
    def by_state(self) -> dict[str, list[Result]]:
        """The results in each state, in their order."""
        results: dict[str, list[Result]] = defaultdict(list)
        for r in self.records.results:
            results[state_of(r)].append(r)
        return dict(results)

    @cached_property
    def counts(self) -> Counter[str]:
        """The number of results in each state."""
        return Counter({state: len(results) for state, results in self.by_state.items()})

    @cached_property
    def failures(self) -> list[FailureGroup]:
        """All errors, and all failures that no case declares, the worst first."""
        if not self.by_state.keys() & {"error", "fail"}:
            return []
        return failure_groups([r for r in self.records.results if state_of(r) in ("error", "fail")])

    @cached_property
    def wrong(self) -> list[FailureGroup]:
        """The failures with all of a variant in one group: errors first, then those on the most targets."""
        members: dict[tuple[str, str, str], list[FailureGroup]] = defaultdict(list)
        for g in self.failures:
            members[(g.state.name, g.case, g.variant)].append(g)
        of_variants = []
        for groups in members.values():
            easiest = sorted(groups, key=lambda g: (not g.cause, simplicity(g.simplest)))
            simplest = shown_first([g.simplest for g in easiest])  # as the terminal shows it
            results = [r for g in groups for r in g.results]
            of_variants.append(replace(groups[0], results=results, simplest=simplest, kinds=len(groups)))
        return sorted(of_variants, key=lambda g: (RANK[g.state.name], -len(g.targets)))

    @cached_property
    def expected(self) -> list[FailureGroup]:
        """The failures that cases declare."""
        return failure_groups([r for r in self.records.results if r.expected_failure])

    @cached_property
    def splits(self) -> dict[str, list[Split]]:
        """By case, the targets and variants with different bits."""
        splits_by_case: dict[str, list[Split]] = defaultdict(list)
        for split in splits(self.records.results, self.records.disagreements):
            splits_by_case[split.case].append(split)
        return splits_by_case

    @cached_property
    def shown_targets(self) -> list[str]:
        """The targets that are columns of the matrix: all but those on which nothing ran, unless nothing ran at all."""
        idle = {"not run", "absent"}
        ran = [t for t in self.targets if any(row.cells[t].state.name not in idle for row in self.rows)]
        return ran or self.targets

    @property
    def idle_targets(self) -> list[str]:
        """The targets on which nothing ran, which are no columns."""
        return [t for t in self.targets if t not in self.shown_targets]

    @cached_property
    def families(self) -> list[Family]:
        """The rows by family, in the order of names. Cases without one are `other`, the last; "" if no case has one."""
        rest = "other" if any(info.family for info in self.records.cases.values()) else ""
        families: dict[str, Family] = {}
        for case in self.cases:
            info = self.info(case)
            name = (info.family if info else "") or rest
            family = families.setdefault(name, Family(name, [], []))
            family.cases.append(case)
            family.rows += self.case_rows(case)
        return sorted((f for f in families.values() if f.rows), key=lambda f: (f.name == rest, f.name))

    def case_rows(self, case: str) -> list[Row]:
        """The rows of one case."""
        return self._rows_of.get(case, [])

    @cached_property
    def _rows_of(self) -> dict[str, list[Row]]:
        rows_of: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            rows_of[row.case].append(row)
        return dict(rows_of)

    @property
    def cases(self) -> list[str]:
        """Every case with a result or an entry, in the order of the run."""
        return list(dict.fromkeys([*self.records.cases, *(row.case for row in self.rows)]))

    def info(self, case: str) -> CaseInfo | None:
        """The run's record of a case; None if the run was cut short before it."""
        return self.records.cases.get(case)


def view(records: RunRecords) -> View:
    """Gather a run's results into rows and cells."""
    targets = sorted({r.key.target for r in records.results}, key=target_order)
    rows: dict[tuple[str, str], Row] = {}

    def row(case: str, variant: str) -> Row:
        row_found = rows.get((case, variant))
        if row_found is None:
            info = records.cases[case].variants.get(variant) if case in records.cases else None
            cells = {t: Cell(case, variant, t) for t in targets}
            row_found = rows[(case, variant)] = Row(case, variant, info, cells)
        return row_found

    for name, case in records.cases.items():
        for variant in case.variants:
            row(name, variant)
    for r in records.results:
        row(r.key.case, r.key.variant).cells[r.key.target].results.append(r)
    for proof in records.proofs:
        if (proof.case, proof.variant) in rows and proof.target in targets:
            rows[proof.case, proof.variant].cells[proof.target].proofs.append(proof)
    return View(records, targets, list(rows.values()))


def failure_groups(results: Iterable[Result]) -> list[FailureGroup]:
    """Failing results by cause, as the terminal gathers items; errors first, then by the number of targets they hit."""
    items: dict[tuple[object, ...], list[Result]] = defaultdict(list)
    for r in results:
        items[(r.key.item, state_of(r), cause_of(r))].append(r)
    members_of = {}
    firsts = []
    for members in items.values():
        firsts.append(shown_first(sorted(members, key=lambda r: (not r.offenders, simplicity(r)))))
        members_of[id(firsts[-1])] = members
    groups = []
    for block in blocks(sorted(firsts, key=simplicity)):
        members = [r for one in (block.first, *block.others) for r in members_of[id(one)]]
        k = block.first.key
        groups.append(FailureGroup(k.case, k.variant, STATES[state_of(block.first)], members, block.first))
    return sorted(groups, key=lambda g: (RANK[g.state.name], g.case, g.variant, -len(g.targets), g.anchor))


def offender_of(r: Result) -> Offender | None:
    """The first failing input of a result, or what else is known of it."""
    return r.offenders[0] if r.offenders else r.worst


def command_of(r: Result) -> str:
    """The command that repeats a failing result, as its message has it; "" if there is none."""
    line = re.search(r"(?m)^  repeat    (.+)$", r.message)
    return line[1] if line else ""


def simplicity(r: Result) -> tuple[object, ...]:
    """A sort key: the result that is easiest to reason about comes first."""
    k = r.key
    device_first = BACKENDS.index(k.backend) if k.backend in BACKENDS else len(BACKENDS)
    return (k.context != "straight", k.pack, shape_order(k.shape), device_first, target_order(k.target), k.fusion)


def readability(r: Result) -> tuple[object, ...]:
    """A sort key: the result whose compiled code is most worth reading comes first."""
    return (not r.sass, state_of(r) not in ("error", "fail"), simplicity(r))


def with_sass(results: Iterable[Result]) -> list[Result]:
    """The same results; those without SASS get that of another result with the same PTX."""
    shown = list(results)
    sass = {(r.key.target, r.key.fusion, r.ptx): r.sass for r in shown if r.ptx and r.sass}
    others = ("" if r.sass else sass.get((r.key.target, r.key.fusion, r.ptx), "") for r in shown)
    return [replace(r, sass=other) if other else r for r, other in zip(shown, others, strict=True)]


@lru_cache(1 << 10)
def target_order(target: str) -> tuple[int, str]:
    """Sorts `sm_90a` before `sm_100a`."""
    number = re.search(r"\d+", target)
    return (int(number[0]) if number else 0, target)


@lru_cache(1 << 10)
def shape_order(shape: str) -> tuple[int, str]:
    """Sorts shapes by their number of elements."""
    size = 1
    for number in re.findall(r"\d+", shape):
        size *= int(number)
    return (size, shape)


_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


def anchor(*parts: object) -> str:
    """An id for a page: readable, unique for distinct parts, and free of anything with a meaning in HTML or a URL."""
    return "--".join(_UNSAFE.sub(lambda m: f"~{ord(m[0]):x}~", str(p)) for p in parts)


def reused_words(results: Iterable[Result]) -> str:
    """How many results earlier runs made, and which runs: `3 reused from RUN (2026-03-01)`; "" for none."""
    counts = Counter(r.reused for r in results if r.reused)
    if not counts:
        return ""
    runs = sorted(counts, reverse=True)
    named = ", ".join(f"{run} ({date})" if (date := _date(run)) else run for run in runs[:RUNS_NAMED])
    more = f" and {len(runs) - RUNS_NAMED} earlier runs" if len(runs) > RUNS_NAMED else ""
    return f"{counts.total():,} reused from {named}{more}"


RUNS_NAMED = 2


def _date(run: str) -> str:
    """The date at the start of a run's id, as `2026-03-01`; "" if it has none."""
    date = re.match(r"(\d{4})-?(\d\d)-?(\d\d)T", run)
    return "-".join(date.groups()) if date else ""


def reasons(results: Iterable[Result], states: Sequence[str]) -> list[tuple[str, str, list[Result]]]:
    """Results in these states, grouped by backend and reason, the most frequent first."""
    groups: Mapping[tuple[str, str], list[Result]] = defaultdict(list)
    for r in results:
        if state_of(r) in states:
            groups[(r.key.backend, r.words.replace(r.key.target, "sm_…") or "no reason recorded")].append(r)
    return sorted(((b, w, rs) for (b, w), rs in groups.items()), key=lambda g: (-len(g[2]), g[0], g[1]))
