"""Lint files and folders, and report findings, silenced findings, and code that could not be read."""

from __future__ import annotations

import io
import os
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ptxdiff.lint.extract import SUFFIXES, Extracted, Note, extract, extract_text, may_hold_asm
from ptxdiff.lint.extract.strings import File
from ptxdiff.lint.snippet import Finding, Snippet

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ptxdiff.lint.settings import Configuration, Selection
    from ptxdiff.processes.pool import CallEnd

SKIPPED = frozenset((
    ".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "node_modules", ".tox", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", "site-packages",
))  # fmt: skip
"""Folders that are skipped, unless they are named."""


@dataclass
class Report:
    """The outcome for all files. `files`: files with asm that were examined; `searched`: files that were opened.

    notes: places that could not be examined. skipped: asm that is no PTX, and for what it is. excluded: files and
    folders that settings exclude. silenced: findings that comments silence; ignored: those of `per-file-ignores`;
    known: those of a baseline. gone: what the baseline has and was not found.
    snippets: calls and statements. texts: the texts for the compiler; one call may have several. settings: the files
    whose settings were used. linted: the files that were opened, and the rules that ran on each (None: all that run by
    default). sources: the files with findings that can be repaired.
    """

    findings: list[Finding] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    skipped: list[Note] = field(default_factory=list)
    excluded: list[Note] = field(default_factory=list)
    silenced: int = 0
    ignored: int = 0
    known: int = 0
    gone: list[Note] = field(default_factory=list)
    snippets: int = 0
    files: int = 0
    searched: int = 0
    texts: list[Snippet] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    linted: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    sources: dict[str, File] = field(default_factory=dict)


def sources(paths: Iterable[Path], configuration: Configuration, report: Report) -> Iterator[Path]:
    """The given files, and the files in given folders that may hold asm, sorted by name.

    What settings exclude is left out of folders, and recorded in `report.excluded`; paths that the user gives are
    never left out, unless the options exclude them too (`force_exclude`). Folders that cannot be listed are findings.
    """
    for path in paths:
        if configuration.options.force_exclude and (reason := exclusion(path, configuration, above=True)):
            report.excluded.append(Note(str(path), 0, f"the given path is excluded: {reason}"))
            continue
        if not path.is_dir():
            yield path
            continue
        unlisted: list[OSError] = []
        for folder, folders, names in os.walk(path, onerror=unlisted.append):
            kept = []
            for name in sorted(n for n in folders if n not in SKIPPED):
                if reason := exclusion(Path(folder, name), configuration):
                    report.excluded.append(Note(os.path.join(folder, name), 0, reason))
                else:
                    kept.append(name)
            folders[:] = kept
            for name in sorted(names):
                if os.path.splitext(name)[1].lower() not in SUFFIXES:
                    continue
                if reason := exclusion(Path(folder, name), configuration):
                    report.excluded.append(Note(os.path.join(folder, name), 0, reason))
                elif os.path.exists(os.path.join(folder, name)):  # editors lock files by links to nothing
                    yield Path(folder, name)
        for error in unlisted:
            report.findings.append(unreadable(str(error.filename), 0, f"the folder cannot be listed: {error.strerror}"))


def exclusion(path: Path, configuration: Configuration, above: bool = False) -> str:
    """Which setting excludes a path, in words; "" for none. A folder is excluded by the settings above it."""
    settings = configuration.settings(path.parent)
    pattern = settings.excluding_above(path) if above else settings.excluding(path)
    return f"excluded by {pattern!r} in {settings.file}" if pattern else ""


@dataclass(frozen=True)
class FileToLint:
    """A file that may hold asm: its content, and the rules and targets for it."""

    path: str
    content: bytes
    selection: Selection
    targets: tuple[str, ...]


def lint_paths(paths: Iterable[Path], configuration: Configuration | None = None, processes: int = 0) -> Report:
    """Lint files and folders, each file under its own settings. Raises SettingsError.

    Findings are in the order of the files, whatever process found them. Rules and the emulator are loaded when the
    first asm is found. processes: how many at once; 0 for as many as there are CPUs, if the files hold much asm.
    """
    from ptxdiff.lint.settings import Configuration

    configuration = configuration or Configuration()
    report = Report()
    parts: list[Report | FileToLint] = []
    seen: set[str] = set()
    for path in sources(paths, configuration, report):
        if (absolute := os.path.abspath(path)) in seen:
            continue
        seen.add(absolute)
        report.searched += 1
        configuration.settings(path)  # wrong settings are an error also where no file has asm
        try:
            content = path.read_bytes()
        except OSError as error:
            if configuration.selection(path).reports("unreadable-file"):
                message = f"the file cannot be read: {error.strerror}"
                parts.append(Report(findings=[unreadable(str(path), 0, message)]))
            continue
        if may_hold_asm(content, path.suffix):
            selection, targets = configuration.selection(path), configuration.targets(path)
            parts.append(FileToLint(str(path), content, selection, tuple(targets)))
        else:
            report.linted[str(path)] = None
    linted = iter(_lint_files([p for p in parts if isinstance(p, FileToLint)], processes))
    unlisted = report.findings
    report.findings = []
    for part in parts:
        _merge(report, next(linted) if isinstance(part, FileToLint) else part)
    report.findings += unlisted
    report.settings = configuration.files
    return report


PARALLEL = 300
"""How many words of asm make it worth to start other processes, each of which takes a second or two."""
_WORDS_OF_ASM = re.compile(rb"inline_asm|\basm\b|__asm__")


def _lint_files(files: Sequence[FileToLint], processes: int) -> list[Report]:
    """The report of each file, in their order."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    many = processes or cpus // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    amounts = [len(_WORDS_OF_ASM.findall(f.content)) for f in files]
    if min(many, len(files)) < 2 or (not processes and sum(amounts) < PARALLEL):
        return [lint_file(each) for each in files]
    from ptxdiff.processes.pool import Pool

    pool = Pool(min(many, len(files)))
    try:
        largest_first = sorted(range(len(files)), key=lambda n: -amounts[n])
        calls = {n: pool.submit("ptxdiff.lint.files:lint_file", files[n], timeout=LONGEST) for n in largest_first}
        return [_answer(calls[n], each) for n, each in enumerate(files)]
    finally:
        pool.close()


LONGEST = 3600.0
"""Seconds for one file in another process."""


def _answer(call: Future[CallEnd], file: FileToLint) -> Report:
    """The report of another process; where that failed, of this one, so that no file is left out."""
    reply = call.result().reply
    return reply.value if reply is not None and isinstance(reply.value, Report) else lint_file(file)


def lint_file(file: FileToLint) -> Report:
    """The report of one file alone."""
    return lint_text(file.path, file.content, None, file.selection, file.targets)


def _merge(report: Report, part: Report) -> None:
    for each in fields(Report):
        value, more = getattr(report, each.name), getattr(part, each.name)
        setattr(report, each.name, value | more if isinstance(value, dict) else value + more)


def lint_text(
    path: str,
    content: bytes | str,
    report: Report | None = None,
    chosen: Selection | Sequence[str] | None = None,
    targets: Sequence[str] = (),
) -> Report:
    """Lint the content of one file; its suffix determines the language. chosen: the rules; by default all.

    content: the file's bytes, or its text as `extract.decoded` gives it.
    """
    from ptxdiff.lint.settings import Selection

    selection = chosen if isinstance(chosen, Selection) else Selection.of(chosen)
    report = report if report is not None else Report()
    report.linted[path] = selection.rules
    extracted = extract(path, content) if isinstance(content, bytes) else extract_text(path, content)
    if extracted is None:
        return report
    if extracted.unreadable is not None and selection.reports("unreadable-file"):
        _add(report, [unreadable(path, extracted.unreadable.line, extracted.unreadable.words)], selection)
    report.notes += extracted.notes
    report.skipped += extracted.skipped
    if not extracted.snippets:
        return report
    report.files += 1
    report.snippets += len({(s.origin.line, s.origin.column) for s in extracted.snippets})
    snippets = [replace(s, targets=tuple(targets)) if targets else s for s in extracted.snippets]
    report.texts += snippets
    _lint_file(extracted, snippets, report, selection)
    return report


def _lint_file(extracted: Extracted, snippets: Sequence[Snippet], report: Report, selection: Selection) -> None:
    from ptxdiff.lint.engine import grouped, lint_together

    comments = suppressions(extracted.file, extracted.snippets)
    kept = []
    for finding in lint_together(snippets, selection.rules):
        if finding.rule == "internal" and not selection.reports("internal"):
            continue
        if suppressed(finding, comments):
            report.silenced += 1
        else:
            kept.append(finding)
    if any(f.fix for f in kept):
        report.sources[extracted.file.path] = extracted.file
    _add(report, grouped(unique(kept)), selection)
    _add(report, list(_about_comments(extracted, comments, selection)), selection)


def _about_comments(extracted: Extracted, comments: Sequence[Suppression], selection: Selection) -> Iterator[Finding]:
    """Findings about comments that silence nothing."""
    from ptxdiff.lint.rules import rules

    known = rules()
    ran = set(selection.rules) if selection.rules is not None else {n for n, r in known.items() if r.default}
    path = extracted.file.path
    for comment in comments:
        message = ""
        name = "unknown-ignore"
        if comment.problem:
            message = comment.problem
        elif comment.rule != ALL and comment.rule not in known:
            message = f"no rule is called {comment.rule!r}"
        elif not comment.used and not comment.foreign:
            name = "unused-ignore"
            if selection.complete if comment.rule == ALL else comment.rule in ran:
                message = f"nothing is found here that {comment.words} would silence; remove it"
        if message and selection.reports(name):
            yield _about_file(name, message, path, comment.line, comment.column)


def _add(report: Report, findings: Sequence[Finding], selection: Selection) -> None:
    """Add findings to a report, except those that `per-file-ignores` names, which it counts."""
    kept = [f for f in findings if f.rule not in selection.hidden]
    report.ignored += sum(1 + len(f.others) for f in findings) - sum(1 + len(f.others) for f in kept)
    report.findings += kept


def unique(findings: Sequence[Finding]) -> list[Finding]:
    """Findings without duplicates (equal rule, place and words) from several paths to one call."""
    kept: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.key, finding.asm_line, finding.asm_column), finding)
    return list(kept.values())


def unreadable(path: str, line: int, words: str) -> Finding:
    """The finding about a file or folder of which nothing was examined."""
    return _about_file("unreadable-file", words, path, line, 1 if line else 0)


def _about_file(name: str, words: str, path: str, line: int, column: int) -> Finding:
    from ptxdiff.lint.rules import rules

    rule = rules()[name]
    return Finding(name, rule.severity, words, rule.why, "", path, line, column, 0, 0, Snippet("", ""), None)


# Comments that silence rules ---------------------------------------------------------------------------------------
#
# `# ptxdiff: ignore[rule]` in Python, `// ptxdiff: ignore[rule]` in C++ and within asm.
#
# A comment with rules silences their findings on its own line; if it is alone on a line, also those on the next line;
# on the first or last line of a call, all of their findings in its asm. `ptxdiff: ignore` without rules silences every
# rule, but only findings whose own place is that line, so that it hides no other mistake of the same block. A reason
# may follow after `--`.
#
# In C++, `NOLINT` and `NOLINTNEXTLINE` silence every rule on their own or on the next line, as they do for clang-tidy;
# `NOLINT(ptxdiff-rule)` silences one rule. Names of other tools' checks are left to those tools.

ALL = "*"
"""The name that stands for all rules."""
_IGNORE = re.compile(r"(?:#|//|/\*)\s*ptxdiff:\s*ignore\b(?P<rest>[^\n]*)")
_RULES = re.compile(r"\[([^\]\n]*)\]")
_NOTHING_MORE = re.compile(r"\s*(?:\Z|\*/|#|//|--|—)")
_NOLINT = re.compile(r"\b(?P<word>NOLINT(?:NEXTLINE)?)\b(?:\((?P<names>[^)\n]*)\))?")
_PREFIX = "ptxdiff-"
_NEVER_BY_ALL = frozenset(("internal",))
"""Rules whose findings say that something was not examined. Only a comment that names them silences them."""


@dataclass
class Suppression:
    """One rule named by one comment.

    rule: its name, or `ALL`. line, column: the place of the comment. first, last: the lines that it covers. words: the
    comment as it is written, for messages. problem: why it silences nothing; empty if it may. foreign: whether it may
    serve another tool, so that it is never unused.
    """

    rule: str
    line: int
    column: int
    first: int
    last: int
    words: str
    problem: str = ""
    foreign: bool = False
    used: bool = field(default=False, compare=False)

    def covers(self, finding: Finding) -> bool:
        """Whether the comment silences a finding."""
        if self.problem:
            return False
        if self.rule == ALL:
            return finding.rule not in _NEVER_BY_ALL and self.first <= finding.line <= self.last
        lines = (finding.line, finding.snippet.origin.line, finding.snippet.origin.last)
        return self.rule == finding.rule and any(self.first <= line <= self.last for line in lines)


def suppressions(file: File, snippets: Sequence[Snippet]) -> list[Suppression]:
    """All suppressions in comments of a file and of its asm."""
    comments = dict(_comments(file))
    for snippet in snippets:
        for comment in re.finditer(r"(?://|/\*)[^\n]*", snippet.asm):
            at = snippet.origin.offset(comment.start())
            if at >= 0:
                comments.setdefault(at, comment[0])
    python = file.path.lower().endswith((".py", ".pyi"))
    result: dict[tuple[str, int, int], Suppression] = {}
    for at, text in comments.items():
        for each in (*_ignores(file, at, text), *(() if python else _nolints(file, at, text))):
            result.setdefault((each.rule, each.line, each.column), each)
    return list(result.values())


def _comments(file: File) -> Iterator[tuple[int, str]]:
    """Offset and text of each comment of the language, in a file that may have suppressions."""
    if "ptxdiff:" not in file.text and "NOLINT" not in file.text:
        return
    if file.path.lower().endswith((".py", ".pyi")):
        try:
            for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
                if token.type == tokenize.COMMENT:
                    yield file.starts[token.start[0] - 1] + token.start[1], token.string
        except (tokenize.TokenError, SyntaxError):
            return
    else:
        from ptxdiff.lint.extract.cplusplus import comments

        yield from comments(file.text)


def _ignores(file: File, at: int, text: str) -> Iterator[Suppression]:
    """The suppressions of each `ptxdiff: ignore` in a comment at an offset."""
    for comment in _IGNORE.finditer(text):
        line, column = file.place(at + comment.start())
        alone = not file.text[file.starts[line - 1] : at + comment.start()].strip(" \t\"'")
        last = line + 1 if alone else line
        if named := _RULES.match(comment["rest"]):
            for rule in (name.strip() for name in named[1].split(",")):
                # `ignore[*]` is no way to silence a whole block.
                problem = "" if rule and rule != ALL else "a comment with brackets must name its rules: ignore[rule]"
                yield Suppression(rule, line, column, line, last, f"ignore[{rule}]", problem)
        elif _NOTHING_MORE.match(comment["rest"]):
            yield Suppression(ALL, line, column, line, last, "ignore")
        else:
            rest = comment["rest"].split("*/")[0].strip()
            problem = (
                f"after `ignore` stands {rest!r}: write ignore[rule] for one rule, `ignore` alone for all rules on "
                "this line, and a reason after `--`"
            )
            yield Suppression("", line, column, line, last, "ignore", problem)


def _nolints(file: File, at: int, text: str) -> Iterator[Suppression]:
    """The suppressions of each NOLINT in a comment of C++ at an offset."""
    for comment in _NOLINT.finditer(text):
        line, column = file.place(at + comment.start())
        covered = line + 1 if comment["word"] == "NOLINTNEXTLINE" else line
        if comment["names"] is None:
            yield Suppression(ALL, line, column, covered, covered, comment["word"], foreign=True)
            continue
        for name in (name.strip() for name in comment["names"].split(",")):
            written = f"{comment['word']}({name})"
            if name == ALL:
                yield Suppression(ALL, line, column, covered, covered, written, foreign=True)
            elif name.startswith(_PREFIX):
                yield Suppression(name.removeprefix(_PREFIX), line, column, covered, covered, written)


def suppressed(finding: Finding, of_the_file: Sequence[Suppression]) -> bool:
    """Whether a comment silences a finding; the comment then counts as used."""
    covering = [each for each in of_the_file if each.covers(finding)]
    for each in covering:
        each.used = True
    return bool(covering)
