"""Output for GitHub Actions: the step summary, and annotations in the diff.

Names and messages come from case files. In Markdown they are put into code spans and fences that they cannot close; in
workflow commands they are encoded, so that a message cannot contain a command.
"""

from collections import defaultdict

from ptxdiff.records import Key, Result, RunRecords, by_assembler
from ptxdiff.records.causes import FailureBlock, blocks, cause_in_words, shown_first
from ptxdiff.records.escaping import (
    html_text,
    markdown_code,
    markdown_fence,
    markdown_text,
    workflow_data,
    workflow_property,
)
from ptxdiff.reports.history import History, seconds
from ptxdiff.reports.model import STATES, Row, View, reasons, view
from ptxdiff.reports.timing import looped, measured
from ptxdiff.reports.verdict import headline_facts, overall

# GitHub drops a step summary beyond 1 MiB. This leaves room for other output of the job.
LIMIT = 1_000_000
COMMENT_LIMIT = 60_000
"""The bytes of a comment, which GitHub refuses beyond 65,536 characters."""
RED = ("failed",)
SYMBOLS = {"passed": "✅", "failed": "❌"}


def step_summary(run: RunRecords, *, history: History | None = None, limit: int = LIMIT) -> str:
    """A run in GitHub's Markdown, at most `limit` bytes. If parts do not fit, a remark gives their number."""
    shown = view(run)
    parts = [_head(shown), *_changes(history), *_failures(shown), *_not_run(shown), _matrix(shown)]
    parts += [*_assemblers(shown), *_speed(shown)]
    kept: list[str] = []
    size = 200  # room for the closing remark
    for n, part in enumerate(parts):
        size += len(part.encode()) + 2
        if size > limit:
            kept.append(f"_{len(parts) - n} further parts did not fit here; the HTML report has everything._")
            break
        kept.append(part)
    return "\n\n".join(kept) + "\n"


def annotations(run: RunRecords) -> list[str]:
    """Workflow commands, one for each cause of a failure, at the line of the variant, as pytest's output has blocks.

    A run that was cut short, or in which nothing ran, has one more.
    """
    shown = view(run)
    verdict = overall(shown)
    came_to_a_result = verdict.green or verdict.word in RED
    whole = [] if came_to_a_result else [f"::error title=ptxdiff::{workflow_data(verdict.sentence)}"]
    items: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    for r in run.results:
        if r.outcome in ("fail", "error"):
            items[r.key.case, r.key.variant, r.key.target, r.key.backend].append(r)
    worst = ([r for r in results if r.verdict == "error"] or results for results in items.values())
    causes = blocks(shown_first(results) for results in worst)
    return whole + [_annotation(shown, block) for block in sorted(causes, key=lambda b: b.first.verdict != "error")]


def _annotation(found: View, block: FailureBlock) -> str:
    first = block.first
    key, info = first.key, found.info(first.key.case)
    path = info.path if info else f"{key.case}.py"
    where = f"{key.variant} on {key.target} ({key.backend})"
    cause = cause_in_words(first) or first.words
    body = "\n".join(filter(None, (f"{where}: {cause}", block.elsewhere)))
    if first.message:
        body += f"\n\n{first.message}"
    title = f"ptxdiff: {key.case}: {key.variant}"
    position = f"file={workflow_property(path)},line={_line(found, key)},title={workflow_property(title)}"
    return f"::error {position}::{workflow_data(body[:60_000])}"


def _line(found: View, key: Key) -> int:
    info = found.info(key.case)
    variant = info.variants.get(key.variant) if info else None
    return max(1, variant.line) if variant else 1


def _head(found: View) -> str:
    verdict = overall(found)
    counts = " · ".join(f"**{n:,}** {name}{verdict.beside(name)}" for name, n in verdict.counts.items())
    lines = [
        f"## {SYMBOLS.get(verdict.word, '⚠️')} {verdict.word.capitalize()}: {markdown_text(verdict.sentence)}",
        f"{counts} · **{verdict.expected:,}** expected failures",
        " · ".join(map(markdown_text, headline_facts(found.records))),
    ]
    if verdict.notes:
        lines.append("\n".join(f"- {markdown_text(note)}" for note in verdict.notes))
    return "\n\n".join(lines)


def _changes(history: History | None) -> list[str]:
    if history is None or len(history.nights) < 2:
        return []
    from ptxdiff.reports.history import KINDS

    lines = [
        f"- {c.symbol} {KINDS[c.kind]}: {markdown_code(c.subject)} "
        f"{markdown_text(', '.join(c.targets)) if c.variant else ''} "
        f"{markdown_text(f'{c.before} → {c.after}' if c.before else c.after)} {markdown_text(c.detail)} "
        f"(since {markdown_text(history.nights[c.night].started[:10])} "
        f"{markdown_code(history.nights[c.night].revision)})"
        for c in history.standing[:50]
    ]
    return ["### What changed\n\n" + ("\n".join(lines) or "Nothing.")]


def _failures(found: View) -> list[str]:
    parts = []
    for g in found.failures:
        head = f"{g.state.symbol} {g.state.word}: {g.case}::{g.variant} on {', '.join(g.targets)}"
        body = markdown_fence(g.simplest.message or g.simplest.words or "no message recorded")
        parts.append(f"<details><summary>{html_text(head)}</summary>\n\n{body}\n\n</details>")
    return ["### Failures", *parts] if parts else []


def _not_run(found: View) -> list[str]:
    groups = reasons(found.records.results, ["not run"])
    lines = [
        f"- {len(rs):,} results ({markdown_text(backend)}): {markdown_text(reason)}"
        for backend, reason, rs in groups[:20]
    ]
    return ["### Not run\n\n" + "\n".join(lines)] if lines else []


def _matrix(found: View) -> str:
    """The matrix. Rows without failures are folded."""
    shown = [row for row in found.rows if row.state.name not in ("pass", "assembled", "unsupported", "absent")]
    parts = [_table(found, shown)] if shown else []
    if len(shown) < len(found.rows):
        rest = [row for row in found.rows if row not in shown]
        parts.append(
            f"<details><summary>{len(rest)} variants without a failure</summary>\n\n{_table(found, rest)}\n\n</details>"
        )
    legend = " · ".join(f"{s.symbol} {s.word}" for s in STATES.values())
    return "\n\n".join(["### Variants against targets", *parts, legend])


def _assemblers(found: View) -> list[str]:
    rows = [
        f"| {markdown_text(a.label)} | {a.passed:,} | {a.failed:,} | {a.faults:,} |"
        for a in by_assembler(found.records.results)
    ]
    head = "### Assemblers\n\n| assembler | passed | failed | faults of ptxas |\n|---|--:|--:|--:|\n"
    return [head + "\n".join(rows)] if rows else []


def _table(found: View, rows: list[Row]) -> str:
    head = "| case | variant | " + " | ".join(map(markdown_text, found.targets)) + " |"
    lines = [head, "|---" * (len(found.targets) + 2) + "|"]
    for row in rows:
        cells = " | ".join(c.state.symbol + "".join(e.symbol for e in c.marks) for c in row.cells.values())
        lines.append(f"| {markdown_code(row.case)} | {markdown_code(row.variant)} | {cells} |")
    return "\n".join(lines)


def _speed(found: View) -> list[str]:
    lines = []
    for case, rows in measured(found.records).items():
        for m in rows:
            beside = f"{m.against.verdict} {100 * (m.against.ratio - 1):+.1f}%" if m.against else ""
            key = m.timing.key
            by = key.assembler and f" by {key.assembler.partition(' (')[0]}"
            names = " | ".join(map(markdown_code, (case, key.variant, f"{key.shape}{by}")))
            lines.append(f"| {names} | {seconds(m.timing.median)} | {100 * m.of_copy:.0f}% | {beside} |")
    for case, speed in looped(found.records).items():
        for table in speed.tables:
            for row in table.rows:
                beside = f"{row.against.verdict} {100 * (row.against.ratio - 1):+.1f}%" if row.against else ""
                names = " | ".join(map(markdown_code, (case, row.timing.key.variant, f"in registers, {table.mode}")))
                lines.append(f"| {names} | {row.timing.value:.3g} {table.unit} | | {beside} |")
    if not lines:
        return []
    head = "| case | variant | size | median | of the copy | beside the first |\n|---|---|---|---|---|---|"
    return [f"<details><summary>Speed</summary>\n\n{head}\n" + "\n".join(lines) + "\n\n</details>"]
