"""The inline asm of a Python file."""

from __future__ import annotations

import ast
import contextlib
import difflib
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from ptxdiff.lint.extract import Extracted, Note
from ptxdiff.lint.extract.calls import NAMES, Unresolved, snippet_of
from ptxdiff.lint.extract.guards import PythonGuards
from ptxdiff.lint.extract.interpret import EndOfWork, Interpreter
from ptxdiff.lint.extract.strings import File
from ptxdiff.lint.extract.values import NameScope, Tensor, TextValue, Unknown, Value
from ptxdiff.lint.snippet import Snippet

_WORD = re.compile(r"[A-Za-z][\w.:]{2,}\s*")


def incomplete_snippets(snippets: Iterable[Snippet]) -> set[Snippet]:
    """The snippets of one call that differ from another snippet only by missing words."""
    all_of_them = list(snippets)
    return {s for s in all_of_them if any(_lacks_words(s, other) for other in all_of_them if other is not s)}


def _lacks_words(snippet: Snippet, other: Snippet) -> bool:
    if snippet.constraints != other.constraints or not 0 < len(other.asm) - len(snippet.asm) < len(other.asm):
        return False
    # Only for an instruction without its opcode: the remaining statement begins with an operand.
    if not re.search(r"(?:^|[;{}\n])\s*(?:[$%]\w+|\{?\s*[\w$%]+\s*)\s*,", snippet.asm):
        return False
    changes = difflib.SequenceMatcher(None, snippet.asm, other.asm, autojunk=False).get_opcodes()
    added = [other.asm[start:end] for kind, _, _, start, end in changes if kind != "equal"]
    return all(kind in ("equal", "insert") for kind, *_ in changes) and all(_WORD.fullmatch(w) for w in added)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Unreached:
    """Reports calls of a file whose module an interpreter has walked."""

    def __init__(self, interpreter: Interpreter, tree: ast.Module) -> None:
        self._interpreter = interpreter
        self._functions: dict[ast.AST, tuple[ast.AST, ...]] = {}
        self._scopes: dict[ast.AST, NameScope] = {}
        self._place(tree, ())

    def _place(self, node: ast.AST, around: tuple[ast.AST, ...]) -> None:
        if isinstance(node, ast.Call):
            self._functions[node] = around
        inner = (*around, node) if isinstance(node, _FUNCTIONS) else around
        for child in ast.iter_child_nodes(node):
            self._place(child, inner)

    def report(self, calls: Iterable[ast.Call]) -> None:
        """Report each call, with the known values of its arguments."""
        for call in calls:
            functions = self._functions.get(call, ())
            scope = self._interpreter.module
            for function in functions:
                scope = self._scope(function, scope)
            name = getattr(functions[-1], "name", "") if functions else ""
            self._briefly(lambda c=call, s=scope: self._interpreter.value(c, s), name)  # type: ignore[misc]

    def _scope(self, function: ast.AST, outer: NameScope) -> NameScope:
        """The names of a function. Parameters, and names assigned in several places or in a branch, stay unknown."""
        if function in self._scopes:
            return self._scopes[function]
        scope = self._scopes[function] = NameScope(outer)
        name = getattr(function, "name", "")
        counts = Counter(n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        parameters = {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
        for each in {*counts, *parameters}:
            scope.names[each] = Unknown(f"the name {each} of {name}")
        for statement in getattr(function, "body", []):
            if isinstance(statement, ast.Assign) and isinstance(target := statement.targets[0], ast.Name):
                plain = len(statement.targets) == 1 and counts[target.id] == 1 and target.id not in parameters
                if plain and not any(isinstance(n, ast.Call) for n in ast.walk(statement)):
                    self._briefly(lambda s=statement: self._interpreter.assign(s, scope), name)  # type: ignore[misc]
        return scope

    def _briefly(self, walk: Callable[[], object], name: str) -> None:
        with contextlib.suppress(EndOfWork, RecursionError):
            self._interpreter.begin(name)
            walk()


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
            known = self.snippets.setdefault(at, {})
            if len(known) < SNIPPETS:
                known.setdefault(replace(snippet, guards=self.guards.of(node)))
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
    extracted = Extracted(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(file.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        message = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deeply"
        version = ".".join(map(str, sys.version_info[:2]))
        extracted.unreadable = Note(file.path, line, f"the file is no source of Python {version}: {message}")
        return extracted
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
        extracted.notes += [Note(file.path, 1, message) for message in dict.fromkeys(interpreter.incomplete)]
        missing = set(sites) - {*collector.snippets, *collector.failures, *collector.other}
        if missing:
            Unreached(interpreter, tree).report(sites[at] for at in sorted(missing))
    if "ptxdiff" in file.text:
        from ptxdiff.lint.extract.cases import Cases

        cases = Cases(file, tree)
        collector.snippets |= cases.snippets
        extracted.notes += cases.notes
    for at in sorted({*collector.snippets, *collector.failures, *collector.other, *sites}):
        snippets = collector.snippets.get(at, {})
        left_out = incomplete_snippets(snippets) if at in sites and len(snippets) > 1 else set()
        extracted.snippets += [s for s in snippets if s not in left_out]
        line = file.place(at)[0]
        if left_out:
            extracted.notes.append(Note(file.path, line, "not looked at: a way to this call that leaves out an opcode"))
        if at in collector.other:
            extracted.skipped.append(Note(file.path, line, collector.other[at]))
        elif not snippets:
            message = collector.failures.get(at, "no path through the file that was followed leads to this call")
            extracted.notes.append(Note(file.path, line, f"not resolved: {message}"))
    return extracted
