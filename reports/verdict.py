"""The headline of a run: whether it passed, and what a reader must know before relying on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ptxdiff.records import (
    VERDICTS,
    Result,
    RunRecords,
    beside,
    brief_counts,
    by_assembler,
    evidence_of_passes,
    machines,
)
from ptxdiff.reports.model import STATES, View, reused_words

# The most names that a sentence lists; the others are counted.
NAMED = 3


@dataclass(frozen=True)
class Overall:
    """The verdict on a run.

    word: "failed", "cut short", "nothing ran", "assembled only" or "passed"; only the last is green.
    sentence: the headline. notes: remarks that must be shown beside it, one sentence each.
    counts: results by verdict, all five always present; expected failures are not among the failures.
    """

    word: str
    sentence: str
    notes: tuple[str, ...]
    counts: Mapping[str, int]
    expected: int
    evidence: Mapping[str, int] = field(default_factory=dict)
    """The number of passes by evidence."""
    items: Mapping[str, int] = field(default_factory=dict)
    """The number of items, which terminals count, that fail or have errors."""

    def beside(self, verdict: str) -> str:
        """The text to show beside the count of a verdict: for passes their evidence, for failures their items."""
        if verdict in self.items:
            n = self.items[verdict]
            return f" ({n:,} item{'s' * (n != 1)})"
        return beside(self.evidence) if verdict == "pass" else ""

    @property
    def green(self) -> bool:
        """Whether the run may be called passed."""
        return self.word == "passed"


def overall(view: View) -> Overall:
    """Judge a run as a whole."""
    records = view.records
    counts: dict[str, int] = dict.fromkeys(VERDICTS, 0)
    for r in records.results:
        if not r.expected_failure:
            counts[r.verdict if r.verdict in counts else "error"] += 1
    expected = sum(r.expected_failure for r in records.results)
    word = overall_word(view.counts, ended=records.end is not None)
    if _disproved(view):
        word = "failed"
    wrong = {(state, r.key.item) for state in ("fail", "error") for r in view.by_state.get(state, ())}
    return Overall(
        word,
        _SENTENCES[word](view),
        tuple(_notes(view, word)),
        counts,
        expected,
        evidence_of_passes(records.results),
        Counter(state for state, _ in wrong),
    )


def overall_word(states: Mapping[str, int], *, ended: bool) -> str:
    """The word for a run, from its number of results by state. A failed run that was cut short is "failed"."""
    count = {name: states.get(name, 0) for name in STATES}
    if count["error"] or count["fail"]:
        return "failed"
    if not ended:
        return "cut short"
    if count["pass"] or count["expected"]:
        return "passed"
    return "assembled only" if count["assembled"] else "nothing ran"


def _failed(view: View) -> str:
    wrong = [row for row in view.rows if row.state.name == "fail"]
    broken = [row for row in view.rows if row.state.name == "error"]
    parts = [f"{_variants(len(wrong))} wrong bits: {_names(wrong)}"] if wrong else []
    parts += [f"{_count(len(broken), 'variant')} cannot run as written: {_names(broken)}"] if broken else []
    disproved = _disproved(view)
    if disproved:
        parts.append(f"a solver found an input on which {', '.join(disproved)} is wrong")
    return "; ".join(parts)


def _disproved(view: View) -> list[str]:
    return sorted({f"{p.case}::{p.variant}" for p in view.records.proofs if p.verdict == "counterexample"})


def _cut_short(view: View) -> str:
    executed = view.counts["pass"] + view.counts["expected"]
    return f"The run was cut short; {_count(executed, 'result')} came in, none of them wrong"


def _passed(view: View) -> str:
    passing = [row for row in view.rows if row.state.name in ("pass", "expected")]
    targets = {c.target for row in passing for c in row.cells.values() if c.state.name in ("pass", "expected")}
    return f"{_count(len(passing), 'variant')} checked on {_count(len(targets), 'target')}, none gives wrong bits"


_SENTENCES: dict[str, Callable[[View], str]] = {
    "failed": _failed,
    "cut short": _cut_short,
    "passed": _passed,
    "assembled only": lambda view: f"{_count(view.counts['assembled'], 'kernel')} assembled; nothing was executed",
    "nothing ran": lambda view: "Nothing ran: there is no result to pass or fail",
}


def _notes(view: View, word: str) -> list[str]:
    notes = []
    if view.records.end is None and word != "cut short":
        notes.append("The run was cut short: what is missing was not measured.")
    model = [c for row in view.rows for c in row.cells.values() if c.model_only]
    if model:
        rest = "rests" if len(model) == 1 else "rest"
        variants = _count(len({(c.case, c.variant) for c in model}), "variant")
        notes.append(f"{_count(len(model), 'cell')} of {variants} {rest} on a model alone, at least in part.")
    if view.counts["assembled"] and word != "assembled only":
        notes.append(f"{view.counts['assembled']:,} of the passes are the assembler's: nothing was executed for them.")
    done, planned = brief_counts(view.records.results)
    if planned:
        notes.append(f"Machine code ran {done:,} of the {planned:,} runs of its whole plan: the smaller plan of auto.")
    missing = view.counts["not run"]
    if missing:
        backends = sorted({r.key.backend for r in view.by_state["not run"]})
        notes.append(f"{_count(missing, 'result')} did not run ({', '.join(backends)}).")
    if view.counts["expected"]:
        n = len({(r.key.case, r.key.variant) for r in view.records.results if r.expected_failure})
        notes.append(
            f"{_count(n, 'variant')} fails as its case declares."
            if n == 1
            else f"{n} variants fail as their cases declare."
        )
    for tally in by_assembler(view.records.results):
        if tally.faults:
            notes.append(f"{_count(tally.faults, 'failure')} by a fault of {tally.label.partition(' (')[0]} itself.")
    if reuse := reused_words(view.records.results):
        count, _, rest = reuse.partition(" ")
        notes.append(f"{count} of {_count(len(view.records.results), 'result')} {rest}; --ptx-fresh runs everything.")
    notes += filter(None, [disagreement(view)])
    return notes + _unjudged(view.records.results)


def disagreement(view: View) -> str:
    """In what merged runs disagree, in a sentence; "" if they do not."""
    conflicts = view.records.conflicts
    named = list(dict.fromkeys(f"{c.key.case}::{c.key.variant} on {c.key.target} ({c.words})" for c in conflicts))
    if not named:
        return ""
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return f"The merged runs disagree on {_count(len(conflicts), 'result')}: {', '.join(named[:NAMED])}{more}."


def _unjudged(results: Sequence[Result]) -> list[str]:
    """Remarks on codes outside the domains of policies, and on those of them that differ."""
    notes = []
    codes = rest = ordinary = unchecked = 0
    for r in results:
        unchecked += r.unchecked
        for share in r.judged.values():
            codes += share.codes
            rest += share.codes - share.judged
            ordinary += share.ordinary - share.ordinary_judged
    if rest:
        notes.append(
            f"{rest:,} of {_count(codes, 'code')} lie where no bound is promised, "
            f"{ordinary:,} of them ordinary (finite inputs that are not zero)."
        )
    if unchecked:
        notes.append(f"{_count(unchecked, 'code')} differ where no bound is promised.")
    return notes


def _variants(n: int) -> str:
    return "1 variant gives" if n == 1 else f"{n} variants give"


def _names(rows: list[Any]) -> str:
    names = [f"{row.case}::{row.variant}" for row in rows[:NAMED]]
    return ", ".join(names) + (f" and {len(rows) - NAMED} more" if len(rows) > NAMED else "")


def _count(n: int, word: str, plural: str = "") -> str:
    return f"{n:,} {word if n == 1 else plural or word + 's'}"


def environment_rows(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The environment as pairs of name and text: known names first, then all others as they were recorded.

    For a merged run, facts that its machines do not share are listed for each machine.
    """
    several = [dict(_rows(machine)) for machine in machines(environment)]
    names = dict.fromkeys(name for rows in several for name in rows)
    return [(name, " and ".join(dict.fromkeys(rows.get(name, "none") for rows in several))) for name in names]


def _rows(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    rest = dict(environment)
    for name, label in _KNOWN.items():
        if name in rest and (text := _text(name, rest.pop(name))):
            rows.append((label, text))
    git = environment.get("git")
    if isinstance(git, Mapping) and git.get("subject"):
        rows.append(("commit", str(git["subject"])))
    rows += [(name, _text(name, value)) for name, value in rest.items()]
    return rows


_KNOWN = {
    "gpus": "GPUs",
    "driver": "driver",
    "cuda": "CUDA",
    "ptxas": "ptxas",
    "triton": "Triton",
    "torch": "torch",
    "python": "Python",
    "platform": "platform",
    "git": "revision",
    "ptxdiff": "ptxdiff",
}


def _text(name: str, value: Any) -> str:
    if name == "gpus":
        return _gpus(value)
    if name == "ptxas" and isinstance(value, list | tuple):
        return ", ".join(_ptxas(v) for v in value)
    if name == "git" and isinstance(value, Mapping):
        dirty = ", with uncommitted changes" if value.get("dirty") else ""
        branch = f" on {value['branch']}" if value.get("branch") else ""
        return f"{str(value.get('revision', 'unknown'))[:12]}{branch}{dirty}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_text('', v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(_text("", v) for v in value)
    return "" if value is None else str(value)


def _ptxas(value: Any) -> str:
    if not isinstance(value, Mapping) or "version" not in value:
        return _text("", value)
    targets = value.get("targets")
    if isinstance(targets, list | tuple):
        targets = ", ".join(map(str, targets))
    return f"{value['version']} ({targets})" if targets else str(value["version"])


def _gpus(value: Any) -> str:
    if not value:
        return "none"
    if not isinstance(value, list | tuple):
        return _text("", value)
    seen: dict[str, int] = {}
    for gpu in value:
        text = str(gpu)
        if isinstance(gpu, Mapping):
            target = gpu.get("target") or gpu.get("capability")
            text = str(gpu.get("name", "GPU")) + (f" ({target})" if target else "")
        seen[text] = seen.get(text, 0) + 1
    return ", ".join(f"{n} × {text}" if n > 1 else text for text, n in seen.items())


def revision(records: RunRecords) -> str:
    """The git revision of a run in twelve digits, with `+` for uncommitted changes; "" if unknown."""
    return revision_in(records.run.environment)


def revision_in(environment: Mapping[str, Any]) -> str:
    """The git revision that a run's environment names; see `revision`."""
    return " and ".join(dict.fromkeys(filter(None, map(_revision, machines(environment)))))


def commit_in(environment: Mapping[str, Any]) -> tuple[str, str]:
    """The subject of a run's commit, and the address of its repository's page, which is https; "" if unknown."""
    commits = [e["git"] for e in machines(environment) if isinstance(e.get("git"), Mapping)]
    if not commits:
        return "", ""
    web = str(commits[0].get("web") or "")
    return str(commits[0].get("subject") or ""), web if re.fullmatch(r"https://[\w.-]+(:\d+)?(/[\w.~-]+)+", web) else ""


def _revision(environment: Mapping[str, Any]) -> str:
    git = environment.get("git")
    if isinstance(git, Mapping):
        return str(git.get("revision") or "")[:12] + ("+" if git.get("dirty") else "")
    return str(git or "")[:12]


def headline_facts(records: RunRecords) -> list[str]:
    """The most important facts on a run's environment, as short phrases for one line."""
    env = dict(environment_rows(records.run.environment))
    facts = [re.sub(r"\bnone\b", "no GPU", env.get("GPUs", "none"))]
    several = machines(records.run.environment)
    if len(several) > 1:
        facts.insert(0, f"{len(several)} runs merged")
    env["ptxas"] = re.sub(r" \([^)]*\)", "", env.get("ptxas", ""))  # its targets are in the environment's table
    facts += [f"{label} {env[label]}" for label in ("driver", "ptxas", "Triton", "revision") if env.get(label)]
    return [*facts, f"seed {records.run.seed}", f"effort {records.run.effort}"]
