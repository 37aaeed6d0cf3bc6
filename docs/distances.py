"""How far the results of each case's variants lie from the exact ones, as data beside the documentation and as plots.

    python docs/distances.py RECORDS...

takes the emulator's results from records files and writes `distances.json`: for each case file and variant the codes
that were compared, those with other bits, the histogram of signed distances, and the bound that the variant promises.
A plot has one row a variant; an exact one has all its codes at 0, a variant that a case expects to fail shows where its
wrong codes lie. The file has a digest of each case file, so that the page says which plot is older than its case.
"""

from __future__ import annotations

import hashlib
import html
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(__file__).with_name("distances.json")

Row = Mapping[str, Any]


def digest(path: Path) -> str:
    """The digest by which a plot is known to be of a case file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def rows_of(runs: Sequence[Any]) -> dict[str, Any]:
    """The data of runs; where two have results of a variant, the first counts."""
    from ptxdiff.reports.case_page import promised_ulp

    files: dict[str, Any] = {}
    taken = set()
    for run in runs:
        results = defaultdict(list)
        for r in run.results:
            if r.key.backend == "emulator" and r.total:
                results[r.key.case, r.key.variant].append(r)
        for info in run.cases.values():
            for name, variant in info.variants.items():
                found = results.get((info.case, name))
                if not found or (info.case, name) in taken:
                    continue
                taken.add((info.case, name))
                distances: Counter[str] = Counter()
                classes: Counter[str] = Counter()
                for r in found:
                    distances.update(r.ulps)
                    classes.update(r.classes)
                file = files.setdefault(Path(info.path).stem, {"digest": digest(ROOT / info.path), "rows": []})
                file["rows"].append({
                    "case": info.case, "variant": name, "target": found[0].key.target,
                    "codes": sum(r.total for r in found), "different": sum(r.different for r in found),
                    "unchecked": sum(r.unchecked for r in found),
                    "bound": promised_ulp(variant), "expected": any(r.expected_failure for r in found),
                    "ulps": dict(distances), "classes": dict(classes),
                })  # fmt: skip
    head = runs[0].run
    made = {"date": head.started[:10], "effort": head.effort, "triton": head.environment.get("triton", "")}
    return {"run": made, "files": dict(sorted(files.items()))}


def written(data: Mapping[str, Any]) -> str:
    """The data as JSON, a line a variant."""
    lines = [f'{{"run":{json.dumps(data["run"])},"files":{{']
    for n, (name, file) in enumerate(data["files"].items()):
        lines.append(f'{"," * (n > 0)}"{name}":{{"digest":"{file["digest"]}","rows":[')
        lines.append(",\n".join(json.dumps(row, separators=(",", ":")) for row in file["rows"]) + "]}")
    return "\n".join(lines) + "\n}}\n"


def read() -> dict[str, Any]:
    """The data."""
    found: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


# The plot of a case file, as SVG --------------------------------------------------------------------------------------

ROW, TOP, LEFT, PLOT, RIGHT = 22, 26, 250, 330, 330
EQUAL, WRONG, BAND, INK, LINE = "#2f6f4f", "#b3261e", "#cfe5d8", "#222", "#bbb"


def ends(label: str) -> tuple[float, float]:
    """The signed distances of a class of a histogram: 1 to 1 for `1`, -32 to -17 for `-17..32`."""
    numbers = [int(n) for n in re.findall(r"\d+", label)] or [0]
    sign = -1 if label.startswith("-") else 1
    low, high = sorted((sign * numbers[0], sign * numbers[-1]))
    return low, high


def words(row: Row) -> str:
    """What a row's codes are, in words."""
    if not row["different"]:
        far = max((max(map(abs, ends(label))) for label in row["ulps"]), default=0)
        least = "none wrong" if not far else f"at most {far:,.0f} ulp, none wrong"
        free = f"; {row['unchecked']:,} differ where nothing is promised" if row["unchecked"] else ""
        return f"{row['codes']:,} codes, {least}{free}"
    return f"{row['different']:,} of {row['codes']:,} codes wrong" + (", as declared" if row["expected"] else "")


def plot(rows: Sequence[Row]) -> str:
    """The plot of a case file's variants: their distances on a symmetric logarithmic axis, each with its promise."""
    reach = max([1.0, *(abs(e) for row in rows for label in row["ulps"] for e in ends(label))])
    reach = max([reach, *((row["bound"] or 0) + 0.5 for row in rows)])
    scale = PLOT / 2 / math.log1p(reach)

    def x(distance: float) -> float:
        return LEFT + PLOT / 2 + math.copysign(math.log1p(abs(distance)), distance) * scale

    height = TOP + ROW * len(rows) + 24
    title = "got − expected, in ulp (symmetric log)"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + PLOT + RIGHT} {height}" '
             f'width="{LEFT + PLOT + RIGHT}" height="{height}" font-family="sans-serif" font-size="12" fill="{INK}">',
             '<rect width="100%" height="100%" fill="#fff"/>',
             f'<text x="{LEFT + PLOT / 2}" y="14" text-anchor="middle">{title}</text>']  # fmt: skip
    several = len({row["case"] for row in rows}) > 1
    for tick in _ticks(reach):
        at = f"{x(tick):.1f}"
        parts.append(f'<path d="M{at} {TOP}V{height - 20}" stroke="{LINE}"/>')
        parts.append(f'<text x="{at}" y="{height - 6}" text-anchor="middle">{_short(tick)}</text>')
    for n, row in enumerate(rows):
        top = TOP + ROW * n
        name = f"{row['case']} {row['variant']}" if several else row["variant"]
        name = name if len(name) <= 38 else f"{name[:37]}…"
        parts.append(f'<text x="{LEFT - 10}" y="{top + 15}" text-anchor="end">{html.escape(name)}</text>')
        bound = row["bound"]
        if bound:
            parts.append(_box(x(-bound - 0.5), x(bound + 0.5), top + 2, ROW - 4, BAND))
        # Codes without a distance, such as integers, are right at 0.
        counts = row["ulps"] or {"0": row["codes"] - row["different"] - row["unchecked"]}
        most = math.log1p(max(1, *counts.values()))
        for label, count in sorted(counts.items(), key=lambda item: ends(item[0])):
            low, high = ends(label)
            tall = (ROW - 6) * max(0.2, math.log1p(count) / most)
            within = not row["different"] or max(abs(low), abs(high)) <= (bound or 0)
            middle = 3 if low == high else 0
            parts.append(
                _box(x(low) - middle, x(high) + middle, top + ROW - 3 - tall, tall, EQUAL if within else WRONG)
            )
        parts.append(f'<text x="{LEFT + PLOT + 10}" y="{top + 15}">{html.escape(words(row))}</text>')
    return "".join([*parts, "</svg>\n"])


def _box(left: float, right: float, top: float, height: float, colour: str) -> str:
    width = max(right - left, 1)
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _ticks(reach: float) -> Iterable[float]:
    """Distances that the axis names: 0, the end, and a power of ten between."""
    power = round(math.log10(reach + 1))
    shown = [10.0**n for n in (power // 2, power) if 1 <= 10**n <= reach] or [1.0]
    return sorted({0.0, *shown, *(-s for s in shown)})


def _short(value: float) -> str:
    if abs(value) < 1000:
        return f"{value:+.0f}" if value else "0"
    return f"{'−' if value < 0 else '+'}10^{round(math.log10(abs(value)))}"


def alternative(rows: Sequence[Row]) -> str:
    """The plot in words."""
    return "; ".join(f"{row['case']} {row['variant']}: {words(row)}" for row in rows)


if __name__ == "__main__":
    from ptxdiff.records import read as read_records

    DATA.write_text(written(rows_of([read_records(Path(p), texts=False) for p in sys.argv[1:]])), encoding="utf-8")
