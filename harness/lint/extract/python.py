"""The inline asm of a Python file."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from dataclasses import replace

from ptxdiff.lint.extract import Extracted, Note
from ptxdiff.lint.extract.calls import NAMES, Unresolved, snippet_of
from ptxdiff.lint.extract.guards import PythonGuards
from ptxdiff.lint.extract.interpret import Interpreter
from ptxdiff.lint.extract.literals import File
from ptxdiff.lint.extract.paths import incomplete_snippets
from ptxdiff.lint.extract.unreached import Unreached
from ptxdiff.lint.extract.values import Tensor, TextValue, Unknown, Value
from ptxdiff.lint.snippet import Snippet

SNIPPETS = 200
"""The most snippets of one call, one for each path to it."""
_AMD = re.compile(r"(?:^|,)\s*[=&+]*[vsa]\s*(?:,|$)")
_AMD_OPCODE = re.compile(r"\s*(?:s|v|ds|buffer|global|flat|image)_[a-z]\w*(?:\s|;|$)")
_HOST = re.compile(r"~\{(?:dirflag|fpsr|flags|cc)\}")


class _Collector:
    """Snippets by the place of their call."""

    def __init__(self, file: File, guards: PythonGuards) -> None:
        self.file = file
        self.guards = guards
        self.snippets: dict[int, dict[Snippet, None]] = {}
        self.failures: dict[int, str] = {}
        self.other: dict[int, str] = {}

    def call(self, node: ast.Call, args: list[Value], keywords: dict[str, Value], function: str) -> Value:
        """Record a call; its value is a tensor of the dtype, or one for each dtype."""
        at = self.file.span(node)[0]
        name = "inline_asm" if _is_mlir(node, args, keywords) else "inline_asm_elementwise"
        try:
            snippet = snippet_of(self.file, node, name, args, keywords, function)
        except Unresolved as error:
            self.failures.setdefault(at, str(error))
            return Unknown("the result of inline asm that is not known")
        if not snippet.asm.strip() and not snippet.constraints.strip() and snippet.inputs != ():
            self.failures.setdefault(at, "the asm is empty on the ways that were followed")
        elif foreign(snippet):
            self.other[at] = foreign(snippet)
        else:
            found = self.snippets.setdefault(at, {})
            if len(found) < SNIPPETS:
                found.setdefault(replace(snippet, guards=self.guards.of(node)))
        kinds = [Tensor(kind) for kind in snippet.outputs or ()]
        return kinds[0] if len(kinds) == 1 else tuple(kinds) if kinds else Unknown("the results of inline asm")


def _is_mlir(node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> bool:
    written = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if written in NAMES:
        return written == "inline_asm"
    return (
        "has_side_effects" in keywords
        or "asm_string" in keywords
        or (len(args) >= 4 and "dtype" not in keywords and not isinstance(args[0], TextValue))
    )


def foreign(snippet: Snippet) -> str:
    """Another machine for which a snippet is; empty for PTX."""
    if _AMD.search(snippet.constraints) or _AMD_OPCODE.match(snippet.asm):
        return "asm of an AMD GPU"
    if _HOST.search(snippet.constraints):
        return "asm of a CPU"
    return ""


def extract_python(file: File) -> Extracted:
    """All snippets of the calls, and of the variants of cases, in a Python file."""
    found = Extracted(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(file.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        words = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deeply"
        version = ".".join(map(str, sys.version_info[:2]))
        found.unreadable = Note(file.path, line, f"the file is no source of Python {version}: {words}")
        return found
    collector = _Collector(file, PythonGuards(tree))
    sites = {
        file.span(n)[0]: n
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in NAMES
    }
    if "inline_asm" in file.text:
        interpreter = Interpreter(file, tree, NAMES, collector.call)
        interpreter.run(
            lambda: (
                bool(set(sites) | set(collector.failures))
                and not (set(sites) | set(collector.failures) <= set(collector.snippets) | set(collector.other))
            )
        )
        found.notes += [Note(file.path, 1, words) for words in dict.fromkeys(interpreter.incomplete)]
        missing = set(sites) - {*collector.snippets, *collector.failures, *collector.other}
        if missing:
            Unreached(interpreter, tree).report(sites[at] for at in sorted(missing))
    if "ptxdiff" in file.text:
        from ptxdiff.lint.extract.cases import Cases

        cases = Cases(file, tree)
        collector.snippets |= cases.snippets
        found.notes += cases.notes
    for at in sorted({*collector.snippets, *collector.failures, *collector.other, *sites}):
        snippets = collector.snippets.get(at, {})
        left_out = incomplete_snippets(snippets) if at in sites and len(snippets) > 1 else set()
        found.snippets += [s for s in snippets if s not in left_out]
        line = file.place(at)[0]
        if left_out:
            found.notes.append(Note(file.path, line, "not looked at: a way to this call that leaves out an opcode"))
        if at in collector.other:
            found.skipped.append(Note(file.path, line, collector.other[at]))
        elif not snippets:
            words = collector.failures.get(at, "no path through the file that was followed leads to this call")
            found.notes.append(Note(file.path, line, f"not resolved: {words}"))
    return found
