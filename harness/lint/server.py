"""The linter as a language server on standard input and output, for editors: `ptxdiff lint --lsp`. It needs pygls.

It publishes findings when a document is opened, changed or saved, offers repairs as code actions, and shows the page of
a rule at a finding. Documents are linted as they are in the editor, under the settings of the file that they belong to,
as `ptxdiff lint FILE` would lint them after a save.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from ptxdiff.lint.engine import ungrouped
from ptxdiff.lint.extract import PYTHON, SUFFIXES, may_hold_asm
from ptxdiff.lint.extract.strings import File
from ptxdiff.lint.files import exclusion, lint_text
from ptxdiff.lint.fixes import replacements
from ptxdiff.lint.rules import page
from ptxdiff.lint.settings import Configuration, Options, SettingsError
from ptxdiff.lint.snippet import Finding

DELAY = 0.3
"""Seconds after a change before the document is linted, unless it changes again."""
_SOURCE = "ptxdiff"
_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}
_LANGUAGES = {"python": ".py", "cuda": ".cu", "cuda-cpp": ".cu", "cpp": ".cpp", "c": ".c"}
"""The suffix of a document that has no file yet."""


@dataclass
class LintedDocument:
    """A document's text and its findings, one for each place. problem: why it was not linted."""

    file: File
    findings: list[Finding] = field(default_factory=list)
    problem: str = ""


class EditorSession:
    """The documents of one editor. options: those of the command line."""

    def __init__(self, options: Options | None = None) -> None:
        from ptxdiff import __version__

        self.options = options or Options()
        # Whole texts: pygls splits lines at more characters than the protocol does.
        self.server = LanguageServer("ptxdiff lint", __version__, types.TextDocumentSyncKind.Full)
        self._documents: dict[str, LintedDocument] = {}
        for name, method in (
            (types.TEXT_DOCUMENT_DID_OPEN, self.opened),
            (types.TEXT_DOCUMENT_DID_CHANGE, self.changed),
            (types.TEXT_DOCUMENT_DID_SAVE, self.saved),
            (types.TEXT_DOCUMENT_DID_CLOSE, self.closed),
            (types.TEXT_DOCUMENT_HOVER, self.hover),
        ):
            self.server.feature(name)(partial(method))  # pygls gives its functions attributes, which methods refuse
        kinds = types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])
        self.server.feature(types.TEXT_DOCUMENT_CODE_ACTION, kinds)(partial(self.actions))

    def serve(self) -> None:
        """Answer on standard input and output until the editor ends the session."""
        self.server.start_io()

    def opened(self, params: types.DidOpenTextDocumentParams) -> None:
        """Lint a document that was opened."""
        self._publish(params.text_document.uri)

    async def changed(self, params: types.DidChangeTextDocumentParams) -> None:
        """Lint a document a moment after its last change."""
        uri, version = params.text_document.uri, params.text_document.version
        await asyncio.sleep(DELAY)
        document = self.server.workspace.text_documents.get(uri)
        if document is not None and document.version == version:
            self._publish(uri)

    def saved(self, params: types.DidSaveTextDocumentParams) -> None:
        """Lint a document that was saved; all, if it has settings."""
        if os.path.basename(to_fs_path(params.text_document.uri) or "") == "pyproject.toml":
            for uri in list(self.server.workspace.text_documents):
                self._publish(uri)
        else:
            self._publish(params.text_document.uri)

    def closed(self, params: types.DidCloseTextDocumentParams) -> None:
        """Forget a document, and take its findings out of the editor."""
        uri = params.text_document.uri
        self._documents.pop(uri, None)
        self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def actions(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """A code action for each repair of a finding in the range."""
        uri = params.text_document.uri
        linted = self._linted(uri)
        repairs = []
        for finding in linted.findings:
            area = self._range(linted, finding)
            if finding.fix is None or not _overlap(area, params.range):
                continue
            edits = [
                types.TextEdit(self._between(linted, e.line, e.column, e.end_line, e.end_column), e.new)
                for e in replacements(finding, linted.file)
            ]
            if edits:
                title = f"{finding.rule}: {finding.fix.words}"
                change = types.WorkspaceEdit(changes={uri: edits})
                solved = [self._diagnostic(linted, finding)]
                repairs.append(types.CodeAction(title, types.CodeActionKind.QuickFix, solved, edit=change))
        return repairs

    def hover(self, params: types.HoverParams) -> types.Hover | None:
        """The pages of the rules that have a finding at a place."""
        linted = self._linted(params.text_document.uri)
        here = types.Range(params.position, params.position)
        at_place = [f for f in linted.findings if _overlap(self._range(linted, f), here)]
        if not at_place:
            return None
        pages = "\n\n---\n\n".join(page(rule) for rule in dict.fromkeys(f.rule for f in at_place))
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, pages), self._range(linted, at_place[0]))

    def _publish(self, uri: str) -> None:
        self._documents.pop(uri, None)  # settings may have changed, too
        linted = self._linted(uri)
        diagnostics = [self._diagnostic(linted, f) for f in linted.findings]
        if linted.problem:
            start = types.Range(types.Position(0, 0), types.Position(0, 1))
            diagnostics = [
                types.Diagnostic(start, linted.problem, severity=types.DiagnosticSeverity.Error, source=_SOURCE)
            ]
        self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics))

    def _linted(self, uri: str) -> LintedDocument:
        """The findings of a document as it is now."""
        document = self.server.workspace.get_text_document(uri)
        text = document.source
        path = Path(to_fs_path(uri) or "") if uri.startswith("file:") else Path.cwd() / "untitled"
        if path.suffix.lower() not in SUFFIXES:
            path = path.with_name(path.name + _LANGUAGES.get(document.language_id or "", ""))
        if path.suffix.lower() in PYTHON:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        known = self._documents.get(uri)
        if known is None or known.file.text != text:
            known = self._documents[uri] = self._lint(path, text)
        return known

    def _lint(self, path: Path, text: str) -> LintedDocument:
        linted = LintedDocument(File(str(path), text))
        try:
            configuration = Configuration(self.options)
            selection, targets = configuration.selection(path), configuration.targets(path)
            if exclusion(path, configuration, above=True):
                return linted
            if may_hold_asm(text.encode("utf-8", "surrogatepass"), path.suffix):
                linted.findings = list(ungrouped(lint_text(str(path), text, None, selection, targets).findings))
        except SettingsError as error:
            linted.problem = f"not linted: {error}"
        except Exception as error:  # an editor shows no traceback
            linted.problem = f"not linted, the linter failed: {type(error).__name__}: {error}"
        return linted

    def _diagnostic(self, linted: LintedDocument, finding: Finding) -> types.Diagnostic:
        lines = [finding.message, f"Why: {finding.why}", f"Instead: {finding.instead}" if finding.instead else ""]
        return types.Diagnostic(
            self._range(linted, finding),
            "\n".join(filter(None, lines)),
            severity=_SEVERITIES[finding.severity],
            code=finding.rule,
            source=_SOURCE,
        )

    def _range(self, linted: LintedDocument, finding: Finding) -> types.Range:
        line, column = max(finding.line, 1), max(finding.column, 1)
        end = (finding.end_line, finding.end_column)
        return self._between(linted, line, column, *(end if end > (line, column) else (line, column + 1)))

    def _between(self, linted: LintedDocument, line: int, column: int, end_line: int, end_column: int) -> types.Range:
        """A range in the protocol's numbers: from 0, columns in the units that the editor asked for."""
        units = self.server.workspace.position_codec.client_num_units
        lines = _lines(linted.file, line, end_line)
        positions = [
            types.Position(number - 1, units(next(lines)[: at - 1]))
            for number, at in ((line, column), (end_line, end_column))
        ]
        return types.Range(*positions)


def _lines(file: File, *numbers: int) -> Iterator[str]:
    """The text of lines, by their numbers from 1."""
    for number in numbers:
        end = file.starts[number] - 1 if number < len(file.starts) else len(file.text)
        yield file.text[file.starts[number - 1] : end] if number <= len(file.starts) else ""


def _overlap(one: types.Range, other: types.Range) -> bool:
    def ends(area: types.Range) -> tuple[tuple[int, int], tuple[int, int]]:
        return (area.start.line, area.start.character), (area.end.line, area.end.character)

    (start, end), (other_start, other_end) = ends(one), ends(other)
    return start <= other_end and other_start <= end


def serve(options: Options) -> None:
    """Run a language server until the editor ends the session."""
    EditorSession(options).serve()
