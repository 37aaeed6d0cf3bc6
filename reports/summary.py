"""The terminal summary of a run, as a rich renderable."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ptxdiff.records import RunRecords
from ptxdiff.records.escaping import line
from ptxdiff.records.escaping import terminal as shown
from ptxdiff.reports.model import EVIDENCE, PROVED, STATES, Row, View, reasons, view
from ptxdiff.reports.verdict import Overall, headline_facts, overall

STYLES = {
    "error": "bold magenta",
    "fail": "bold red",
    "expected": "yellow",
    "pass": "green",
    "assembled": "cyan",
    "unsupported": "dim",
    "not run": "dim",
    "absent": "dim",
}
WORDS = {"passed": "PASSED", "failed": "FAILED", "nothing ran": "NOTHING RAN", "cut short": "CUT SHORT"}
LINES_OF_MESSAGE = 24
SPLITS_SHOWN = 5
WIDE = 6
"""With more targets than this, columns have the numbers of targets alone, so that they fit a terminal."""


def terminal(run: RunRecords | View, *, failures: int = 5, table: bool = True) -> RenderableType:
    """A run for a terminal: the verdict, the matrix, the first `failures` failures, and why items did not run."""
    found = run if isinstance(run, View) else view(run)
    parts: list[RenderableType] = [*_messages(found, failures)]
    if table and found.rows:
        parts.append(_matrix(found))
    parts += [*_splits(found), *_not_run(found), *_verdict(found, overall(found))]
    return Group(*parts)


def _text(text: str = "", style: str = "") -> Text:
    """A text of the run as a rich Text."""
    return Text(shown(text), style)


def _messages(found: View, limit: int) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for group in found.failures[:limit]:
        head = f"{group.state.symbol} {group.state.word}: {group.case}::{group.variant} on {', '.join(group.targets)}"
        where = f" ({', '.join(group.backends)}; {len(group.results)} results)"
        parts.append(_text(head + where, style=STYLES[group.state.name]))
        lines = (group.simplest.message or group.simplest.words or "no message recorded").splitlines()
        parts.append(_text("\n".join(f"  {text}" for text in lines[:LINES_OF_MESSAGE])))
        if len(lines) > LINES_OF_MESSAGE:
            parts.append(_text(f"  … {len(lines) - LINES_OF_MESSAGE} more lines in the report"))
        parts.append(_text())
    if len(found.failures) > limit:
        parts.append(_text(f"and {len(found.failures) - limit} more causes of failure\n", style="bold"))
    return parts


def _matrix(found: View) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("case")
    table.add_column("variant")
    short = len(found.shown_targets) > WIDE
    names = [shown(line(t.removeprefix("sm_") if short else t)) for t in found.shown_targets]
    marked = [_cells(row, found.shown_targets) for row in found.rows]
    widths = [max(map(cell_len, [name, *(row[n][0] for row in marked)])) for n, name in enumerate(names)]
    # One column for all targets: rich takes a third of the time of one for each, which is a tenth of a page's.
    table.add_column(_centred([(name, "") for name in names], widths), no_wrap=True)
    last = None
    for row, of_targets in zip(found.rows, marked, strict=True):
        case = "" if row.case == last else line(row.case)
        table.add_row(_text(case), _text(line(row.variant)), _centred(of_targets, widths))
        last = row.case
    cells = [row.cells[t] for row in found.rows for t in found.shown_targets]
    states = {c.state.name for c in cells}
    evidence = {e.name for c in cells for e in c.marks}
    legend = [f"{s.symbol} {s.word}" for s in STATES.values() if s.name in states]
    table.caption = "  ".join(
        legend + [f"{e.symbol} {e.word}" for e in (PROVED, *EVIDENCE.values()) if e.name in evidence]
    )
    if short:
        table.caption = f"{table.caption}  {found.shown_targets[0].removeprefix('sm_')} is {found.shown_targets[0]}"
    table.caption_justify = "left"
    return table


def _cells(row: Row, targets: Sequence[str]) -> list[tuple[str, str]]:
    """The symbols and the style of a row's cell of each target."""
    cells = (row.cells[t] for t in targets)
    return [(c.state.symbol + "".join(e.symbol for e in c.marks), STYLES[c.state.name]) for c in cells]


def _centred(cells: Sequence[tuple[str, str]], widths: Sequence[int]) -> Text:
    """Texts with their styles, each in the middle of its width, two spaces apart."""
    parts: list[tuple[str, str]] = []
    for (text, style), width in zip(cells, widths, strict=True):
        left, odd = divmod(width - cell_len(text), 2)
        between = "  " if parts else ""
        parts += [(between + " " * left, ""), (text, style), (" " * (left + odd), "")]
    return Text.assemble(*parts)


def _not_run(found: View) -> list[RenderableType]:
    lines = [
        f"{STATES['not run'].symbol} not run: {len(results):,} results ({backend}): {reason}"
        for backend, reason, results in reasons(found.by_state.get("not run", ()), ["not run"])[:5]
    ]
    return [_text("\n" + "\n".join(lines), style=STYLES["not run"])] if lines else []


def _splits(found: View) -> list[RenderableType]:
    """The targets and variants with different bits."""
    every = [split for of_case in found.splits.values() for split in of_case]
    lines = [f"≠ {split}" for split in every[:SPLITS_SHOWN]]
    if len(every) > SPLITS_SHOWN:
        lines.append(f"… {len(every) - SPLITS_SHOWN} more such differences in the report")
    return [_text("\n" + "\n".join(lines), style="yellow")] if lines else []


def _verdict(found: View, verdict: Overall) -> list[RenderableType]:
    counts = _text("  ".join(f"{n:,} {name}{verdict.beside(name)}" for name, n in verdict.counts.items()))
    counts.append(f"  {verdict.expected:,} expected failures")
    style = {"passed": "bold green", "failed": "bold red"}.get(verdict.word, "bold yellow")
    head = _text("\n" + WORDS.get(verdict.word, verdict.word.upper()), style=style)
    head.append(shown(f"  {verdict.sentence}"), style="bold")
    notes = [_text(note, style="yellow") for note in verdict.notes]
    return [head, counts, *notes, _text(", ".join(headline_facts(found.records)), style="dim")]
