"""The gate accepts or refuses a run against a baseline, and lists every decision.

Exit codes: 0 accepted, 1 correctness, 2 usage or missing baseline (raised as an error, see `ptxdiff.gating.baseline`),
3 speed or resources. Every deviation is listed, whether or not it fails the gate: new and missing results, passes on a
model alone, results that could not run here, and changed definitions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from ptxdiff.backends import BACKENDS
from ptxdiff.gating.baseline import LIST, around, proof_subject
from ptxdiff.records import (
    ALONE,
    DECLARED,
    EXPECTED,
    PYTORCH,
    SKIPPED,
    Evidence,
    InRegisters,
    Key,
    Result,
    RunRecords,
    Share,
    evidence_of_passes,
    names_assembler,
    passes,
)
from ptxdiff.records.compare import (
    BETWEEN_RUNS,
    Change,
    Comparison,
    change_of,
    compare,
    elsewhere,
    strength,
    timed_twice,
)
from ptxdiff.records.in_registers import MODES, lost, undecided


@dataclass(frozen=True)
class Policy:
    """What fails the gate besides wrong bits.

    speed: refuse slowdowns beyond the A/A noise. registers: the accepted relative growth of registers and instructions;
    no growth of spills is accepted. allow_model: let a pass on a model alone satisfy the gate. require: backends that
    must have run. targets: targets that must have been checked; empty for those of the baseline. fresh: refuse results
    that were reused from earlier runs. assemblers: names of accepted assemblers, such as `13.4 -O3`, and `baseline` for
    those of the baseline; empty for all.
    """

    speed: bool = False
    registers: float = 0.10
    allow_model: bool = False
    require: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    fresh: bool = False
    assemblers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """The gate's decision on a run."""

    findings: tuple[Objection, ...]
    comparison: Comparison
    checked: int = 0
    """Results of the run that passed and match the baseline in every respect."""
    passes: str = ""
    """The run's passes and their evidence, in words."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """The number of results in the baseline, as "baseline", and of the run's passes by evidence."""

    @property
    def code(self) -> int:
        """The exit code. Correctness takes precedence over speed."""
        codes = {f.code for f in self.findings}
        return CORRECTNESS if CORRECTNESS in codes else REGRESSION if REGRESSION in codes else ACCEPTED

    @property
    def sentence(self) -> str:
        """The decision in one line."""
        words = {ACCEPTED: "accepted", CORRECTNESS: "refused: correctness", REGRESSION: "refused: speed or resources"}
        failing = sum(f.code != ACCEPTED for f in self.findings)
        remarks = len(self.findings) - failing
        return (
            f"{words[self.code]}; {self.checked} results as in the baseline, {failing} objections, {remarks} remarks; "
            f"{self.passes}"
        )


def gate(run: RunRecords, baseline: RunRecords, policy: Policy | None = None) -> Decision:
    """Decide on a run."""
    policy = policy or Policy()
    comparison = compare(baseline, run)
    redefined = {(d.key.case, d.key.variant) for d in comparison.of("definition")}
    judged_anew = {(d.key.case, d.key.variant) for d in comparison.of("definition") if _JUDGING.intersection(_parts(d))}
    judged_anew |= (moved := (redefined & _moved_around(run, baseline)) - judged_anew)
    findings = [
        *_run_as_a_whole(run),
        *other_run(run, baseline),
        *without_digests(run),
        *(_reused(run) if policy.fresh else ()),
        *assembled(run, baseline, comparison, policy.assemblers),
        *_failures(run.results),
        *_disproved(run),
        *_unproved(run, baseline),
        *_accepted_failures(baseline.results),
        *_declared(run, baseline),
        *_newly_expected(run, baseline),
        *skipped(run),
        *_missing(run, baseline, comparison, policy),
        *_redefined(run, baseline, comparison),
        *_recompiled(run, baseline, comparison, redefined),
        *_less_judged(run, baseline),
        *_counts(run, baseline),
        *_facts_lost(run, baseline),
        *_moved(comparison, redefined, judged_anew, moved),
        *_inputs_redefined(comparison),
        *_models(run, baseline, redefined, _cells(comparison.of("ptx")), policy),
        *_regressions(comparison, policy),
        *(_untimed(run, baseline) if policy.speed else ()),
        *_in_registers(run, baseline, redefined, policy),
    ]
    findings.sort(key=lambda f: ({CORRECTNESS: 0, REGRESSION: 1}.get(f.code, 2), f.subject != RUN, f.subject))
    totals = {"baseline": len(baseline.results)} | {str(e): n for e, n in evidence_of_passes(run.results).items()}
    return Decision(tuple(findings), comparison, comparison.equal, passes(run.results), totals)


def _run_as_a_whole(run: RunRecords) -> Iterator[Objection]:
    if words := no_run(run):
        yield Objection(CORRECTNESS, RUN, words)
    if run.end is None:
        yield Objection(CORRECTNESS, RUN, "the run was cut short: missing results were not checked")
    if words := nothing_ran(run):
        yield Objection(CORRECTNESS, RUN, words)
    yield from (Objection(CORRECTNESS, RUN, words) for words in _unlike_its_plan(run))
    machines = [run.run.environment, *run.run.environment.get("machines", ())]
    count = sum(_executed(r) and r.key.backend == "gpu" for r in run.results)
    if count and not any(machine.get("gpus") for machine in machines):
        text = f"{count} results of backend gpu, but its environment lists no GPU: the records were edited, or merged"
        yield Objection(CORRECTNESS, RUN, text)


def _unlike_its_plan(run: RunRecords) -> Iterator[str]:
    """Items that a finished run had planned and that have no result, and the reverse, in words. Runs of older versions,
    and those of other commands, list no items."""
    if run.end is None or not run.run.planned:
        return
    planned = set(run.run.planned)
    found = {f"{case}::{variant}[{target}-{backend}]" for case, variant, target, backend in _items(run.results)}
    for names, words in (
        (planned - found, "were planned and have no result"),
        (found - planned, "have results and were not planned"),
    ):
        if names:
            yield f"{len(names)} items {words}, first {min(names)}: the records were edited, or are of two runs"


def _items(results: Iterable[Result]) -> set[tuple[str, str, str, str]]:
    return {r.key.item for r in results}


def other_run(run: RunRecords, baseline: RunRecords) -> Iterator[Objection]:
    """Facts on the whole run that decide what it tested, where they are not those of the baseline."""
    if baseline.path is not None and not (baseline.path / LIST).exists():
        text = f"{baseline.path} has no {LIST}, so a deleted file goes unnoticed; the next --accept writes it"
        yield Objection(ACCEPTED, RUN, text)
    yield from _dates(run, baseline)
    if run.run.effort != baseline.run.effort:
        yield Objection(ACCEPTED, RUN, f"effort {baseline.run.effort} in the baseline, {run.run.effort} here")
    if run.run.seed != baseline.run.seed:
        yield Objection(ACCEPTED, RUN, f"seed {baseline.run.seed} in the baseline, {run.run.seed} here")
    was, now = (r.run.environment.get("approximate") for r in (baseline, run))
    if was is not None and was != now:
        text = f"bits of approximate instructions: {was} in the baseline, {now} here"
        yield Objection(ACCEPTED, RUN, text)
    if gone := [n for n in _IN_EVERY_RUN if n in baseline.run.environment and n not in run.run.environment]:
        text = f"its environment does not say {', '.join(gone)}, as the baseline's does: the records were edited"
        yield Objection(ACCEPTED, RUN, text)


def without_digests(run: RunRecords) -> list[Objection]:
    """A remark on results, as read from a file, that carry no digest of what the run made; empty if all carry one."""
    count = sum(not r.made for r in run.results) if run.path is not None else 0
    text = (
        f"{count} results have no digest of what the run made, so that an edit of them would not be known: an older "
        "version wrote them, or the digests were removed"
    )
    return [Objection(ACCEPTED, RUN, text)] if count else []


_IN_EVERY_RUN = ("python", "platform", "ptxdiff", "harness", "ledgers", "triton")
"""What the environment of each run of cases says, on every machine."""


def _dates(run: RunRecords, baseline: RunRecords) -> Iterator[Objection]:
    """A run that begins in the future was not written by a right clock, or was edited; one before the baseline may be
    an old one, of code that has changed since."""
    started, before = _moment(run.run.started), _moment(baseline.run.started)
    if started is None:
        yield Objection(CORRECTNESS, RUN, f"its date cannot be read: {run.run.started!a}")
    elif started > datetime.now(UTC) + _CLOCKS_APART:
        text = f"it is dated in the future, {run.run.started}: a clock is wrong, or the records were edited"
        yield Objection(CORRECTNESS, RUN, text)
    elif before is not None and started < before:
        text = f"it was started at {run.run.started}, before the baseline's run ({baseline.run.started})"
        yield Objection(ACCEPTED, RUN, text)


_CLOCKS_APART = timedelta(hours=1)
"""The most by which clocks of two machines differ in practice."""


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _reused(run: RunRecords) -> Iterator[Objection]:
    if runs := sorted({r.reused for r in run.results if r.reused}):
        count = sum(bool(r.reused) for r in run.results)
        yield Objection(CORRECTNESS, RUN, f"{count} results were reused from {', '.join(runs)}; run with --ptx-fresh")


def unacceptable(run: RunRecords) -> str:
    """The reason why a run cannot be a baseline, such as an incomplete run; "" if it can."""
    if words := no_run(run) or ("the run was cut short" if run.end is None else nothing_ran(run)):
        return words
    return next(_unlike_its_plan(run), "")


def no_run(run: RunRecords) -> str:
    """Why records are not those of a run of whole items, in words; "" if they are.

    A baseline agrees with itself whatever the code does. A replay runs one pack of inputs, or one set of a kernel.
    """
    if not run.run.chained:
        return "this is a baseline, not the records of a run: name the file that --records wrote, or its folder"
    if any(word.startswith("--ptx-replay") for word in run.run.arguments):
        return "the run repeats one failure (--ptx-replay), so its items were not tested on their other inputs"
    return ""


WHOLE_ITEM = "*"
"""The input set of the result that stands for an item as a whole, in a run of digests (`ptxdiff.gating.digests`)."""


def nothing_ran(run: RunRecords) -> str:
    """The error for a run in which nothing was executed; "" for other runs."""
    if any(_executed(r) or r.expected_failure for r in run.results):
        return ""
    return f"nothing ran: {'nothing was executed' if run.results else 'the run has no results'}"


def no_passes(run: RunRecords, baseline: RunRecords | None = None) -> list[Objection]:
    """The results that only `--accept-failures` accepts: failures, errors, and passes that became unsupported."""
    ran = {r.key.item for r in baseline.results if r.verdict == "pass"} if baseline else set()
    lost = [r for r in run.results if r.verdict == "unsupported" and r.key.item in ran]
    return [*_failures(run.results), *_grouped(lost, "pass in the baseline, now unsupported")]


def _failures(results: Iterable[Result]) -> list[Objection]:
    return _grouped(r for r in results if _failed(r))


def _disproved(run: RunRecords) -> Iterator[Objection]:
    """Variants that are wrong on an input that a solver found and a run confirmed, whatever the tried inputs gave.

    A proof is no pass: it says nothing of a device, and so satisfies nothing here.
    """
    for proof in run.proofs:
        if proof.verdict == "counterexample":
            words = f"a solver found an input on which it is wrong on {proof.target}: {proof.words}"
            yield Objection(CORRECTNESS, f"{proof.case}::{proof.variant}", words)


def _unproved(run: RunRecords, baseline: RunRecords) -> Iterator[Objection]:
    """Remarks on proofs that the baseline holds and a run that asked again did not find."""
    now = {proof_subject(p): p for p in run.proofs}
    for before in baseline.proofs:
        found = now.get(proof_subject(before))
        if before.verdict == "proved" and found is not None and found.verdict == "not settled":
            against = "" if before.against == "reference" else f" against {before.against}"
            words = f"proved{against} for all inputs in the baseline on {before.target}, now not settled: {found.words}"
            yield Objection(ACCEPTED, f"{before.case}::{before.variant}", words)


def _accepted_failures(results: Iterable[Result]) -> list[Objection]:
    """Remarks on failures that the baseline lists as accepted."""
    found = _grouped(r for r in results if _failed(r))
    return [Objection(ACCEPTED, f.subject, f"accepted in the baseline although no pass: {f.text}") for f in found]


def _declared(run: RunRecords, baseline: RunRecords) -> Iterator[Objection]:
    """Declared differences: bits that differ as the case declares are refused until a baseline accepts the same
    bits."""
    accepted = {r.key: (r.inputs_digest, r.outputs_digest) for r in baseline.results if r.diagnosis == DECLARED}
    groups: dict[tuple[str, bool], list[Result]] = defaultdict(list)
    for r in run.results:
        if r.diagnosis == DECLARED and r.key.input_set != WHOLE_ITEM:  # only results of input sets have bits
            known = bool(r.outputs_digest) and accepted.get(r.key) == (r.inputs_digest, r.outputs_digest)
            groups[_subject(r.key), known].append(r)
    for (subject, known), members in groups.items():
        text = f"{', '.join(filter(None, (DECLARED, members[0].words)))}: {len(members)} results"
        text += "" if known else ": no baseline has accepted these bits; review them, then --accept"
        yield Objection(ACCEPTED if known else CORRECTNESS, subject, text)


def _newly_expected(run: RunRecords, baseline: RunRecords) -> Iterator[Objection]:
    """Expected failures, in results that the baseline lacks, of items that it accepted without one.

    Where the baseline has the result, its verdict differs, which `_verdicts` refuses.
    """
    keys = {r.key for r in baseline.results}
    without = {r.key.item for r in baseline.results} - {r.key.item for r in baseline.results if r.expected_failure}
    groups: dict[str, list[Result]] = defaultdict(list)
    for r in run.results:
        if r.expected_failure and r.key not in keys and r.key.item in without and r.diagnosis != DECLARED:
            groups[_subject(r.key)].append(r)
    for subject, members in groups.items():
        what = f"{members[0].diagnosis or EXPECTED}, as its case declares: {len(members)} results"
        yield Objection(CORRECTNESS, subject, f"{what}: no baseline has accepted them; review them, then --accept")


def skipped(run: RunRecords) -> Iterator[Objection]:
    """Remarks on variants that a mark or a conftest skipped: a new one has no other trace in a decision."""
    groups: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for r in run.results:
        if r.verdict == "not run" and r.words.startswith(SKIPPED):
            groups[_subject(r.key), r.words].append(r)
    for (subject, words), members in groups.items():
        yield Objection(ACCEPTED, subject, f"not tested on {_targets(members)}: {words}")


def _failed(r: Result) -> bool:
    """Whether a result's verdict alone refuses it. An unknown verdict is no pass."""
    return r.verdict not in ("pass", "unsupported", "not run") and not r.expected_failure


def _grouped(results: Iterable[Result], words: str = "") -> list[Objection]:
    groups: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for r in results:
        groups[(r.key.case, r.key.variant, words or r.verdict)].append(r)
    return [
        Objection(
            CORRECTNESS,
            f"{case}::{variant}",
            f"{what} on {_targets(members)}, {len(members)} results: {members[0].words or 'no reason recorded'}",
        )
        for (case, variant, what), members in groups.items()
    ]


def _missing(run: RunRecords, baseline: RunRecords, comparison: Comparison, policy: Policy) -> Iterator[Objection]:
    ran = {r.key.backend for r in run.results if r.verdict != "not run"}
    for backend in policy.require:
        if backend not in ran:
            yield Objection(CORRECTNESS, backend, f"backend {backend} is required but ran nothing")
    checked = {r.key.target for r in run.results if r.verdict in ("pass", "unsupported") or r.expected_failure}
    wanted = policy.targets or tuple(sorted({r.key.target for r in baseline.results if r.verdict == "pass"}))
    gone = [t for t in wanted if t not in checked]
    for target in gone:
        yield Objection(CORRECTNESS, target, "expected target is missing from the run")
    tested = _Backends(r.key for r in baseline.results if r.key.target not in gone)
    for d in comparison.of("vanished"):
        backends = tested.of(d.key)
        if backends & ran:
            yield Objection(CORRECTNESS, _subject(d.key), f"in the baseline but not in the run: {d.detail or d.key}")
        elif backends:
            # An ordinary CI machine has no GPU, and a GPU may run alone. Results of other backends stay, with a remark.
            names = f"backend{'s' * (len(backends) > 1)} {' and '.join(sorted(backends))}"
            yield Objection(ACCEPTED, _subject(d.key), f"not checked here, {names} did not run: {d.detail or d.key}")
    alone: dict[str, list[Change]] = defaultdict(list)
    for d in comparison.of("new"):
        if d.detail:
            yield Objection(ACCEPTED, _subject(d.key), f"new, so not compared with the baseline: {d.detail}")
        else:
            alone[_subject(d.key)].append(d)
    for subject, members in alone.items():
        count = "1 result" if len(members) == 1 else f"{len(members)} results, first"
        yield Objection(ACCEPTED, subject, f"new, so not compared with the baseline: {count} {members[0].key}")


class _Backends:
    """The backends that tested what a key names, where "*" stands for everything."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._cells = {(k.case, k.variant, k.target, k.backend) for k in keys}
        self._known: dict[tuple[str, ...], frozenset[str]] = {}

    def of(self, key: Key) -> frozenset[str]:
        wanted = (key.case, key.variant, key.target, key.backend)
        if wanted in self._cells:
            return frozenset((key.backend,))
        if "*" not in wanted:
            return frozenset()
        if wanted not in self._known:  # a run without a target asks for it many times
            alike = (c for c in self._cells if all(part in ("*", of) for part, of in zip(wanted, c, strict=True)))
            self._known[wanted] = frozenset(c[-1] for c in alike)
        return self._known[wanted]


def _redefined(run: RunRecords, baseline: RunRecords, comparison: Comparison) -> Iterator[Objection]:
    """Changes of a variant's asm, constraints, pack or reference, and whether its accepted results ran again."""
    new = {r.key: r for r in run.results}
    changed = {(d.key.case, d.key.variant): ", ".join(_parts(d)) for d in comparison.of("definition")}
    accepted: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for r in filter(_executed, baseline.results):
        accepted[r.key.case, r.key.variant].append(r)
    for (case, variant), parts in sorted(changed.items()):
        subject = f"{case}::{variant}"
        before = accepted[case, variant]
        again = [new[r.key] for r in before if r.key in new and _executed(new[r.key])]
        evidence = sorted({r.evidence for r in again}, key=strength, reverse=True)
        text = f"{parts} changed; verified again at effort {run.run.effort}: {len(again)} of {len(before)} results"
        text += f", evidence {', '.join(evidence)}" if evidence else ""
        missing = [r for r in before if r.key not in new or not _executed(new[r.key])]
        hardware = [r for r in missing if r.evidence == "hardware"]
        if hardware:
            text += f"; not verified again on hardware: {_targets(hardware)}"
        yield Objection(ACCEPTED if again or not before else CORRECTNESS, subject, text)


def _cells(differences: Iterable[Change]) -> set[Cell]:
    return {(d.key.case, d.key.variant, d.key.target) for d in differences}


def _recompiled(
    run: RunRecords, baseline: RunRecords, comparison: Comparison, redefined: set[tuple[str, str]]
) -> Iterator[Objection]:
    """Variants with the same definition that compile to other PTX, for example with another compiler."""
    changed: dict[tuple[str, str], set[str]] = defaultdict(set)
    for case, variant, target in _cells(comparison.of("ptx")):
        if (case, variant) not in redefined:
            changed[case, variant].add(target)
    ran = ([r for r in records.results if _executed(r)] for records in (baseline, run))
    before, now = ({(r.key.case, r.key.variant, r.key.target) for r in results} for results in ran)
    for (case, variant), targets in sorted(changed.items()):
        unverified = sorted(t for t in targets if (case, variant, t) in before - now)
        text = f"compiles to other PTX on {', '.join(sorted(targets))} with the same definition"
        text += f"; not verified again on {', '.join(unverified)}" if unverified else "; verified again"
        yield Objection(CORRECTNESS if unverified else ACCEPTED, f"{case}::{variant}", text)


def _less_judged(run: RunRecords, baseline: RunRecords) -> Iterator[Objection]:
    """Results with a smaller judged share than the accepted one, or with more codes that differ unchecked."""
    accepted = {r.key: r for r in baseline.results if _executed(r)}
    groups: dict[tuple[str, str], list[tuple[Fraction, Fraction, Result]]] = defaultdict(list)
    for now in filter(_executed, run.results):
        was = accepted.get(now.key)
        if was is None:
            continue
        pairs: list[tuple[str, Fraction, Fraction]]
        pairs = [("codes that differ unchecked", _unchecked(was), _unchecked(now))]
        for name, share in was.judged.items():
            if share.ordinary:
                what = f"ordinary codes of {name} that are not judged"
                pairs.append((what, _unjudged(share), _unjudged(now.judged.get(name, Share()))))
        for what, before, after in pairs:
            if after > before:
                groups[(_subject(now.key), what)].append((after - before, before, now))
    for (subject, what), members in groups.items():
        grown, before, _ = max(members, key=lambda m: m[0])
        text = f"{what}: {_percent(before)} → {_percent(before + grown)} on {_targets(m[2] for m in members)}"
        yield Objection(CORRECTNESS, subject, f"{text}, {len(members)} results")


def _counts(run: RunRecords, baseline: RunRecords) -> Iterator[Objection]:
    """Counts that differ on equal inputs: codes compared, codes left unchecked, and the seed of the inputs.

    Fewer codes of the same inputs are fewer checks. The other changes are remarks.
    """
    accepted = {r.key: r for r in baseline.results if _executed(r)}
    groups: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for now in filter(_executed, run.results):
        was = accepted.get(now.key)
        if was is None or not was.total:
            continue
        alike = was.inputs_digest == now.inputs_digest
        if alike and was.total != now.total:
            groups[_subject(now.key), "codes compared", f"{was.total:,} → {now.total:,}"].append(now)
        if was.seed and was.seed != now.seed:
            groups[_subject(now.key), "seed of the inputs", f"{was.seed} → {now.seed}"].append(now)
        if alike and _unchecked(now) < _unchecked(was):
            before, after = _percent(_unchecked(was)), _percent(_unchecked(now))
            groups[_subject(now.key), "codes that differ unchecked", f"{before} → {after}"].append(now)
    for (subject, what, change), members in groups.items():
        first = accepted[members[0].key]
        code = CORRECTNESS if what == "codes compared" and members[0].total < first.total else ACCEPTED
        where = f"on {_targets(members)}, {len(members)} results"
        yield Objection(code, subject, f"{what}: {change} {where}")


def _facts_lost(run: RunRecords, baseline: RunRecords) -> Iterator[Objection]:
    """Facts that the accepted result has and this one lacks: what is not there was compared with nothing."""
    accepted = {r.key: r for r in baseline.results if _executed(r)}
    groups: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for now in filter(_executed, run.results):
        was = accepted.get(now.key)
        if was is not None:
            for name, fact in _FACTS.items():
                if fact(was) and not fact(now):
                    groups[_subject(now.key), name].append(now)
    for (subject, name), members in groups.items():
        text = f"no {name} in the run, so not compared, on {_targets(members)}, {len(members)} results"
        yield Objection(CORRECTNESS, subject, text)


_FACTS: Mapping[str, Callable[[Result], object]] = {
    "output bits": lambda r: r.outputs_digest,
    "digest of the inputs": lambda r: r.inputs_digest,
    "definition": lambda r: r.fingerprint,
    "number of compared codes": lambda r: r.total,
    "histogram of errors": lambda r: r.ulps,
}
"""Facts that every executed pass of the same key has, by name."""


def _unchecked(r: Result) -> Fraction:
    return Fraction(r.unchecked, r.total or 1)


def _unjudged(share: Share) -> Fraction:
    return 1 - Fraction(share.ordinary_judged, share.ordinary or 1)


def _percent(share: Fraction) -> str:
    return f"{float(share):.3%}"


def _executed(r: Result) -> bool:
    return r.verdict == "pass" and r.key.backend != "assembler"


def _moved_around(run: RunRecords, baseline: RunRecords) -> set[tuple[str, str]]:
    """The variants (case, name) with items whose modules, opened files or settings are not those of the baseline.

    A reference may get there what no walk from it sees. A baseline of an older form does not say it.
    """
    before: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for r in baseline.results:
        before[*r.key.item, r.key.assembler].update(around(r).values())
    return {
        (r.key.case, r.key.variant)
        for r in run.results
        if (accepted := before.get((*r.key.item, r.key.assembler))) and not accepted.issuperset(around(r).values())
    }


_JUDGING = frozenset(("reference", "policy", "meets", "differs"))
"""Parts of a definition that decide which bits are right."""


def _parts(definition: Change) -> list[str]:
    """The parts of a definition that have changed, as `Comparison` lists them."""
    return definition.detail.removeprefix("changed: ").split(", ")


def _moved(
    comparison: Comparison,
    redefined: set[tuple[str, str]],
    judged_anew: set[tuple[str, str]],
    moved: set[tuple[str, str]],
) -> Iterator[Objection]:
    """Bits, errors and verdicts that differ from the baseline. For a variant with a new definition they are remarks.

    But not if what judges the bits has changed as well: then nothing that was accepted says that they are right. moved:
    the variants of which only what stands around their definition may say that.
    """
    groups: dict[tuple[str, str, str, str, str], list[Change]] = defaultdict(list)
    for d in comparison.of("bits", "ulp", "evidence", "inputs"):
        groups[
            (
                d.kind,
                d.key.case,
                d.key.variant,
                d.before if d.kind != "inputs" else "",
                d.after if d.kind != "inputs" else "",
            )
        ].append(d)
    for (kind, case, variant, before, after), members in groups.items():
        anew = (case, variant) in redefined and (case, variant) not in judged_anew
        code = CORRECTNESS if kind in ("bits", "ulp") and not anew and members[0].worse is not False else ACCEPTED
        where = ", ".join(sorted({f"{d.key.target} ({d.key.backend})" for d in members}))
        text = {
            "bits": f"output bits changed on {where}, {len(members)} results; {members[0].detail}",
            "ulp": f"worst error {before} → {after} on {where}",
            "evidence": f"evidence {before} → {after} on {where}",
            "inputs": f"other inputs than the baseline's on {where}, {len(members)} results: bits not compared",
        }[kind]
        if code == CORRECTNESS and (case, variant) in judged_anew:
            what = "what judges it changed too (reference or policy)"
            if (case, variant) in moved:
                what = "a module, a file or a setting changed too, which may decide what is right"
            text += f"; {what}: review both, then --accept"
        yield Objection(code, f"{case}::{variant}", text + ("; its definition changed" if anew else ""))
    yield from _verdicts(comparison)


def _inputs_redefined(comparison: Comparison) -> Iterator[Objection]:
    """Variants whose case declares other inputs, so that bits on the accepted ones were not compared.

    Wrong bits outside a domain that was narrowed would pass. A baseline of digests misses the accepted inputs.
    """
    redefined = {(d.key.case, d.key.variant) for d in comparison.of("definition") if _INPUTS.intersection(_parts(d))}
    moved = Counter(name for d in comparison.of("inputs") if (name := (d.key.case, d.key.variant)) in redefined)
    for (case, variant), count in sorted(moved.items()):
        text = f"its case declares other inputs, so the accepted bits of {count} results were not compared"
        yield Objection(CORRECTNESS, f"{case}::{variant}", f"{text}: review the inputs, then --accept")


_INPUTS = frozenset(("inputs", "formats"))
"""Parts of a definition that decide the inputs."""


def _verdicts(comparison: Comparison) -> Iterator[Objection]:
    """Verdicts that differ from the baseline, except failures and errors, which `_failures` reports."""
    groups: dict[tuple[str, str, str, bool | None], list[Change]] = defaultdict(list)
    for d in comparison.of("verdict"):
        if d.after in ("not run", "unsupported", EXPECTED) or d.worse is False:
            groups[(_subject(d.key), d.before, d.after, d.worse)].append(d)
    for (subject, before, after, worse), members in groups.items():
        where = ", ".join(sorted({f"{d.key.target} ({d.key.backend})" for d in members}))
        detail = f": {members[0].detail}" if members[0].detail else ""
        if after == "not run":
            text = f"{before} in the baseline, not run here on {where}, {len(members)} results{detail}"
            yield Objection(ACCEPTED, subject, text)
        else:
            text = f"verdict {before} → {after} on {where}, {len(members)} results{detail}"
            yield Objection(CORRECTNESS if worse else ACCEPTED, subject, text)


def _models(
    run: RunRecords,
    baseline: RunRecords,
    redefined: set[tuple[str, str]],
    recompiled: set[Cell],
    policy: Policy,
) -> Iterator[Objection]:
    """Passes on a model alone, unless the baseline has better evidence for the same definition and the same PTX."""
    best = evidence_of_cells(filter(_executed, run.results))
    for cell, evidence in evidence_of_cells(filter(_executed, baseline.results)).items():
        if cell in best and cell[:2] not in redefined and cell not in recompiled:
            best[cell] = max(best[cell], evidence, key=strength)
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (case, variant, target), evidence in best.items():
        if strength(evidence) <= strength("model"):
            groups[(case, variant)].append(target)
    for (case, variant), targets in groups.items():
        text = f"passes on a model alone on {', '.join(targets)}"
        code = ACCEPTED if policy.allow_model else CORRECTNESS
        rule = ", which --allow-model accepts" if policy.allow_model else ", which satisfies no gate"
        yield Objection(code, f"{case}::{variant}", text + rule)


def _regressions(comparison: Comparison, policy: Policy) -> Iterator[Objection]:
    groups: dict[tuple[str, str, str, str, str], list[Change]] = defaultdict(list)
    for d in comparison.of("spills", "registers", "instructions"):
        groups[(d.kind, d.key.case, d.key.variant, d.before, d.after)].append(d)
    for (kind, case, variant, before, after), members in groups.items():
        growth = int(after) - int(before)
        beyond = growth > 0 if kind == "spills" else growth > policy.registers * int(before)
        where = ", ".join(sorted({d.key.target for d in members}))
        text = f"{'spilled bytes' if kind == 'spills' else kind} {before} → {after} on {where}"
        yield Objection(REGRESSION if beyond else ACCEPTED, f"{case}::{variant}", text)
    for d in comparison.of("speed"):
        ours = d.key.variant not in (PYTORCH, ALONE)
        code = REGRESSION if d.worse and policy.speed and ours else ACCEPTED
        change = {True: "slower", False: "faster", None: "speed"}[d.worse]
        where = f"in registers, {d.key.shape}" if d.key.shape in MODES else f"at {d.key.shape}"
        text = f"{change} on {d.key.target} {where}: {d.detail}"
        others = "PyTorch" if d.key.variant == PYTORCH else d.key.variant
        gated = "speed is not gated" if not policy.speed else "" if ours else f"{others} is not gated"
        yield Objection(code, _subject(d.key), text + (f"; {gated}" if gated else ""))


def _untimed(run: RunRecords, baseline: RunRecords) -> Iterator[Objection]:
    """Timings that a gate on speed cannot compare: missing ones, ones from another device, and too noisy ones."""
    timed = {t.key for t in run.timings}
    missing = [t for t in baseline.timings if t.key not in timed and t.key.variant != PYTORCH]
    groups: dict[str, list[str]] = defaultdict(list)
    for t in missing:
        groups[_subject(t.key)].append(t.key.shape)
    if not timed and missing:
        yield Objection(
            REGRESSION, "run", f"speed is gated, but nothing was timed; the baseline has {len(missing)} timings"
        )
    elif not baseline.timings:
        yield Objection(ACCEPTED, "run", "speed is gated, but the baseline has no timings")
    else:
        for subject, shapes in groups.items():
            yield Objection(REGRESSION, subject, f"timed in the baseline but not in the run: {', '.join(shapes)}")
    pairs = list(timed_twice(baseline.timings, run.timings))
    apart = {(_subject(b.key), words): None for a, b in pairs if (words := elsewhere(a, b))}
    for subject, words in apart:  # an objection, or timing on another node would let a slower variant pass
        yield Objection(REGRESSION, subject, f"speed is gated, but the variant was {words}: not compared")
    for a, b in pairs:
        found = b.beside(a, least=BETWEEN_RUNS)
        if a.timer == b.timer and not elsewhere(a, b) and found.verdict == "too noisy to say":
            text = f"too noisy to say on {b.key.target} at {b.key.shape}: {change_of(found)}"
            yield Objection(ACCEPTED, _subject(b.key), text)


def _in_registers(
    run: RunRecords, baseline: RunRecords, redefined: set[tuple[str, str]], policy: Policy
) -> Iterator[Objection]:
    """Timings in registers that cannot be compared. Without a gate on speed they are remarks."""
    for fails, subject, words in in_registers(run, baseline, redefined):
        remark = "; speed is not gated" if fails and not policy.speed else ""
        yield Objection(REGRESSION if fails and policy.speed else ACCEPTED, subject, words + remark)


def _subject(key: Key) -> str:
    if key.case == "*":
        return key.target if key.target != "*" else key.backend
    return key.case if key.variant == "*" else f"{key.case}::{key.variant}"


def _targets(results: Iterable[Result]) -> str:
    return ", ".join(sorted({r.key.target for r in results}))


# One decision of the gate, and the gate's exit codes ---------------------------------------------------------------

ACCEPTED, CORRECTNESS, USAGE, REGRESSION = 0, 1, 2, 3

RUN = "run"
"""The subject of decisions on the run as a whole."""


@dataclass(frozen=True)
class Objection:
    """One decision of the gate. code: the exit code that it requires; 0 for a remark."""

    code: int
    subject: str
    text: str


# The evidence of many results together -----------------------------------------------------------------------------
#
# Of one backend's passes the weakest counts, of several backends the best.
#
# A pack that rests on a model is not proved by other packs of the same backend.

Cell = tuple[str, str, str]
"""Case, variant and target."""


def weakest(results: Sequence[Result]) -> Evidence:
    """The weakest evidence of the passes among an item's results; without a pass, the best of all."""
    passes = [r.evidence for r in results if r.verdict == "pass"]
    return min(passes, key=strength) if passes else max((r.evidence for r in results), key=strength)


def evidence_of_cells(executed: Iterable[Result]) -> dict[Cell, str]:
    """The evidence by cell. executed: passes of backends that execute."""
    by_backend: dict[tuple[Cell, str], str] = {}
    for r in executed:
        place = (r.key.case, r.key.variant, r.key.target), r.key.backend
        by_backend[place] = min(by_backend.get(place, r.evidence), r.evidence, key=strength)
    best: dict[Cell, str] = {}
    for (cell, _), evidence in by_backend.items():
        best[cell] = max(best.get(cell, "none"), evidence, key=strength)
    return best


# Decisions on assemblers -------------------------------------------------------------------------------------------
#
# Whether a run's results come from accepted ones, and from those of the baseline.

BASELINE = "baseline"
"""The name that stands for the assemblers of the baseline."""
HELD = "accepted_assemblers"
"""The entry in the environment of a baseline of digests that lists the assemblers, because its results do not."""

_WITH_PTXAS = tuple(name for name, kind in BACKENDS.items() if kind.chosen_ptxas)


def assembled(
    run: RunRecords, baseline: RunRecords, comparison: Comparison, names: Sequence[str]
) -> Iterator[Objection]:
    """The decisions on assemblers. names: of accepted ones; empty for all. Raises ValueError for an illegal name."""
    for change in comparison.of("assembler"):
        text = f"{change.detail} of backend {change.key.backend} by {change.after}, in the baseline by {change.before}"
        yield Objection(ACCEPTED, RUN, f"{text}: equal bits come from two assemblers")
    if held := baseline.run.environment.get(HELD):  # a baseline of digests, whose results name none
        before = ", ".join(map(str, held))
        others = Counter(r.ptxas for r in run.results if r.ptxas and r.ptxas not in held)
        for label, count in sorted(others.items()):
            yield Objection(ACCEPTED, RUN, f"{count} results by {label}, in the baseline by {before}")
    if not names:
        return
    accepted = [n for n in names if n != BASELINE] + (known(baseline) if BASELINE in names else [])
    if BASELINE in names and not known(baseline):
        yield Objection(CORRECTNESS, RUN, "the baseline does not name its assembler: make it again, or give versions")
    for name in accepted:
        names_assembler(name, "")  # raises ValueError for an illegal name, whatever the run has
    made = Counter(r.ptxas for r in run.results if r.key.backend in _WITH_PTXAS and r.verdict != "not run")
    for label, count in sorted(made.items()):
        if not any(names_assembler(name, label) for name in accepted):
            by = f"by {label}" if label else "by an assembler that they do not name"
            yield Objection(CORRECTNESS, RUN, f"{count} results {by}; accepted are {', '.join(accepted) or 'none'}")
    for name in accepted:
        if not any(names_assembler(name, label) for label in made):
            yield Objection(ACCEPTED, RUN, f"assembler {name} is accepted, but has no result in this run")


def known(records: RunRecords) -> list[str]:
    """The labels of the assemblers that made some records."""
    held = records.run.environment.get(HELD, ())
    return sorted({r.ptxas for r in records.results if r.ptxas}.union(map(str, held)))


# The gate's decisions on timings in registers that cannot be compared ----------------------------------------------
#
# The gate's decisions on timings in registers that cannot be compared. With `--speed` they fail the gate.
#
# A timing may be missing, belong to a loop that lost the variant's instructions, or be too noisy to show a loss.

Found = Iterator[tuple[bool, str, str]]
"""Decisions: whether each fails a gate on speed, its subject, and its words."""


def in_registers(run: RunRecords, baseline: RunRecords, redefined: set[tuple[str, str]]) -> Found:
    """The decisions on timings in registers that cannot be compared. redefined: (case, variant) with a new definition.

    Slower and faster variants are not included: they are among the differences of the two runs.
    """
    accepted = {t.key: t for t in baseline.in_registers if t.key.variant != ALONE}
    timed = {t.key: t for t in run.in_registers if t.key.variant != ALONE}
    figures = [key for key, t in accepted.items() if not t.words]
    if figures and not any(not t.words for t in timed.values()):
        yield True, "run", f"nothing was timed in registers; the baseline has {len(figures)} such timings"
        return
    if timed and not accepted:
        yield False, "run", f"the baseline has no timings in registers; {len(timed)} here are not compared"
        return
    for key in sorted(accepted.keys() | timed.keys()):
        subject = f"{key.case}::{key.variant}"
        anew = (key.case, key.variant) in redefined
        for fails, words in _one(accepted.get(key), timed.get(key), _else_timed(key, timed), anew):
            yield fails, subject, f"in registers on {key.target}, {key.shape}: {words}"


def _else_timed(key: Key, timed: Mapping[Key, InRegisters]) -> InRegisters | None:
    """A timing of the same variant and mode with another loop: another pack, or constant instead of carried inputs."""
    same = [t for k, t in timed.items() if (*k.item, k.shape) == (*key.item, key.shape) and k != key]
    return same[0] if same else None


def _one(
    was: InRegisters | None, now: InRegisters | None, other: InRegisters | None, anew: bool
) -> Iterator[tuple[bool, str]]:
    """The decisions on one key: whether each fails a gate on speed, and its words.

    other: a timing of the run by another loop. anew: whether the variant has a new definition.
    """
    if was is None:
        if now is not None and not now.words:
            yield False, "new, so not compared"
    elif was.words:
        if now is None or now.words:
            yield False, f"not timed, as in the baseline: {was.words}"
    elif now is None:
        if other is None or other.words:
            yield True, f"timed in the baseline but not in the run{f': {other.words}' if other else ''}"
        else:
            yield not anew, "timed by another loop than in the baseline, so not compared"
    elif now.words:
        yield True, f"timed in the baseline but not in the run: {now.words}"
    elif was.results != now.results:
        yield not anew, f"{now.results} results per application, {was.results} in the baseline, so not compared"
    elif words := elsewhere(was, now):
        yield True, f"{words}, so not compared"
    else:
        yield from _compared(was, now, anew)


def _compared(was: InRegisters, now: InRegisters, anew: bool) -> Iterator[tuple[bool, str]]:
    if fewer := lost(was, now):
        counts = ", ".join(f"{name} {before:g} → {after:g}" for name, (before, after) in fewer.items())
        yield not anew, f"the loop has fewer instructions than the accepted one, {counts}: it may not time the variant"
    found = now.beside(was, least=BETWEEN_RUNS)
    if found.verdict == "too noisy to say":
        noise = max(now.noise, was.noise)
        open_ = undecided(found, noise)
        words = "; it may be slower: time it again" if open_ else ""
        yield open_, f"too noisy to say, A/A {100 * noise:.1f}%: {change_of(found)}{words}"
