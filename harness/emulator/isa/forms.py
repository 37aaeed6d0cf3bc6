"""Instruction forms, and the look-up of forms by opcode and modifiers."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache

from ptxdiff.emulator.isa import selectors
from ptxdiff.emulator.isa.facts import ARITHMETIC, Facts
from ptxdiff.emulator.isa.modifiers import CODES, VECTORS, heeded
from ptxdiff.emulator.numeric.vectorise import Array, ArrayFunction
from ptxdiff.emulator.targets import AnyTarget, Requirement
from ptxdiff.emulator.text.types import TYPES, ScalarType

Undefined = Callable[[list[Array], list[Array]], Array]
"""Computes the result's mask of undefined bits from the sources' values and masks."""


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One operand of a form: its name in the scalar definition, its type, and how it may be written.

    `vector`: it is an element between braces; all such elements form one operand of the instruction. `selector`: the
    kind of selector that it takes (see `selectors`). `negatable`: a register may be written `-a`.
    """

    name: str
    type: str
    destination: bool
    optional: bool = False
    constant: bool = False
    vector: bool = False
    selector: str = ""
    negatable: bool = False


@dataclass(frozen=True, slots=True)
class ModifierGroup:
    """A modifier's place in the spelling: the alternatives, and whether it is optional."""

    name: str
    choices: tuple[str, ...]
    optional: bool
    flag: bool


@dataclass(eq=False)
class Form:
    """A declared instruction form: one row of the ISA's syntax box, with its definition."""

    pattern: str
    opcode: str
    groups: tuple[ModifierGroup, ...]
    operands: tuple[OperandSpec, ...]
    function: Callable[..., int] | None
    section: str
    requires: Requirement
    needs: dict[str, Requirement]
    approximate: bool
    contracts: str
    relaxed: bool
    undefined: str | Undefined
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    operation: str = ""
    excludes: tuple[tuple[str, ...], ...] = ()
    module: str = ""
    constants: tuple[str, ...] = field(default=())
    given: dict[str, int] = field(default_factory=dict)
    small: tuple[str, ...] = ()
    braces: tuple[str, ...] = ()
    rounded: Callable[..., int] | None = None
    facts: Facts = ARITHMETIC

    @cached_property
    def destinations(self) -> tuple[OperandSpec, ...]:
        """The operands that are written."""
        return tuple(o for o in self.operands if o.destination)

    @cached_property
    def sources(self) -> tuple[OperandSpec, ...]:
        """The operands that are read."""
        return tuple(o for o in self.operands if not o.destination)

    @cached_property
    def selections(self) -> dict[str, int]:
        """Parameters for selectors and signs of operands, each with its value if none is written."""
        codes = {o.name + "sel": selectors.default(o.selector, o.name) for o in self.operands if o.selector}
        return codes | {o.name + "neg": 0 for o in self.operands if o.negatable}

    @cached_property
    def defaults(self) -> dict[str, int]:
        """Parameters that neither operands nor modifiers set, each with the row's value or the definition's default."""
        names, values = parameters(self.function) if self.function else ((), ())
        return dict(zip(names[len(names) - len(values) :], values, strict=True)) | self.given

    @property
    def documentation(self) -> str:
        """The rule, from the definition's docstring."""
        return inspect.getdoc(self.function) or "" if self.function else ""

    def spellings(self) -> Iterable[Bound]:
        """Every legal way to write this form, in the ISA's order of modifiers."""
        options = [([None] if g.optional else []) + list(g.choices) for g in self.groups]
        for chosen in itertools.product(*options):
            bound = Bound(self, tuple(chosen))
            if not bound.excluded:
                yield bound


@dataclass(frozen=True)
class Bound:
    """A form with its modifiers chosen: `chosen[i]` is the spelling at `form.groups[i]`, None if left out.

    `selected`: by parameter, the codes of written selectors (`asel`), and 1 for `-a` (`aneg`).
    """

    form: Form
    chosen: tuple[str | None, ...]
    selected: tuple[tuple[str, int], ...] = ()

    @cached_property
    def modifiers(self) -> dict[str, str | None]:
        """The choice by group name."""
        return {g.name: c for g, c in zip(self.form.groups, self.chosen, strict=True)}

    @cached_property
    def spelling(self) -> str:
        """The instruction with its modifiers in the ISA's order: `add.rn.ftz.f32`."""
        return ".".join([self.form.opcode, *(c for c in self.chosen if c)])

    @cached_property
    def name(self) -> str:
        """The spelling; with operands if an earlier row has the same spelling: `min.f32 d, a, b, c`."""
        found = find(self.form.opcode, tuple(c for c in self.chosen if c))
        if found[0].form is self.form:
            return self.spelling
        return f"{self.spelling} {', '.join(o.name for o in self.form.operands)}"

    @property
    def excluded(self) -> bool:
        """Whether the chosen modifiers exclude each other."""
        have = {c for c in self.chosen if c}
        return any(have.issuperset(e) for e in self.form.excludes) or self._incomplete

    @property
    def _incomplete(self) -> bool:
        """Whether a modifier lacks another that it requires: an order its scope, a scope its order, `.nc` its space."""
        if self.form.opcode not in _ORDERED:
            return False
        ordered = self.modifiers.get("sem") not in (None, "weak", "volatile")
        noncoherent = self.modifiers.get("nc") is not None and self.modifiers.get("space") != "global"
        return ordered != (self.modifiers.get("scope") is not None) or noncoherent

    def type_of(self, spec: OperandSpec) -> ScalarType:
        """The operand's type under the chosen modifiers."""
        kind = self._read_as(spec)
        return TYPES[f"b{kind.width}"] if spec.type.startswith("bits ") else kind

    def _read_as(self, spec: OperandSpec) -> ScalarType:
        """The type with which the definition reads the operand."""
        return self._type(spec.type.removeprefix("bits "))

    def _type(self, name: str) -> ScalarType:
        if name.startswith("wide "):
            narrow = self._type(name[5:])
            return TYPES[f"{narrow.kind}{2 * narrow.width}"]
        chosen = self.modifiers.get(name)
        return TYPES[chosen if chosen else name]

    def requirement_unmet(self, target: AnyTarget) -> Requirement | None:
        """The requirement of this spelling that the target does not meet, or None."""
        wanted = [self.form.requires] + [self.form.needs[c] for c in self.chosen if c in self.form.needs]
        return next((r for r in wanted if not target.has(r)), None)

    @property
    def contraction(self) -> str:
        """`mul`, `add` or `sub` if ptxas may fuse this with its partner, else empty."""
        return self.form.contracts if self.modifiers.get("rnd") is None else ""

    def _constant(self, name: str, result: int) -> int:
        if name == "result":
            return result
        if name in self.form.selections:
            return dict(self.selected).get(name, self.form.selections[name])
        for suffix in ("width", "signed"):
            if name.endswith(suffix):
                chosen = self.modifiers.get(name.removesuffix(suffix) + "type")
                if chosen:
                    return int(getattr(TYPES[chosen], suffix))
        group = next((g for g in self.form.groups if g.name == name), None)
        if group is None:
            return int(self.form.defaults[name])
        chosen = self.modifiers[name]
        if group.flag:
            return int(chosen is not None)
        return CODES[chosen or group.choices[0]]

    def array_function(self, result: int = 0, rounded: bool = False) -> ArrayFunction:
        """The definition over arrays, for destination number `result` (implicit destinations come last).

        `rounded`: for an approximate form, the model that rounds to nearest.
        """
        return _array_function(self, result, rounded)

    @cached_property
    def source_types(self) -> tuple[tuple[int, bool], ...]:
        """Width and signedness of every value that the definition reads, implicit registers included."""
        kinds = [self._read_as(s) for s in self.form.sources]
        return tuple((t.width, t.signed) for t in kinds) + ((1, False),) * len(self.form.reads)


@cache
def _array_function(bound: Bound, result: int, rounded: bool) -> ArrayFunction:
    form = bound.form
    function = form.rounded if rounded else form.function
    assert function is not None
    constants = tuple(bound._constant(name, result) for name in form.constants)
    written = len(form.destinations)
    width = bound.type_of(form.destinations[result]).width if result < written else 1
    return ArrayFunction(function, constants, bound.source_types, width)


FORMS: dict[str, list[Form]] = {}
"""All forms by opcode, in the order of declaration."""


def parameters(function: Callable[..., int]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """A definition's parameters, and the defaults of the last ones.

    Does not use `inspect`, which is slow for hundreds of definitions.
    """
    return function.__code__.co_varnames[: function.__code__.co_argcount], function.__defaults__ or ()


def _match(form: Form, plain: tuple[str, ...], types: tuple[str, ...]) -> Bound | None:
    """Fit modifiers to a form. Types must come in the form's order; other modifiers in any, as for ptxas."""
    left = list(plain)
    queue = list(types)
    chosen: list[str | None] = []
    for group in form.groups:
        pick = None
        if queue and queue[0] in group.choices:
            pick = queue.pop(0)
        else:
            pick = next((m for m in left if m in group.choices), None)
            if pick is not None:
                left.remove(pick)
            elif not group.optional:
                return None
        chosen.append(pick)
    if left or queue:
        return None
    bound = Bound(form, tuple(chosen))
    return None if bound.excluded else bound


_REPEATABLE = frozenset({"sat", "satfinite", "relu", "NaN", "approx", "cc", "shiftamt", "sync"})
"""Modifiers that ptxas accepts more than once."""


_FUSED = {
    **dict.fromkeys(("mul", "mad", "madc", "mul24", "mad24", "clmad", "dp2a"), frozenset({"lo", "hi", "wide"})),
    "div": frozenset({"full"}),
    "brx": frozenset({"idx"}),
    "cvt": frozenset({"pack"}),
    "shf": frozenset({"l", "r"}),
    "pmevent": frozenset({"mask"}),
}
"""Modifiers that ptxas reads as part of the opcode's name, so they must follow it directly."""


_NAMES = {
    "mbarrier": frozenset({"init", "inval", "arrive", "arrive_drop", "noComplete", "pending_count", "expect_tx"})
    | {"complete_tx", "test_wait", "try_wait", "parity"},
    "cp": frozenset({"async", "mbarrier", "arrive", "bulk", "reduce", "commit_group", "wait_group", "wait_all"}),
    "createpolicy": frozenset({"fractional", "range", "cvt"}),
    "cvta": frozenset({"to"}),
    "fence": frozenset({"proxy"}),
    "bar": frozenset({"cta", "red"}),
    "barrier": frozenset({"cta", "cluster", "arrive", "wait", "red"}),
    "wgmma": frozenset({"fence", "commit_group", "wait_group", "mma_async"}),
    "tcgen05": frozenset({"alloc", "dealloc", "relinquish_alloc_permit", "ld", "st", "cp", "shift", "mma", "commit"}),
    "clusterlaunchcontrol": frozenset({"try_cancel", "query_cancel"}),
    "tensormap": frozenset({"replace", "cp_fenceproxy"}),
    "setmaxnreg": frozenset({"inc", "dec"}),
}
"""The same for instructions whose names have several words: they come first, in the order of the form."""
_SPACES = frozenset({"global", "shared", "shared::cta", "shared::cluster", "local", "const", "param", "param::entry"})
_SEQUENCES = {
    "cp": _SPACES,
    "cvta": _SPACES | {"to"},
    "bar": frozenset({"cta", "warp", "sync", "arrive", "red", "popc", "and", "or"}),
    "barrier": frozenset({"cta", "cluster", "sync", "arrive", "wait", "red", "popc", "and", "or"}),
    "fence": frozenset({"proxy", "async"}),
}
"""Modifiers that have the order of the form; others may lie between them."""
_ORDERED = frozenset({"ld", "st", "mbarrier"})
"""Instructions that have an order with a scope, or neither (ptxas 13.4). `atom` and `red` may have one of the two."""
_VECTOR_ANYWHERE = frozenset({"ld", "st"})


def _in_order(bound: Bound, modifiers: tuple[str, ...]) -> bool:
    """Whether the words of the instruction's name come first, and modifiers whose order counts have that of the form.

    modifiers: as written, with those that ptxas ignores.
    """
    opcode = bound.form.opcode
    chosen = [c for c in bound.chosen if c]
    names = tuple(c for c in chosen if c in _NAMES.get(opcode, ()))
    if modifiers[: len(names)] != names:
        return False
    sequence = _SEQUENCES.get(opcode, frozenset())
    return list(dict.fromkeys(m for m in modifiers if m in sequence)) == [c for c in chosen if c in sequence]


@lru_cache(maxsize=4096)
def find(opcode: str, modifiers: tuple[str, ...]) -> tuple[Bound, ...]:
    """All forms that `opcode` with these modifiers can mean; they differ in their operands. May be empty."""
    if not _FUSED.get(opcode, frozenset()).isdisjoint(modifiers[1:]):
        return ()
    written = modifiers
    modifiers = heeded(opcode, modifiers)
    types = tuple(m for m in modifiers if m in TYPES or m in VECTORS)
    if opcode in _VECTOR_ANYWHERE:
        types = tuple(sorted(types, key=lambda m: m not in VECTORS))
    plain = tuple(m for m in modifiers if m not in TYPES and m not in VECTORS)
    plain = tuple(m for i, m in enumerate(plain) if m not in _REPEATABLE or m not in plain[:i])
    matches = (_match(form, plain, types) for form in FORMS.get(opcode, ()))
    return tuple(m for m in matches if m is not None and _in_order(m, written))
