"""The asm of ptxdiff's own case files: `asm(...)` variants, with the constraints and packs of their case."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptxdiff.lint.extract import Note
from ptxdiff.lint.extract.interpret import Interpreter
from ptxdiff.lint.extract.strings import File
from ptxdiff.lint.extract.values import Ref, TextValue, Unknown, Value
from ptxdiff.lint.snippet import Snippet, TextOrigin

if TYPE_CHECKING:
    from ptxdiff.model.derive import AsmForm

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
