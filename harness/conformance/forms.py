"""Make snippets of inline asm for the forms of the registry; each runs one form with plain registers in and out.

A form is a spelling with all its modifiers, `add.rn.ftz.f32`. If the ISA has two rows with the same spelling and
different operands, each is a form (`min.f32`, `min.f32 d, a, b, c`). A form can need several snippets: for selectors
and signs of operands, for constants, for two ways to set the carry flag.

The text has the syntax of `tl.inline_asm_elementwise` and LLVM's inline assembly, so the emulator and a GPU run the
same text. Registers are untyped. Predicates are passed as 0 or 1 in 16 bits, 8-bit operands in registers of 16 bits.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

from ptxdiff.emulator import isa
from ptxdiff.emulator.asm_block import assemble
from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.errors import PtxError
from ptxdiff.emulator.isa.forms import FORMS, Bound, Form, OperandSpec
from ptxdiff.emulator.isa.registry import REFUSED
from ptxdiff.emulator.isa.selectors import SELECTORS
from ptxdiff.emulator.targets import Target
from ptxdiff.emulator.text.types import TYPES, ScalarType

LETTERS = {16: "h", 32: "r", 64: "l"}
"""The constraint letter for each register width."""

_SELECTED = 3  # snippets with selectors, besides the one without
_TABLES = 12  # truth tables of lop3 with a predicate; without one all 256 are tried
_EVERY = 24  # of those tables, one in this many is tried on many inputs


@dataclass(frozen=True)
class Port:
    """A register of a snippet: the operand's type, and the register's width in bits.

    `inverted`: register 0 means a set carry flag, as for subtractions.
    """

    name: str
    type: ScalarType
    bits: int
    inverted: bool = False


@dataclass(frozen=True)
class FormSnippet:
    """Inline asm around one instruction. `variant` distinguishes the snippets of a form; empty for the plain one.

    `constants`: sources of the definition that are immediates in the text, by operand name. `bulk`: whether very many
    inputs are useful.
    """

    form: str
    variant: str
    text: str
    outputs: tuple[Port, ...]
    inputs: tuple[Port, ...]
    bound: Bound = field(compare=False, repr=False)
    constants: tuple[tuple[str, int], ...] = ()
    bulk: bool = True

    @property
    def constraints(self) -> str:
        """LLVM's constraints."""
        outs = [f"=&{LETTERS[p.bits]}" for p in self.outputs]
        return ",".join(outs + [LETTERS[p.bits] for p in self.inputs])

    @cached_property
    def step(self) -> Step | None:
        """The instruction as the emulator binds it, with its definitions; None if the machine itself executes it."""
        if self.bound.form.function is None:
            return None
        steps = assemble(self.text, self.constraints, None).program.steps
        return next(s for s in steps if s.bound.form is self.bound.form)

    @property
    def input_bits(self) -> int:
        """The total bits of one input."""
        return sum(1 if p.type.width == 1 else p.bits for p in self.inputs)

    @property
    def seed(self) -> int:
        """The seed of its inputs, which depends only on its name."""
        digest = hashlib.sha256(f"{self.form} {self.variant}".encode()).digest()
        return int.from_bytes(digest[:7], "big")


def lacking(form: str, target: str) -> str:
    """The requirement of a form that a target does not meet, in words; empty if it meets all."""
    unmet = bounds_of()[form].requirement_unmet(Target.parse(target))
    return f"needs {unmet}" if unmet else ""


@cache
def bounds_of() -> Mapping[str, Bound]:
    """Every form that a snippet can hold, by name, sorted."""
    isa.load()
    by_name = {name: bound for opcode in FORMS for name, bound in bounds_with(opcode).items()}
    return {name: by_name[name] for name in sorted(by_name)}


@cache
def bounds_with(opcode: str) -> Mapping[str, Bound]:
    """The forms of `bounds_of` with one opcode. It is faster: naming all forms takes a second."""
    isa.load()
    by_name: dict[str, Bound] = {}
    for form in FORMS.get(opcode, []) if opcode not in REFUSED else []:
        if form.function is None and form.operation not in OPERATIONS:
            continue
        for bound in form.spellings():
            assert bound.name not in by_name, f"two forms are called {bound.name}"
            by_name[bound.name] = bound
    return by_name


def snippets(form: str) -> tuple[FormSnippet, ...]:
    """The snippets of a form; none if there is no way to run it in a snippet. Raises KeyError for an unknown form."""
    return tuple(_snippets(bounds_of()[form]))


def has_snippets(form: str) -> bool:
    """Whether a form has snippets. Only the first is made."""
    return next(_snippets(bounds_of()[form]), None) is not None


def _snippets(bound: Bound) -> Iterator[FormSnippet]:
    if bound.form.operation:
        yield from OPERATIONS[bound.form.operation](bound)
        return
    for variant, written in _ways(bound):
        snippet = _Text(bound, written).snippet(variant)
        if not variant or _accepted(snippet):
            yield snippet


def _accepted(snippet: FormSnippet) -> bool:
    """Whether the emulator accepts the selectors and signs at the operands; not every combination is legal."""
    try:
        assemble(snippet.text, snippet.constraints, None)
    except PtxError:
        return False
    return True


@dataclass(frozen=True)
class _Written:
    """The selectors, signs and constants at the operands."""

    selectors: Mapping[str, str] = field(default_factory=dict)
    negated: frozenset[str] = frozenset()
    constants: Mapping[str, int] = field(default_factory=dict)
    carry_in: str = "add"
    carry_out: str = "add"


def _ways(bound: Bound) -> Iterator[tuple[str, _Written]]:
    """The ways to write a form's operands, each with a name (empty for the plain way)."""
    form = bound.form
    chance = random.Random(bound.name)
    if any(o.selector or o.negatable for o in form.operands):
        yield "", _Written()
        yield from _with_selectors(form, chance)
    elif any(o.constant for o in form.sources):
        name = next(o.name for o in form.sources if o.constant)
        one = len(form.destinations) == 1
        for value in range(256) if one else chance.sample(range(256), _TABLES):
            yield f"{name}={value:#04x}", _Written(constants={name: value})
    elif form.reads or form.writes:
        ins, outs = (("add", "sub") if flag else ("add",) for flag in (form.reads, form.writes))
        usual = "sub" if form.opcode == "subc" else "add"
        for into, out in itertools.product(ins, outs):
            given = [f"flag from {into}"] * (form.reads != () and into != usual) + [f"flag to {out}c"] * (out != "add")
            yield ", ".join(given), _Written(carry_in=into, carry_out=out)
    else:
        yield "", _Written()


def _with_selectors(form: Form, chance: random.Random) -> Iterator[tuple[str, _Written]]:
    by_selectors: dict[str, _Written] = {}
    for _ in range(_SELECTED):
        chosen = {o.name: chance.choice(list(SELECTORS[o.selector])) for o in form.operands if o.selector}
        negatable = [o.name for o in form.operands if o.negatable]
        negated = frozenset(chance.sample(negatable, chance.randint(0, 1)) if negatable else [])
        spelled = [f"{'-' * (o.name in negated)}{o.name}.{chosen.get(o.name, '')}" for o in form.operands]
        by_selectors[" ".join(w.rstrip(".") for w in spelled)] = _Written(chosen, negated)
    yield from by_selectors.items()


class _Text:
    """Writes a snippet: code before the instruction, the instruction, and code after it."""

    def __init__(self, bound: Bound, written: _Written) -> None:
        self.bound = bound
        self.written = written
        self.before: list[str] = []
        self.after: list[str] = []
        self.declared: list[str] = []
        self.outputs: list[Port] = []
        self.inputs: list[Port] = []
        form = bound.form
        self.inputs_from = len(form.destinations) + len(form.writes)

    def snippet(self, variant: str) -> FormSnippet:
        """The complete snippet."""
        form = self.bound.form
        results = "|".join(self._destination(o) for o in form.destinations)
        operands = [results, *self._sources()]
        if form.reads:
            self._carry_in()
        if form.writes:
            self._carry_out()
        lines = [f".reg {r};" for r in self.declared]
        lines += [*self.before, f"{self.bound.spelling} {', '.join(operands)};", *self.after]
        body = " ".join(lines)
        text = f"{{ {body} }}" if len(lines) > 1 else body
        return FormSnippet(
            self.bound.name,
            variant,
            text,
            tuple(self.outputs),
            tuple(self.inputs),
            self.bound,
            tuple(self.written.constants.items()),
            all(value % _EVERY == 0 for value in self.written.constants.values()),
        )

    def _sources(self) -> list[str]:
        """The source operands in the text, with the elements of a vector between braces."""
        texts: list[str] = []
        for vector, group in itertools.groupby(self.bound.form.sources, key=lambda o: o.vector):
            group_texts = [self._source(o) for o in group]
            texts += [f"{{{', '.join(group_texts)}}}"] if vector else group_texts
        return texts

    def _input(self, name: str, kind: ScalarType, bits: int, inverted: bool = False) -> str:
        self.inputs.append(Port(name, kind, bits, inverted))
        return f"${self.inputs_from + len(self.inputs) - 1}"

    def _output(self, name: str, kind: ScalarType, bits: int, inverted: bool = False) -> str:
        self.outputs.append(Port(name, kind, bits, inverted))
        return f"${len(self.outputs) - 1}"

    def _source(self, spec: OperandSpec) -> str:
        if spec.constant:
            return f"{self.written.constants[spec.name]:#x}"
        kind = self.bound.type_of(spec)
        register = self._input(spec.name, kind, register_bits(kind))
        if kind.width == 1:
            self.declared.append(f".pred p_{spec.name}")
            self.before.append(f"setp.ne.b16 p_{spec.name}, {register}, 0;")
            return f"p_{spec.name}"
        if only_in_bytes(kind, self.bound.form):
            self.declared += [f".b8 b_{spec.name}", f".b8 u_{spec.name}"]
            self.before.append(f"mov.b16 {{b_{spec.name}, u_{spec.name}}}, {register};")
            return f"b_{spec.name}"
        sign = "-" if spec.name in self.written.negated else ""
        selector = self.written.selectors.get(spec.name)
        return f"{sign}{register}{'.' + selector if selector else ''}"

    def _destination(self, spec: OperandSpec) -> str:
        kind = self.bound.type_of(spec)
        register = self._output(spec.name, kind, register_bits(kind))
        if kind.width == 1:
            self.declared.append(f".pred p_{spec.name}")
            self.after.append(f"selp.b16 {register}, 1, 0, p_{spec.name};")
            return f"p_{spec.name}"
        if only_in_bytes(kind, self.bound.form):
            self.declared.append(f".b8 b_{spec.name}")
            self.after.append(f"mov.b16 {register}, {{b_{spec.name}, b_{spec.name}}};")
            return f"b_{spec.name}"
        selector = self.written.selectors.get(spec.name)
        return f"{register}{'.' + selector if selector else ''}"

    def _carry_in(self) -> None:
        """Set the carry flag from an operand of 0 or 1: by a sum that carries, or by a difference that borrows and
        clears it."""
        self.declared.append(".b32 none")
        from_sum = self.written.carry_in == "add"
        register = self._input("cc", TYPES["pred"], 32, not from_sum)
        text = f"add.cc.u32 none, {register}, 0xffffffff;" if from_sum else f"sub.cc.u32 none, 0, {register};"
        self.before.append(text)

    def _carry_out(self) -> None:
        """Read the carry flag: 0 + flag is 1 if it is set; 0 - borrow is -1 if it is not."""
        from_difference = self.written.carry_out == "sub"
        register = self._output("cc", TYPES["pred"], 32, from_difference)
        self.after.append(f"{self.written.carry_out}c.u32 {register}, 0, 0;")


def register_bits(kind: ScalarType) -> int:
    """The width of the register that a snippet has for an operand."""
    return max(kind.width, 16)


def only_in_bytes(kind: ScalarType, form: Form) -> bool:
    """Whether an operand of this type must be a register of 8 bits (e2m1x2; conversions of bf16)."""
    return kind.width == 8 and (kind.kind == "x" or not form.relaxed)


# Instructions that the machine executes without a definition ----------------------------------------------


def _moves(bound: Bound) -> Iterator[FormSnippet]:
    name = bound.modifiers["type"] or ""
    kind = TYPES[name]
    if kind.width == 128:
        to, source = ((Port(f"{x}0", TYPES["b64"], 64), Port(f"{x}1", TYPES["b64"], 64)) for x in "da")
        text = "{ .reg .b128 t, u; mov.b128 t, {$2, $3}; mov.b128 u, t; mov.b128 {$0, $1}, u; }"
        yield FormSnippet(bound.name, "", text, to, source, bound)
        return
    port = Port("a", kind, register_bits(kind))
    out = Port("d", kind, register_bits(kind))
    if kind.width == 1:
        text = "{ .reg .pred p, q; setp.ne.b16 p, $1, 0; mov.pred q, p; selp.b16 $0, 1, 0, q; }"
        yield FormSnippet(bound.name, "", text, (out,), (port,), bound)
        return
    yield FormSnippet(bound.name, "", f"mov.{name} $0, $1;", (out,), (port,), bound)
    if kind.kind != "b":
        return
    for parts in (2, 4):
        width = kind.width // parts
        if width not in (16, 32):
            continue
        some = [Port(f"a{i}", TYPES[f"b{width}"], width) for i in range(parts)]
        ins = ", ".join(f"${i + 1}" for i in range(parts))
        yield FormSnippet(bound.name, f"pack {parts}", f"mov.{name} $0, {{{ins}}};", (out,), tuple(some), bound)
        outs = ", ".join(f"${i}" for i in range(parts))
        text = f"mov.{name} {{{outs}}}, ${parts};"
        yield FormSnippet(bound.name, f"unpack {parts}", text, tuple(some), (port,), bound)


def _vector_moves(bound: Bound) -> Iterator[FormSnippet]:
    kind = TYPES[bound.modifiers["type"] or ""]
    count = int((bound.modifiers["vec"] or "v1")[1:])
    if kind.width not in LETTERS:
        return
    outs = tuple(Port(f"d{i}", kind, kind.width) for i in range(count))
    ins = tuple(Port(f"a{i}", kind, kind.width) for i in range(count))
    elements = ", ".join(f"${i}" for i in range(count)), ", ".join(f"${count + i}" for i in range(count))
    yield FormSnippet(bound.name, "", f"{bound.spelling} {{{elements[0]}}}, {{{elements[1]}}};", outs, ins, bound)


def _branch(bound: Bound) -> Iterator[FormSnippet]:
    word = TYPES["b32"]
    text = "{ .reg .pred p; setp.ne.b32 p, $1, $2; mov.b32 $0, $1; @p "
    text += f"{bound.spelling} over; add.u32 $0, $0, 1; over: add.u32 $0, $0, 2; }}"
    ins = (Port("a", word, 32), Port("b", word, 32))
    yield FormSnippet(bound.name, "", text, (Port("d", word, 32),), ins, bound)


def _table_branch(bound: Bound) -> Iterator[FormSnippet]:
    word = TYPES["b32"]
    text = "{ .reg .b32 i; there: .branchtargets one, two, three, one; and.b32 i, $1, 3; mov.b32 $0, 0; "
    text += f"{bound.spelling} i, there; one: add.u32 $0, $0, 1; two: add.u32 $0, $0, 2; three: add.u32 $0, $0, 4; }}"
    yield FormSnippet(bound.name, "", text, (Port("d", word, 32),), (Port("a", word, 32),), bound)


def _kept(bound: Bound) -> Iterator[FormSnippet]:
    """testp without a class, with code around it that sets and reads the predicate."""
    kind = bound.type_of(bound.form.sources[0])
    half = TYPES["b16"]
    text = f"{{ .reg .pred p; setp.ne.b16 p, $2, 0; {bound.spelling} p, $1; selp.b16 $0, 1, 0, p; }}"
    ins = (Port("a", kind, kind.width), Port("p", half, 16))
    yield FormSnippet(bound.name, "", text, (Port("d", half, 16),), ins, bound)


def _unmeasured(bound: Bound) -> Iterable[FormSnippet]:
    """Forms that end the thread or compute nothing have no result to compare."""
    return ()


OPERATIONS: dict[str, Callable[[Bound], Iterable[FormSnippet]]] = {
    "mov": _moves,
    "mov_vector": _vector_moves,
    "bra": _branch,
    "brx": _table_branch,
    "exit": _unmeasured,
    "kept": _kept,
    "nothing": _unmeasured,
}
"""By operation of the machine, a function for the snippets of its forms; operations on memory and warps have no forms
here."""
