"""The inline asm of a Python file."""

from __future__ import annotations

import ast
import contextlib
import difflib
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ptxdiff.lint.extract import Extracted, Note
from ptxdiff.lint.extract.calls import NAMES, Unresolved, snippet_of
from ptxdiff.lint.extract.guards import PythonGuards
from ptxdiff.lint.extract.interpret import EndOfWork, Interpreter
from ptxdiff.lint.extract.strings import File
from ptxdiff.lint.extract.values import NameScope, Ref, Tensor, TextValue, Unknown, Value
from ptxdiff.lint.snippet import Snippet, TextOrigin

if TYPE_CHECKING:
    from ptxdiff.model.derive import AsmForm


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


# ---- The asm of ptxdiff's own case files: `asm(...)` variants, with the constraints and packs of their case ----------

_NAMES = frozenset(("asm", "Case", "exact"))
_HOME = "ptxdiff"


@dataclass(frozen=True, eq=False)
class _Asm(Ref):
    """The value of a call of `asm`: its arguments and its place."""

    at: int = 0
    end: int = 0
    args: tuple[Value, ...] = ()
    keywords: tuple[tuple[str, Value], ...] = ()


_EXACT = Ref("ptxdiff.exact()")


class Cases:
    """Snippets and notes of a case file, by the place of the `asm` call."""

    def __init__(self, file: File, tree: ast.Module) -> None:
        self.file = file
        self.snippets: dict[int, dict[Snippet, None]] = {}
        self._failures: dict[int, Note] = {}
        self._resolved: set[int] = set()
        if any(isinstance(n, ast.ImportFrom) and (n.module or "").split(".")[0] == _HOME for n in ast.walk(tree)):
            Interpreter(file, tree, _NAMES, self._call).run(lambda: True)

    @property
    def notes(self) -> list[Note]:
        """Notes on variants that no path through the file resolves. A helper without arguments is no failure."""
        known = self._resolved | set(self.snippets)
        return [note for at, note in sorted(self._failures.items()) if at not in known]

    def _call(self, node: ast.Call, args: list[Value], keywords: dict[str, Value], function: str) -> Value:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        at, end = self.file.span(node)
        if name == "asm":
            return _Asm("ptxdiff.asm()", at, end, tuple(args), tuple(keywords.items()))
        if name == "exact":
            return _EXACT
        if name == "Case":
            self._case(at, keywords)
        return Ref(f"ptxdiff.{name}()")

    def _case(self, at: int, keywords: dict[str, Value]) -> None:
        variants = keywords.get("variants")
        line = self.file.place(at)[0]
        if not isinstance(variants, dict):
            self._failures.setdefault(at, Note(self.file.path, line, "not resolved: the variants of this case"))
            return
        self._resolved.add(at)
        formats = [_formats(keywords.get(side)) for side in ("outputs", "inputs")]
        exact = _is_exact(keywords.get("match", _EXACT))
        for name, variant in variants.items():
            if isinstance(variant, _Asm):
                self._variant(str(name), variant, formats, exact, f"{self.file.path}:{line}")

    def _variant(self, name: str, call: _Asm, formats: list[Any], exact: bool | None, group: str) -> None:
        keywords = dict(call.keywords)
        line, column = self.file.place(call.at)
        exact = _is_exact(keywords["match"]) if "match" in keywords else exact
        ftz = keywords.get("ftz")
        try:
            for text, constraints, form in _forms(call, formats):
                offsets = text.offsets if text.value == form.text else ()
                places = (
                    constraints.offsets if constraints is not None and constraints.value == form.constraints else ()
                )
                counted = form.convention == "triton" or form.pack == 1  # otherwise the operands state their contents
                outputs, inputs = (
                    None if side is None or not counted else tuple(f.storage for f in side.values()) for side in formats
                )
                last, last_column = self.file.place(call.end)
                snippet = Snippet(
                    form.text,
                    form.constraints,
                    form.convention,
                    True,
                    form.pack,
                    outputs,
                    inputs,
                    function=name,
                    group=group,
                    exact=exact,
                    ftz=ftz.value if isinstance(ftz, TextValue) else "",
                    guards=("targets=",) if "targets" in keywords else (),
                    origin=TextOrigin(self.file.path, line, column, offsets, last, self.file.starts, last_column),
                    constraints_origin=TextOrigin(
                        self.file.path, line, column, places, last, self.file.starts, last_column
                    ),
                )
                self.snippets.setdefault(call.at, {}).setdefault(snippet)
        except ValueError as error:
            note = Note(self.file.path, line, f"not resolved: variant {name}: {error}")
            self._failures.setdefault(call.at, note)


_Written = tuple[TextValue, TextValue | None]
"""Asm and constraints as written in the file."""


def _forms(call: _Asm, formats: list[Any]) -> Iterator[tuple[TextValue, TextValue | None, AsmForm]]:
    """For each pack of a variant: asm and constraints as written, and in the form that runs (CUDA C++ with `$0`).

    Raises ValueError if something is not known, or does not form a variant.
    """
    from ptxdiff.model.case import Case
    from ptxdiff.model.derive import AsmForm, asm_form, packs_of
    from ptxdiff.model.variants import AsmVariant, asm

    keywords = dict(call.keywords)
    given = [*call.args, None, None][:2]
    text = keywords.get("text", given[0])
    pack, packs = keywords.get("pack"), keywords.get("packs")
    written = _written(text, keywords.get("constraints", given[1]))
    if any(isinstance(v, (Unknown, Ref)) for v in (pack, packs)):
        raise ValueError("its pack is not known")
    convention = keywords.get("convention")
    if convention is not None and not isinstance(convention, TextValue):
        raise ValueError("its convention is not known")
    kind = "triton" if convention is None else convention.value
    plain = {p: (t.value, c.value) if c is not None else t.value for p, (t, c) in written.items()}
    if isinstance(text, dict):
        variant = asm(plain, convention=kind)
    else:
        only, constraints = written[1]
        stated = constraints.value if constraints is not None else None
        variant = asm(only.value, stated, pack=pack, packs=packs, convention=kind)
        written = dict.fromkeys((*variant.texts, *variant.derived_packs), (only, constraints))
    assert isinstance(variant, AsmVariant)
    if any(f is None for f in formats):
        if variant.derived_packs or any(t.constraints is None for t in variant.texts.values()):
            raise ValueError("the formats of its case are not known, and its constraints derive from them")
        if kind == "cuda":
            raise ValueError("the formats of its case are not known")
        for p, each in variant.texts.items():
            yield *written[p], AsmForm(each.text, str(each.constraints), p, "llvm" if kind == "llvm" else "triton")
        return
    case = Case(inputs=formats[1], outputs=formats[0], reference=len, variants={"asm": variant})
    packs = packs_of(case, variant)
    for p in packs[:1] if variant.derived_packs else packs:  # other derived packs repeat the same instruction
        yield *written[p], asm_form(case, variant, p)


def _written(text: Value, constraints: Value) -> dict[int, _Written]:
    """By pack, the text and its constraints. Raises ValueError."""
    by_pack: dict[int, _Written] = {}
    for pack, each in text.items() if isinstance(text, dict) else [(1, (text, constraints))]:
        one, stated = each if isinstance(each, tuple) and len(each) == 2 else (each, None)
        if not isinstance(one, TextValue) or not (stated is None or isinstance(stated, TextValue)):
            raise ValueError("its asm or its constraints are not known")
        by_pack[pack] = (one, stated)
    return by_pack


def _formats(value: Value) -> dict[str, Any] | None:
    """Formats by name, from names of `ptxdiff.references.formats`; None if one is not known."""
    from ptxdiff.references import formats
    from ptxdiff.references.description import Format

    if not isinstance(value, dict):
        return None
    by_name = {str(n): getattr(formats, f.last, None) if isinstance(f, Ref) else None for n, f in value.items()}
    return by_name if all(isinstance(f, Format) for f in by_name.values()) else None


def _is_exact(match: Value) -> bool | None:
    if isinstance(match, dict):
        each = {_is_exact(m) for m in match.values()}
        return each.pop() if len(each) == 1 else None
    return None if isinstance(match, Unknown) else match is _EXACT
