"""The page's section on one case: policies, failures, errors, worst inputs, code, speed, changes."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent
from typing import Any

from ptxdiff.records import CaseInfo, Offender, Result, Split, VariantInfo
from ptxdiff.records.compare import distance
from ptxdiff.reports.charts import FailingMap, failing_map
from ptxdiff.reports.highlight import Language, Line, Span, excerpt, listing, runs
from ptxdiff.reports.history import Change, History
from ptxdiff.reports.model import (
    STATES,
    FailureGroup,
    Row,
    State,
    View,
    anchor,
    readability,
    simplicity,
    target_order,
    with_sass,
    worst_state,
)
from ptxdiff.reports.packing import Keeper
from ptxdiff.reports.timing import Measured, RegisterSpeed

WORST_SHOWN = 8
WORST_EACH = 3
OPCODES_SHOWN = 12
SWEPT_SHOWN = 40


@dataclass(frozen=True)
class Histogram:
    """Signed ulp distances of one variant over all its results of one backend; bars in order, with their share."""

    variant: str
    backend: str
    bound: int | None
    bars: tuple[dict[str, Any], ...]
    total: int

    @property
    def findings(self) -> dict[str, int]:
        """The number of codes by what the judge found, without findings that no code has."""
        counts: Counter[str] = Counter()
        for bar in self.bars:
            counts[bar["finding"]] += bar["count"]
        return {kind: counts[kind] for kind in COLOURS if counts[kind]}


@dataclass(frozen=True)
class SourceListing:
    """A variant as its author wrote it, or as derived for a pack, coloured; pack and constraints of asm only."""

    pack: str
    constraints: str
    lines: list[tuple[Span, ...]]


@dataclass(frozen=True)
class Code:
    """One invocation of a variant's asm in the compiled kernel, in PTX and in SASS: numbered lines, coloured."""

    variant: str
    target: str
    pack: int
    ptx: Sequence[tuple[int, Sequence[Span]]]
    sass: Sequence[tuple[int, Sequence[Span]]]
    more: int
    lined_up: bool


@dataclass(frozen=True)
class MachineRun:
    """Machine code of a variant that ran on the CPU. fused: the products that ptxas fused, each with its source line.

    weakest: the forms of machine instructions with the least evidence, one for each kernel with another.
    """

    variant: str
    target: str
    assembler: str
    weakest: tuple[str, ...]
    fused: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Resources:
    """Registers, spilled bytes and instructions of one variant on one target, at one pack."""

    registers: int
    spills: int
    instructions: int
    pack: int


@dataclass
class CasePage:
    """Everything the template needs for one case.

    What only the case's own section shows is found when the template asks for it, so in the process that renders it.
    """

    view: View
    name: str
    speed: list[Measured]
    registers: RegisterSpeed
    changes: list[Change]
    kept: Keeper | None = None

    @cached_property
    def info(self) -> CaseInfo | None:
        """The run's record of the case."""
        return self.view.info(self.name)

    @cached_property
    def rows(self) -> list[Row]:
        """Its variants."""
        return self.view.case_rows(self.name)

    @cached_property
    def failures(self) -> list[FailureGroup]:
        """Its errors and failures, without those that it declares."""
        return [g for g in self.view.failures if g.case == self.name]

    @cached_property
    def expected(self) -> list[FailureGroup]:
        """Its declared failures."""
        return [g for g in self.view.expected if g.case == self.name]

    @cached_property
    def maps(self) -> list[FailingMap]:
        """Where inputs of its variants fail."""
        return [m for row in self.rows if (m := failing_map(row)) is not None]

    @cached_property
    def splits(self) -> list[Split]:
        """Its targets and variants with different bits."""
        return self.view.splits.get(self.name, [])

    @cached_property
    def histograms(self) -> list[Histogram]:
        """See the function of this name."""
        return histograms(self.rows)

    @cached_property
    def spreads(self) -> dict[str, Spread | None]:
        """The errors of each variant by exponent."""
        return {row.variant: spread(row) for row in self.rows}

    @cached_property
    def classes(self) -> list[tuple[str, str, Mapping[str, int], int]]:
        """See `_classes`."""
        return _classes(self._results)

    @cached_property
    def worst(self) -> list[tuple[str, Result, Offender]]:
        """See `_worst`."""
        return _worst(self._results)

    @cached_property
    def asm(self) -> dict[str, list[SourceListing]]:
        """What the author of each variant wrote."""
        infos = {row.variant: row.info for row in self.rows if row.info and row.info.texts}
        return dict(zip(infos, _asms(list(infos.values()), self.kept), strict=True))

    @cached_property
    def code(self) -> list[Code]:
        """The compiled asm of each variant."""
        return _codes(self.view, self.rows, self.kept)

    @cached_property
    def resources(self) -> dict[str, dict[str, Resources]]:
        """By variant and target."""
        return _resources(self.rows)

    @cached_property
    def opcodes(self) -> tuple[str, list[str], list[tuple[str, list[int]]]]:
        """See `_opcodes`."""
        return _opcodes(self.rows)

    @cached_property
    def swept(self) -> list[Result]:
        """Its sweeps, and its results with remarks."""
        swept = (r for r in self._results if r.sweep or r.notes)
        return sorted(swept, key=lambda r: (not r.sweep, -r.total))

    @cached_property
    def machine(self) -> list[MachineRun]:
        """Its machine code that ran on the CPU."""
        return _machine_runs(self.view, self._results)

    @cached_property
    def _results(self) -> list[Result]:
        return [r for row in self.rows for r in row.results]

    @property
    def state(self) -> State:
        """The worst state of its rows."""
        return STATES[worst_state(row.state.name for row in self.rows)]

    @property
    def anchor(self) -> str:
        """The id of its section."""
        return anchor("case", self.name)


def case_page(
    view: View, name: str, speed: Sequence[Measured], history: History, registers: RegisterSpeed | None = None,
    kept: Keeper | None = None,
) -> CasePage:  # fmt: skip
    """Gather all that the page shows of one case. kept: stores what its texts of code give for the next page."""
    changes = [c for c in history.changes if c.case == name]
    return CasePage(view, name, list(speed), registers or RegisterSpeed(), changes, kept)


def promised_ulp(info: VariantInfo | None) -> int | None:
    """The bound that a variant promises, in ulp: 0 if it is exact, None if its policy is no bound in ulp."""
    if info is None:
        return None
    if info.bound is not None:
        return int(info.bound)
    if info.match.startswith("exact through "):  # the bound is that of an intermediate value
        return None
    if m := re.search(r"\bulp\((\d+)\)", info.match):
        return int(m[1])
    return 0 if info.match.startswith("exact") else None


PASSES, UNCHECKED, FAILS = "passes", "no bound promised", "fails"
"""What the judge found for the codes of a bar. A permitted flush, for example, passes beyond a bound in ulp."""


def histograms(rows: Sequence[Row]) -> list[Histogram]:
    """The ulp histograms of a case, without those that have only zero distances."""
    made = []
    for row in rows:
        bound = promised_ulp(row.info)
        by_backend: dict[str, dict[str, Counter[str]]] = {}
        for r in row.results:
            if r.ulps:
                if r.key.backend not in by_backend:
                    by_backend[r.key.backend] = {k: Counter() for k in (PASSES, UNCHECKED, FAILS)}
                kinds = by_backend[r.key.backend]
                for kind, counts in by_finding(r, bound).items():
                    if counts:
                        kinds[kind].update(counts)
        for backend, kinds in by_backend.items():
            if any(distance(label) for counts in kinds.values() for label in counts):
                total = sum(sum(counts.values()) for counts in kinds.values())
                made.append(Histogram(row.variant, backend, bound, tuple(_bars(kinds, bound)), total))
    return made


_WITHOUT_DISTANCE = frozenset({"NaN", "NaN payload", "infinity", "sign of zero", "padding bits"})
"""Classes of failing codes that a histogram does not have, or has at zero."""


def by_finding(r: Result, bound: int | None) -> dict[str, dict[str, int]]:
    """The histogram of a result's distances, by what the judge found.

    Records of ptxdiff before these counts say only how many codes fail: there, those beyond the bound.
    """
    failing, unchecked = dict(r.ulps_failing), dict(r.ulps_unchecked)
    if r.different and not failing and bound is not None and not r.classes.keys() <= _WITHOUT_DISTANCE:
        failing = {label: n for label, n in r.ulps.items() if distance(label) > bound}
    passing = {label: n - failing.get(label, 0) - unchecked.get(label, 0) for label, n in r.ulps.items()}
    return {PASSES: {label: n for label, n in passing.items() if n > 0}, UNCHECKED: unchecked, FAILS: failing}


@dataclass(frozen=True)
class Spread:
    """A variant's errors over the exponent of its input: points for the chart, and what they mean in words."""

    bound: int | None
    points: tuple[dict[str, Any], ...]
    words: str


def spread(row: Row) -> Spread | None:
    """The errors of a variant by exponent; None if none is known, or all are zero.

    Codes may pass beyond the promised bound, by a permitted flush for example; the words say so.
    """
    ranges: dict[str, tuple[int, int]] = {}
    for found in {id(r.ranges): r.ranges for r in row.results}.values():  # equal ones are one object
        for where, (low, high) in found.items():
            before = ranges.get(where, (low, high))
            ranges[where] = (min(low, before[0]), max(high, before[1]))
    exponents = {int(where): where for where in ranges if where.lstrip("-").isdigit()}
    if not exponents or not any(low or high for low, high in ranges.values()):
        return None
    if SUBNORMAL in ranges:
        exponents[min(exponents) - 2] = SUBNORMAL
    bound = promised_ulp(row.info)
    band = {} if bound is None else {"bound": bound, "minus": -bound}
    points = []
    for exponent, where in sorted(exponents.items()):
        low, high = ranges[where]
        points.append({"exponent": exponent, "where": where, "low": low, "high": high, **band})
    lowest, highest = min(low for low, _ in ranges.values()), max(high for _, high in ranges.values())
    text = f"Errors from {lowest:+,} to {highest:+,} ulp."
    if bound is not None:
        text += f" The band is the promised bound, {bound} ulp."
        beyond: Counter[str] = Counter()
        for r in row.results:
            for kind, counts in by_finding(r, bound).items():
                beyond[kind] += sum(n for label, n in counts.items() if distance(label) > bound)
        text += "".join(f" {beyond[kind]:,} {what}." for kind, what in _BEYOND.items() if beyond[kind])
    return Spread(bound, tuple(points), text)


SUBNORMAL = "sub"
"""The name of the range of subnormal inputs in `Result.ranges`."""
_BEYOND = {
    FAILS: "codes beyond it fail",
    PASSES: "codes beyond it pass, because the policy permits them (a flush, an overflow)",
    UNCHECKED: "codes beyond it lie where no bound is promised",
}
COLOURS = {PASSES: "var(--series-1)", UNCHECKED: "var(--line-strong)", FAILS: "var(--series-2)"}


def _bars(kinds: Mapping[str, Mapping[str, int]], bound: int | None) -> list[dict[str, Any]]:
    """The bars in order. begin, end: the distances that a bar covers; bottom, top: where it stands on those below."""
    greatest = max(n for counts in kinds.values() for n in counts.values())
    band = {} if bound is None else {"bound": bound + 0.5, "minus": -bound - 0.5}
    bars = sorted(
        (*_ends(label), order, kind, label, n)
        for order, (kind, counts) in enumerate(kinds.items())
        for label, n in counts.items()
    )
    found, tops = [], Counter[str]()
    for begin, end, _, kind, label, n in bars:
        bottom = tops[label]
        tops[label] += n
        found.append({
            "label": label, "begin": begin, "end": end, "bottom": bottom, "top": bottom + n, "count": n,
            "share": round(100 * n / greatest, 2), "finding": kind, "colour": COLOURS[kind], **band,
        })  # fmt: skip
    return found


def _ends(label: str) -> tuple[float, float]:
    """The signed distances that a label covers: 0.5 to 1.5 for `1`, -32.5 to -16.5 for `-17..32`."""
    numbers = [int(n) for n in re.findall(r"\d+", label)] or [0]
    low, high = numbers[0] - 0.5, numbers[-1] + 0.5
    return (-high, -low) if label.startswith("-") else (low, high)


def _classes(results: Sequence[Result]) -> list[tuple[str, str, Mapping[str, int], int]]:
    """Failing codes by variant and backend: their classes, and how many codes were compared."""
    totals: Counter[tuple[str, str]] = Counter()
    classes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for r in results:
        if r.total:
            where = (r.key.variant, r.key.backend)
            totals[where] += r.total
            if r.classes:
                classes[where].update(r.classes)
    return [(v, b, dict(classes[v, b].most_common()), n) for (v, b), n in totals.items()]


def _worst(results: Sequence[Result]) -> list[tuple[str, Result, Offender]]:
    """The worst inputs of each variant, each once: all failing variants first, with their failing inputs.

    A failing variant has `WORST_EACH` at least; the others follow by distance, up to `WORST_SHOWN` in all.
    """
    seen: dict[tuple[str, str, str], tuple[str, Result, Offender]] = {}
    for r in results:
        for o in (*r.offenders[:1], *([r.worst] if r.worst else [])):
            bits = ",".join(b.bits for b in o.inputs.values())
            seen.setdefault((r.key.variant, bits, o.got.bits), (r.key.variant, r, o))
    ranked = sorted(seen.values(), key=lambda w: (w[2] not in w[1].offenders, -abs(w[2].ulp or 0), simplicity(w[1])))
    places: Counter[str] = Counter()
    chosen: list[tuple[str, Result, Offender]] = []
    rest: list[tuple[str, Result, Offender]] = []
    for one in ranked:
        places[one[0]] += 1
        first = one[1].verdict == "fail" and places[one[0]] <= WORST_EACH
        (chosen if first else rest).append(one)
    chosen += rest[: max(0, WORST_SHOWN - len(chosen))]
    variants = list(dict.fromkeys(w[0] for w in chosen))
    return sorted(chosen, key=lambda w: variants.index(w[0]))


def _asms(infos: Sequence[VariantInfo], kept: Keeper | None) -> list[list[SourceListing]]:
    """What the author of each variant wrote, coloured. It is stored under its texts for the next page."""
    languages: list[Language] = ["ptx" if info.kind == "asm" else "python" for info in infos]
    written = [(language, list(info.texts.values())) for language, info in zip(languages, infos, strict=True)]
    parts = b"asm", _code(), json.dumps(written).encode()
    known = kept.get(*parts) if kept is not None else None
    if known is None:
        known = json.dumps([[_lines(text, language) for text in texts] for language, texts in written]).encode()
        if kept is not None:
            kept.put(known, *parts)
    return [
        [SourceListing(*_form(info, pack), lines) for pack, lines in zip(info.texts, listings, strict=True)]
        for info, listings in zip(infos, json.loads(known), strict=True)
    ]


def _form(info: VariantInfo, pack: str) -> tuple[str, str]:
    """The pack and the constraints of asm; of other code, which has neither, empty texts."""
    return (pack, info.constraints.get(pack, "")) if info.kind == "asm" else ("", "")


def _lines(text: str, language: Language) -> list[tuple[Span, ...]]:
    return [runs(line, language) for line in dedent(text).strip("\n").splitlines()]


def _codes(view: View, rows: Sequence[Row], kept: Keeper | None) -> list[Code]:
    """The compiled asm of each row. It is stored under its texts' digests, so that the next page reads no text."""
    texts = view.records.texts
    chosen = [min((r for r in with_sass(row.results) if r.ptx), key=readability, default=None) for row in rows]
    results = [r for r in chosen if r is not None]
    hashes = [[h if h in texts else "" for h in (r.ptx, r.sass)] for r in results]
    parts = b"codes", _code(), json.dumps(hashes).encode()
    known = kept.get(*parts) if kept is not None else None
    if known is None:
        parts_of_code = [_became(*(texts[h].text if h else "" for h in pair)) for pair in hashes]
        known = json.dumps(parts_of_code).encode()
        if kept is not None:
            kept.put(known, *parts)
    named = zip(results, json.loads(known), strict=True)
    return [Code(r.key.variant, r.key.target, r.key.pack, *became) for r, became in named if became is not None]


def _became(ptx: str, sass: str) -> tuple[Any, ...] | None:
    """The fields of `Code` from `ptx` on; None if the asm of a variant is not marked in the PTX."""
    shown = listing(ptx, sass)
    part = excerpt(shown)
    if part is None:
        return None
    return _coloured(part.ptx, "ptx"), _coloured(part.sass, "sass"), part.more, shown.lined_up


@functools.cache
def _code() -> bytes:
    """The text of all that decides what `_became` and `_lines` give."""
    text = b"".join(Path(str(sys.modules[f.__module__].__file__)).read_bytes() for f in (_became, listing))
    return text + f"Pygments {version('Pygments')}".encode()


def _machine_runs(view: View, results: Sequence[Result]) -> list[MachineRun]:
    by_machine: dict[tuple[str, str, str], list[Result]] = {}
    for r in results:
        if r.weakest or r.fused:
            by_machine.setdefault((r.key.variant, r.key.target, r.ptxas), []).append(r)
    made = []
    for name, members in sorted(by_machine.items()):
        texts = {r.ptx: view.records.texts[r.ptx].text for r in members if r.ptx in view.records.texts}
        fused = {
            (fusion, source_line(texts.get(r.ptx, ""), int(line))) for r in members for line, fusion in r.fused.items()
        }
        weakest = tuple(dict.fromkeys(r.weakest for r in members if r.weakest))
        made.append(MachineRun(*name, weakest, tuple(sorted(fused))))
    return made


_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', re.MULTILINE)


def source_line(ptx: str, line: int) -> str:
    """The file and line from which a line of PTX came, as `name.py:12`; "" if the PTX does not say."""
    for text in reversed(ptx.splitlines()[:line]):
        if match := _LOC.match(text):
            names = {number: path.rpartition("/")[2] for number, path in _FILE.findall(ptx)}
            return f"{names[match[1]]}:{match[2]}" if match[1] in names else ""
    return ""


def _coloured(lines: Sequence[Line], language: Language) -> tuple[tuple[int, tuple[Span, ...]], ...]:
    return tuple((line.number, runs(line.text.strip(), language)) for line in lines)


def _resources(rows: Sequence[Row]) -> dict[str, dict[str, Resources]]:
    by_variant: dict[str, dict[str, Resources]] = {}
    for row in rows:
        for target, cell in row.cells.items():
            measured = [r for r in cell.results if r.resources]
            if measured:
                r = min(measured, key=simplicity)
                spills = r.resources.get("spill_stores", 0) + r.resources.get("spill_loads", 0)
                entry = Resources(r.resources.get("registers", 0), spills, sum(r.instructions.values()), r.key.pack)
                by_variant.setdefault(row.variant, {})[target] = entry
    return by_variant


def _opcodes(rows: Sequence[Row]) -> tuple[str, list[str], list[tuple[str, list[int]]]]:
    """The instruction mix of the variants on one target that most of them share: target, variants, opcodes."""
    counted = {(r.variant, t): c for r in rows for t, c in r.cells.items() if any(x.instructions for x in c.results)}
    targets = Counter(t for _, t in counted)
    if not targets:
        return "", [], []
    target = max(targets, key=lambda t: (targets[t], t == "sm_90a", -target_order(t)[0]))
    mixes = {
        variant: min((r for r in cell.results if r.instructions), key=simplicity).instructions
        for (variant, t), cell in counted.items()
        if t == target
    }
    total: Counter[str] = Counter()
    for mix in mixes.values():
        total.update(mix)
    opcodes = [opcode for opcode, _ in total.most_common(OPCODES_SHOWN)]
    return target, list(mixes), [(op, [mix.get(op, 0) for mix in mixes.values()]) for op in opcodes]
