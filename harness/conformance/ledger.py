"""The ledger: one line per form, with the evidence that the emulator's definition of it is right.

The first line of `ledger.jsonl` describes the runs; the other lines are sorted by form. A line is valid for the
definition that was measured, and contains a digest of that definition's code. If the code has changed since, the line
is out of date and confirms nothing.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import FORMS, Bound
from ptxdiff.emulator.targets import Target

if TYPE_CHECKING:
    from ptxdiff.conformance.campaign import Measured
    from ptxdiff.conformance.fetch import Identity
    from ptxdiff.conformance.measure import Tally

PATH = Path(__file__).with_name("ledger.jsonl")
VERSION = 1

CONFIRMED, MEASURED, MISMATCH = "confirmed", "measured", "mismatch"
SPECIFICATION, UNCONFIRMED = "specification only", "unconfirmed"
STATUSES = {
    CONFIRMED: "equal to hardware on every input tried",
    MEASURED: "approximate: not hardware's bits, the distance from them measured, special values equal",
    MISMATCH: "differs from hardware",
    SPECIFICATION: "no hardware at hand has it",
    UNCONFIRMED: "not run on hardware, or changed since",
}
"""The meaning of each status."""


class LedgerError(ValueError):
    """The ledger cannot be read; the message names the file and the line."""


@dataclass(frozen=True)
class Campaign:
    """The run that measured some lines: device, target, driver, ptxas release, and day."""

    device: str
    target: str
    driver: str
    ptxas: str
    date: str


@dataclass(frozen=True)
class Entry:
    """The evidence for a form.

    `run`: the name of its run. `inputs`: how many inputs were tried; `exhaustive`: whether these are all. `emulated`:
    how many of them went through `ptxdiff.emulate`; the others went through the definition's code on the device. `ulp`:
    the greatest distance of an approximate form, with the input `worst`. `bound`: the ISA's bound, in its words.
    `envelope`: if that is not in ulps, the greatest distance in the same measure. `offenders`: some inputs with a wrong
    result. `why`: why nothing was measured. `opinions`: for a form that no available hardware has, the independent
    definitions that agree with the emulator's, with the number of inputs of each comparison. `definition`: digest of
    the definition that was measured or compared with those opinions. `errors`: for an approximate form, the largest
    errors of that definition over all inputs (`ptxdiff.conformance.errors`).
    """

    form: str
    status: str
    run: str = ""
    inputs: int = 0
    exhaustive: bool = False
    emulated: int = 0
    mismatches: int = 0
    ulp: int | None = None
    worst: Mapping[str, Any] | None = None
    bound: str = ""
    envelope: str = ""
    offenders: tuple[Mapping[str, Any], ...] = ()
    why: str = ""
    opinions: Mapping[str, int] = field(default_factory=dict)
    definition: str = ""
    errors: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """The line of the file."""
        return json.dumps(self.json(), separators=(",", ":"))

    def json(self) -> dict[str, Any]:
        """The fields by name, without empty ones."""
        kept = {k: v for k, v in vars(self).items() if v is not None and v is not False and v not in ("", (), 0, {})}
        if self.status in (CONFIRMED, MEASURED, MISMATCH):
            kept["mismatches"] = self.mismatches
        if self.ulp is not None:
            kept["ulp"] = self.ulp
        return {k: kept[k] for k in vars(self) if k in kept}


@dataclass(frozen=True)
class Ledger:
    """The runs by name, and the entries by form."""

    runs: Mapping[str, Campaign] = field(default_factory=dict)
    entries: Mapping[str, Entry] = field(default_factory=dict)

    def text(self) -> str:
        """The text of the file."""
        used = {e.run for e in self.entries.values()}
        head = {"ledger": VERSION, "runs": {n: vars(r) for n, r in sorted(self.runs.items()) if n in used}}
        lines = [json.dumps(head, separators=(",", ":"))]
        lines += [self.entries[form].line() for form in sorted(self.entries)]
        return "\n".join(lines) + "\n"


def read(path: Path = PATH) -> Ledger:
    """Read a ledger; an empty one if there is no file. Raises LedgerError."""
    if not path.exists():
        return Ledger()
    runs: dict[str, Campaign] = {}
    entries: dict[str, Entry] = {}
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            found = json.loads(text)
            if number == 1:
                if found["ledger"] != VERSION:
                    raise LedgerError(f"{path}: version {found['ledger']}; this is read by another ptxdiff")
                runs = {n: Campaign(**r) for n, r in found["runs"].items()}
                continue
            found["offenders"] = tuple(found.get("offenders", ()))
            entry = Entry(**found)
        except LedgerError:
            raise
        except (ValueError, TypeError, KeyError) as e:
            raise LedgerError(f"{path}, line {number}: {e}") from None
        if entry.status not in STATUSES or (entry.run and entry.run not in runs) or entry.form in entries:
            raise LedgerError(f"{path}, line {number}: form {entry.form!r} twice, or an unknown status or run")
        entries[entry.form] = entry
    return Ledger(runs, entries)


@cache
def known() -> Mapping[str, Bound]:
    """Every form that has an entry, by name, sorted: those that a snippet can hold, matrix products, tcgen05."""
    from ptxdiff.conformance import forms
    from ptxdiff.conformance import product_forms as productforms

    by_name = {**forms.bounds_of(), **productforms.bounds_of(), **bounds_of()}
    return {name: by_name[name] for name in sorted(by_name)}


def bound_of(form: str) -> Bound | None:
    """The form of that name in `known`; None if there is none. It searches only forms with the same opcode."""
    from ptxdiff.conformance import forms
    from ptxdiff.conformance import product_forms as productforms

    opcode = re.split(r"[. ]", form, maxsplit=1)[0]
    if opcode == OPCODE:
        return bounds_of().get(form)
    products = productforms.bounds_of() if opcode in ("mma", "wgmma") else {}
    return products.get(form) or forms.bounds_with(opcode).get(form)


def current(book: Ledger | None = None) -> dict[str, Entry]:
    """Every form of the registry with its entry; a missing or outdated entry becomes unconfirmed."""
    entries = (book or _committed()).entries
    found = {}
    for form in known():
        entry = entries.get(form, Entry(form, UNCONFIRMED, why="never run on hardware"))
        if entry.status in (CONFIRMED, MEASURED, MISMATCH) and entry.definition != digest(form):
            why = f"its definition has changed since it was measured ({entry.status} then)"
            entry = Entry(form, UNCONFIRMED, why=why, bound=entry.bound)
        elif entry.opinions and entry.definition != digest(form):
            entry = replace(entry, opinions={}, definition="")
        found[form] = entry
    return found


@cache
def _committed() -> Ledger:
    return read()


def confirmed(forms: Iterable[str], book: Ledger | None = None) -> bool:
    """Whether hardware confirms all of these forms; loads, stores, branches and barriers need no confirmation.

    book: the ledger that says so; None: the committed one.
    """
    if book is None:
        return all(map(_confirmed, forms))
    return all(_confirmed_by(book, form) for form in forms)


@cache
def _confirmed(form: str) -> bool:
    return _confirmed_by(_committed(), form)


def _confirmed_by(book: Ledger, form: str) -> bool:
    from ptxdiff.emulator.isa.forms import find

    bound = bound_of(form)
    opcode, *modifiers = form.split(".")
    bounds = find(opcode, tuple(modifiers))
    if bounds and not any(b.form.facts.computes for b in bounds):
        return True
    entry = book.entries.get(form)
    return entry is not None and bound is not None and entry.status == CONFIRMED and entry.definition == digest(form)


# From measurements to entries ----------------------------------------------------------------------------------


def updated(book: Ledger, outcome: Measured, day: date) -> Ledger:
    """The ledger with the results of a campaign; forms that it did not measure keep their entries."""
    from ptxdiff.conformance import product_forms as productforms

    identity = outcome.identity
    run = Campaign(identity.device, identity.target, identity.driver, identity.ptxas, day.isoformat())
    name = _name(book, run)
    entries = {form: e for form, e in book.entries.items() if form in known()}
    for form, tallies in outcome.tallies.items():
        entry, had = entry_of(form, tallies, name), book.entries.get(form)
        if had is not None and had.definition == entry.definition:
            entry = replace(entry, errors=had.errors)
            if form in productforms.bounds_of() and had.status == entry.status == CONFIRMED:
                # There is rarely time for all tiles of all forms: a shorter run takes nothing from a longer one.
                entry = max(had, entry, key=lambda e: e.inputs)
        elif form in productforms.bounds_of() and entry.status == UNCONFIRMED and had and _is_confirmed(had, form):
            entry = had  # it could not be measured this time, which says nothing against it
        entries[form] = entry
    for form in known():
        if form not in entries:
            entries[form] = _unmeasured(form, identity)
    return Ledger({**book.runs, name: run}, entries)


def _is_confirmed(entry: Entry, form: str) -> bool:
    return entry.status == CONFIRMED and entry.definition == digest(form)


def with_opinions(book: Ledger, agreed: Mapping[str, Mapping[str, int]]) -> Ledger:
    """The ledger with the inputs on which independent definitions agreed, by form and definition's name.

    Only entries with the status `specification only` get them.
    """
    entries = dict(book.entries)
    for form, opinions in agreed.items():
        entry = entries.get(form)
        if entry is not None and entry.status == SPECIFICATION:
            entries[form] = replace(entry, opinions=dict(sorted(opinions.items())), definition=digest(form))
    return Ledger(book.runs, entries)


def with_errors(book: Ledger, found: Mapping[str, Mapping[str, Any]]) -> Ledger:
    """The ledger with the largest errors of forms. Forms whose definition was not measured do not get them."""
    entries = dict(book.entries)
    for form, errors in found.items():
        entry = entries.get(form)
        if entry is not None and entry.definition == digest(form):
            entries[form] = replace(entry, errors=errors)
    return Ledger(book.runs, entries)


def _name(book: Ledger, run: Campaign) -> str:
    same = next((n for n, r in book.runs.items() if r == run), None)
    return same or str(1 + max((int(n) for n in book.runs), default=0))


def _unmeasured(form: str, identity: Identity) -> Entry:
    from ptxdiff.conformance import bounds, forms

    if known()[form].form.operation in REFUSED:
        return Entry(form, UNCONFIRMED, why="the emulator refuses it")
    lacking = known()[form].requirement_unmet(Target.parse(identity.target))
    if lacking:
        return Entry(form, SPECIFICATION, why=f"needs {lacking}", bound=bounds.bound(form))
    compared = form not in forms.bounds_of() or forms.has_snippets(form)
    why = "never run on hardware" if compared else "has no result to compare"
    return Entry(form, UNCONFIRMED, why=why, bound=bounds.bound(form))


def entry_of(form: str, tallies: Sequence[Tally], run: str) -> Entry:
    """One form's entry from the tallies of its snippets."""
    from ptxdiff.conformance import bounds

    approximate = known()[form].form.approximate
    ran = [t for t in tallies if t.inputs and not t.refused]
    said = next((t.refused or t.failure for t in tallies if t.refused or t.failure), "")
    entry = Entry(form, UNCONFIRMED, why=said, bound=bounds.bound(form))
    if not ran or any(t.failure for t in tallies):
        return replace(entry, run=run, why=said or "never run on hardware")
    mismatches = sum(t.mismatches for t in ran)
    farthest = max(ran, key=lambda t: t.distance)
    errors = [t.errors for t in ran if t.errors]
    return replace(
        entry,
        status=MISMATCH if mismatches else MEASURED if farthest.distance else CONFIRMED,
        run=run,
        inputs=sum(t.inputs for t in ran),
        exhaustive=all(t.exhausted for t in ran),
        emulated=sum(t.emulated for t in ran),
        mismatches=mismatches,
        ulp=(farthest.distance or None) if approximate else None,
        worst=_shown(farthest.worst),
        envelope=bounds.envelope(form, tuple(map(max, zip(*errors, strict=True)))) if farthest.distance else "",
        offenders=tuple(_shown(o) or {} for t in ran for o in t.offenders)[:3],
        definition=digest(form),
    )


def _shown(offender: Any) -> dict[str, Any] | None:
    if offender is None:
        return None
    shown = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(offender).items()}
    return {k: v for k, v in shown.items() if v}


def changes(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> dict[str, tuple[Entry | None, Entry]]:
    """The forms whose status or greatest distance changed, with both entries."""
    changed = {}
    for form, now in after.items():
        had = before.get(form)
        if had is None or (had.status, had.ulp) != (now.status, now.ulp):
            changed[form] = (had, now)
    return changed


# Digests of definitions -----------------------------------------------------------------------------------------


@cache
def digest(form: str) -> str:
    """Eight digits that change when a form's definition does: its code, that of its helpers, and its constants."""
    from ptxdiff.conformance import product_forms as productforms

    bound = bound_of(form)
    if bound is None:
        raise KeyError(form)
    function = bound.form.function
    if productforms.multiplies(bound.form):
        text = productforms.definition(form, code_digest, digest)
    elif function is None:
        text = bound.form.operation
    else:
        results = len(bound.form.destinations) + len(bound.form.writes)
        constants = [bound.array_function(r).constants for r in range(results)]
        text = f"{code_digest(function)} {bound.source_types} {constants}"
    return hashlib.sha256(text.encode()).hexdigest()[:8]


_ROOM = re.compile(r"^ptxdiff\.emulator\.(?:(?:text|binding|machine|kernel|analysis|numeric)\.)?")
"""A helper's subpackage does not affect bits, so moving it changes no digest."""

_DIGESTED = "harness" + ".ptx."
"""How digests name the package: forms that a device confirmed have digests with the name of that time."""

_NAMES_OF_THAT_TIME = {
    "warp.matrices": "matrices",
    "warp.mma": "tensor",
    "warp.sparse_mma": "sparse",
    "warp.scaled_mma": "scaled",
    "warp.sparse_scaled_mma": "sparsescaled",
    "warp.fragments": "fragments",
    "wgmma.multiply": "warpgroup",
    "wgmma.descriptors": "descriptors",
    "tensor_cores": "multiply",
}
"""The names in digests of modules that were renamed since."""


def _digested(module: str) -> str:
    """The name of a module in digests: modules of other rooms keep theirs."""
    name, within = _ROOM.subn("", module)
    return _DIGESTED + _NAMES_OF_THAT_TIME.get(name, name) if within else module


@cache
def code_digest(function: Callable[..., object], text: Callable[[ast.AST], str] = ast.unparse) -> str:
    """A digest of the code of a definition and of all functions that it calls. text: how code becomes text.

    Definitions that a device confirmed have no f-strings with quotes, so `ast.unparse` gives one text of them in every
    version of Python; other code needs `text_of`.
    """
    seen: dict[str, str] = {}
    todo: list[Any] = [function]
    while todo:
        visited = todo.pop()
        name = f"{_digested(visited.__module__)}.{visited.__qualname__}"
        if name in seen:
            continue
        seen[name] = _plain(visited, text)
        for word in sorted(_names(visited.__code__)):
            value = visited.__globals__.get(word)
            if isinstance(value, types.FunctionType) and value.__module__.startswith("ptxdiff."):
                todo.append(value)
            elif isinstance(value, (int, float, tuple)):
                seen[f"{name} {word}"] = repr(value)
            elif isinstance(value, np.ndarray):
                seen[f"{name} {word}"] = repr(value.tolist())
    return hashlib.sha256(repr(sorted(seen.items())).encode()).hexdigest()


def _names(code: types.CodeType) -> set[str]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*(_names(c) for c in inner))


def _plain(function: Any, text: Callable[[ast.AST], str]) -> str:
    """A function's code without decorators, docstring, comments and layout."""
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    node.decorator_list = []
    if ast.get_docstring(node) is not None:
        node.body = node.body[1:] or [ast.Pass()]
    return text(node).replace("from ptxdiff.emulator.", f"from {_DIGESTED}")


def text_of(node: ast.AST) -> str:
    """The text of a syntax tree, the same in every version of Python.

    From 3.12 on `ast.unparse` chooses other quotes for f-strings, so their parts stand in a tuple here.
    """
    return ast.unparse(_FormattedTexts().visit(node))


class _FormattedTexts(ast.NodeTransformer):
    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Tuple:
        return ast.Tuple([self.visit(part) for part in node.values], ast.Load())

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.Tuple:
        specification = [] if node.format_spec is None else [self.visit(node.format_spec)]
        return ast.Tuple([self.visit(node.value), ast.Constant(node.conversion), *specification], ast.Load())


# The forms of tcgen05. No device at hand has them ------------------------------------------------------------------
#
# Their evidence is the specification, as the ledger states.
#
# Their definitions are those of `ptxdiff.emulator.kernel.warp.mma*`; tests compare them with separate references.

OPCODE = "tcgen05"
REFUSED = ("tcgen05_ashift",)
"""Operations that are only declared, so that a kernel with them gets an error that names the operation."""


@cache
def bounds_of() -> Mapping[str, Bound]:
    """Every form by name, sorted."""
    isa.load()
    by_name = {b.name: b for form in FORMS[OPCODE] for b in form.spellings()}
    return MappingProxyType({name: by_name[name] for name in sorted(by_name)})
