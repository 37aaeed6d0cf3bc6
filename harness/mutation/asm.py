"""Mechanical mistakes in asm. Each operator is a function from an instruction to changes of its text.

Tables hold the words that replace each other. Mutants that the target or the binder refuses are counted separately.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ptxdiff.emulator.text import (
    OPERAND,
    TYPES,
    Address,
    CodeBlock,
    Declaration,
    Immediate,
    Instruction,
    Name,
    Source,
    Statement,
    Token,
    Vector,
    expanded,
    parse_asm,
    parse_module,
    tokenize,
    without_places,
)


@dataclass(frozen=True)
class Word:
    """A part of the text, from `start` up to `end`."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Written:
    """An instruction in the text: its tree, and the places of its opcode, modifiers, operands and guard."""

    node: Instruction
    opcode: Word
    modifiers: tuple[Word, ...]
    operands: tuple[Word, ...]
    guard: Word | None
    whole: Word

    @property
    def sources(self) -> tuple[Word, ...]:
        """The operands after the first one, which is the destination."""
        return self.operands[1:]


def instructions(text: str) -> tuple[list[Written], dict[str, str]]:
    """The instructions of asm with LLVM's escapes, in order, and the types of the registers that it declares.

    Raises PtxError if the text does not parse.
    """
    tree, _ = parse_asm(text)
    source = Source(text)
    return _found(tree, source, tokenize(source, expanded(source, None, None)))


def kernel_instructions(text: str, entry: str | None = None) -> tuple[list[Written], dict[str, str]]:
    """The instructions and register types of a kernel in a PTX module, including its inline asm.

    entry: the kernel's name; None for the only one. Raises PtxError if the text does not parse or has no such kernel.
    """
    body = parse_module(text).kernel(entry).body
    assert body is not None
    source = Source(text)
    return _found(body, source, tokenize(source, without_places(text)))


def _found(block: CodeBlock, source: Source, tokens: list[Token]) -> tuple[list[Written], dict[str, str]]:
    starts = {token[2]: number for number, token in enumerate(tokens)}
    nodes = list(_statements(block))
    types: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, Declaration):
            names = [node.name] if node.count is None else [f"{node.name}{k}" for k in range(node.count)]
            types |= dict.fromkeys(names, node.type)
    written = [_written(source, tokens, starts[n.offset], n) for n in nodes if isinstance(n, Instruction)]
    return written, types


def _statements(block: CodeBlock) -> Iterator[Statement]:
    for statement in block.statements:
        if isinstance(statement, CodeBlock):
            yield from _statements(statement)
        else:
            yield statement


def _written(source: Source, tokens: list[Token], first: int, node: Instruction) -> Written:
    text = source.text

    def span(begin: int, last: int) -> Word:
        """The text from one token to another."""
        start = source.original(tokens[begin][2])
        _, word, offset = tokens[last]
        end = source.original(offset + len(word) - 1) + 1
        if word.startswith(OPERAND) and text[source.original(offset) + 1] == "{":
            end = text.index("}", start) + 1
        return Word(text[start:end], start, end)

    at = first + 1
    while tokens[at][0] == "dot":
        at += 1
    modifiers = tuple(span(k, k) for k in range(first + 1, at))
    operands: list[Word] = []
    begin, depth = at, 0
    while tokens[at][0] not in (";", "end"):
        depth += (tokens[at][0] in ("{", "[", "(")) - (tokens[at][0] in ("}", "]", ")"))
        if tokens[at][0] == "," and depth == 0:
            operands.append(span(begin, at - 1))
            begin = at + 1
        at += 1
    if at > begin:
        operands.append(span(begin, at - 1))
    guard, front = None, first
    if node.guard is not None:
        front = first - 2 - node.guard.negated
        guard = span(front, first - 1)
    return Written(node, span(first, first), modifiers, tuple(operands), guard, span(front, at))


Change = tuple[Word, str]
"""A part of the text, and its replacement."""


@dataclass(frozen=True)
class AsmMutant:
    """One mistake: the operator's name, the change in words, and the whole changed text and constraints."""

    operator: str
    change: str
    text: str
    constraints: str


@dataclass(frozen=True)
class KernelMutant:
    """One mistake in a kernel's PTX: the operator's name, the change in words, and the changed parts of the text.

    It does not hold the whole changed text, because a kernel has thousands of mutants.
    """

    operator: str
    change: str
    changes: tuple[Change, ...]


SUBSTITUTES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "rounding": {
        "rn": ("rz", "rp"), "rz": ("rn", "rm"), "rm": ("rp", "rz"), "rp": ("rm", "rz"), "rna": ("rn", "rz"),
        "rni": ("rzi", "rpi"), "rzi": ("rni", "rmi"), "rmi": ("rpi", "rzi"), "rpi": ("rmi", "rzi"), "rs": ("rn",),
    },
    "comparison": {
        "eq": ("ne", "le"), "ne": ("eq", "lt"), "lt": ("le", "gt"), "le": ("lt", "ge"), "gt": ("ge", "lt"),
        "ge": ("gt", "le"), "equ": ("eq", "neu"), "neu": ("ne", "equ"), "ltu": ("lt", "leu"), "leu": ("le", "ltu"),
        "gtu": ("gt", "geu"), "geu": ("ge", "gtu"), "num": ("nan",), "nan": ("num",), "lo": ("ls",), "ls": ("lo",),
        "hi": ("hs",), "hs": ("hi",),
    },
    "unordered": {"eq": ("equ",), "lt": ("ltu",), "le": ("leu",), "gt": ("gtu",), "ge": ("geu",), "ne": ("neu",)},
    "half": {"hi": ("lo",), "lo": ("hi",), "wide": ("lo", "hi")},
    "signedness": {
        "u8": ("s8",), "s8": ("u8",), "u16": ("s16",), "s16": ("u16",), "u32": ("s32",), "s32": ("u32",),
        "u64": ("s64",), "s64": ("u64",), "u16x2": ("s16x2",), "s16x2": ("u16x2",),
    },
    "width": {
        "u32": ("u16",), "s32": ("s16",), "b32": ("b16",), "u16": ("u8",), "s16": ("s8",), "u64": ("u32",),
        "s64": ("s32",), "b64": ("b32",), "s8": ("s16",), "u8": ("u16",),
    },
    "format": {
        "e4m3x2": ("e5m2x2",), "e5m2x2": ("e4m3x2",), "e2m3x2": ("e3m2x2",), "e3m2x2": ("e2m3x2",),
        "f16x2": ("bf16x2",), "bf16x2": ("f16x2",), "f16": ("bf16",), "bf16": ("f16",),
        "e4m3x4": ("e5m2x4",), "e5m2x4": ("e4m3x4",),
    },
    "shift mode": {"wrap": ("clamp",), "clamp": ("wrap",), "l": ("r",), "r": ("l",)},
    "boolean": {"and": ("or",), "or": ("and",), "xor": ("and",)},
    "permutation mode": {"f4e": ("b4e",), "b4e": ("f4e",), "rc8": ("ecl",), "ecl": ("ecr",), "ecr": ("ecl",)},
    "approximation": {"approx": ("full",), "full": ("approx",)},
}  # fmt: skip

DROPPED: Mapping[str, tuple[str, ...]] = {
    "rounding dropped": ("rn", "rz", "rm", "rp", "rna"),
    "ftz dropped": ("ftz",),
    "sat dropped": ("sat", "satfinite"),
    "relu dropped": ("relu",),
    "NaN dropped": ("NaN",),
    "modifier dropped": ("xorsign", "abs", "cc", "shiftamt", "noftz", "oob"),
}

_FLOATS = ("f32", "f16", "f16x2", "bf16", "bf16x2")
ADDED: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "ftz added",
        "ftz",
        ("add", "sub", "mul", "fma", "min", "max", "setp", "set", "abs", "neg", "cvt", "ex2"),
        _FLOATS,
    ),
    ("sat added", "sat", ("add", "sub", "mul", "fma", "mad", "cvt"), (*_FLOATS, "s32", "u8", "s8", "s16", "u16")),
    ("satfinite added", "satfinite", ("cvt",), ("tf32", "f16", "f16x2", "bf16", "bf16x2", "e4m3x2", "e5m2x2")),
    ("relu added", "relu", ("cvt", "fma"), ("f16", "f16x2", "bf16", "bf16x2", "e4m3x2", "e5m2x2", "e2m1x2")),
    ("NaN added", "NaN", ("min", "max"), _FLOATS),
)
"""Operator, modifier, and the opcodes and types of the instructions to which it is added."""

OPCODES: Mapping[str, tuple[str, ...]] = {
    "min": ("max",), "max": ("min",), "add": ("sub",), "sub": ("add",), "and": ("or", "xor"), "or": ("and", "xor"),
    "xor": ("or", "and"), "shl": ("shr",), "shr": ("shl",), "not": ("mov",), "neg": ("mov",), "abs": ("mov", "neg"),
    "brev": ("mov",), "addc": ("add",), "subc": ("sub",), "sin": ("cos",), "cos": ("sin",), "mul": ("add",),
    "popc": ("clz",), "clz": ("popc",), "bfe": ("shr",), "cnot": ("not",), "mul24": ("mul",), "vmin": ("vmax",),
    "vmax": ("vmin",), "ex2": ("lg2",), "sqrt": ("rsqrt",), "rsqrt": ("sqrt",), "testp": ("setp",), "sad": ("add",),
}  # fmt: skip

_SHIFTS = ("shl", "shr", "shf")
_COMMUTES = frozenset({"add", "addc", "mul", "mul24", "min", "max", "and", "or", "xor", "fma", "mad", "mad24", "madc"})
"""Opcodes whose first two sources are interchangeable."""


def mutants(text: str, constraints: str, outputs: int) -> Iterator[AsmMutant]:
    """Every mutant of a text with its constraints. outputs: the number of output operands. Raises PtxError."""
    written, types = instructions(text)
    seen = {(text, constraints)}
    for operator, changes, new_constraints in _all(text, constraints, written, types, outputs):
        changed = replaced(text, changes)
        given = constraints
        if operator == "early clobber dropped":
            changed, given = text, new_constraints
        if (changed, given) not in seen:
            seen.add((changed, given))
            yield AsmMutant(operator, _shown(text, changes) if changes else f"{constraints} -> {given}", changed, given)


def kernel_mutants(text: str, entry: str | None = None) -> Iterator[KernelMutant]:
    """Every mutant of a kernel in a PTX module. entry: the kernel's name; None for the only one. Raises PtxError."""
    written, types = kernel_instructions(text, entry)
    seen: set[tuple[Change, ...]] = set()
    for one in written:
        for operator, changes in (*_of_one(one), *_registers(one, written, types)):
            if changes not in seen:
                seen.add(changes)
                yield KernelMutant(operator, _shown(text, changes), changes)


def replaced(text: str, changes: tuple[Change, ...]) -> str:
    """The text with parts of it replaced."""
    for word, new in sorted(changes, key=lambda c: -c[0].start):
        text = text[: word.start] + new + text[word.end :]
    return text


_SHOWN = 120


def _shown(text: str, changes: tuple[Change, ...]) -> str:
    """The changed statements before and after: `add.rn.f32 $0, $1, $2; -> add.rz.f32 $0, $1, $2;`."""
    first = min(w.start for w, _ in changes)
    last = max(w.end for w, _ in changes)
    start = max(text.rfind(c, 0, first) for c in ";{\n") + 1
    end = text.find(";", max(first, last - 1))
    end = len(text) if end < 0 else end + 1
    here = tuple((Word(w.text, w.start - start, w.end - start), new) for w, new in changes)
    before = text[start:end]
    both = [" ".join(t.split()) for t in (before, replaced(before, here))]
    return " -> ".join(t if len(t) <= _SHOWN else t[:_SHOWN] + "..." for t in both)


Found = tuple[str, tuple[Change, ...], str]


def _all(text: str, constraints: str, found: list[Written], types: Mapping[str, str], outputs: int) -> Iterator[Found]:
    for one in found:
        for operator, changes in _of_one(one):
            yield operator, changes, ""
        yield from ((n, c, "") for n, c in _registers(one, found, types))
    yield from (("outputs exchanged", c, "") for c in _exchanged(text, range(outputs)))
    count = len(constraints.split(",")) if constraints else 0
    yield from (("arguments exchanged", c, "") for c in _exchanged(text, range(outputs, count)))
    constraint_list = constraints.split(",")
    for k, word in enumerate(constraint_list):
        if "&" in word:
            yield (
                "early clobber dropped",
                (),
                ",".join([*constraint_list[:k], word.replace("&", ""), *constraint_list[k + 1 :]]),
            )


def _of_one(one: Written) -> Iterator[tuple[str, tuple[Change, ...]]]:
    for operator, function in _OPERATORS:
        for changes in function(one):
            yield operator, changes
    for operator, table in SUBSTITUTES.items():
        for word in one.modifiers:
            for other in table.get(word.text[1:], ()):
                yield operator, ((word, f".{other}"),)
    for operator, dropped in DROPPED.items():
        for word in one.modifiers:
            if word.text[1:] in dropped:
                yield operator, ((word, ""),)
    for operator, new, opcodes, kinds in ADDED:
        names = [w.text[1:] for w in one.modifiers]
        typed = [w for w in one.modifiers if w.text[1:] in TYPES]
        if one.opcode.text in opcodes and new not in names and set(names) & set(kinds) and typed:
            yield operator, ((typed[0], f".{new}{typed[0].text}"),)


def _opcode(one: Written) -> Iterator[tuple[Change, ...]]:
    for other in OPCODES.get(one.opcode.text, ()):
        yield ((one.opcode, other),)


def _rounded(one: Written) -> Iterator[tuple[Change, ...]]:
    """Give an instruction that rounds to nearest without saying so another rounding: `mul.f32x2` -> `mul.rz.f32x2`."""
    names = {w.text[1:] for w in one.modifiers}
    rounds = one.opcode.text in ("add", "sub", "mul", "fma", "mad") and names & _ROUNDED_TYPES
    if rounds and not names & {*SUBSTITUTES["rounding"], "approx", "full"}:
        for other in SUBSTITUTES["rounding"]["rn"]:
            yield ((one.opcode, f"{one.opcode.text}.{other}"),)


_ROUNDED_TYPES = {"f32", "f32x2", "f64", "f16", "f16x2", "bf16", "bf16x2"}


def _swapped(one: Written) -> Iterator[tuple[Change, ...]]:
    """Exchange each two sources, unless the instruction commutes in them."""
    for i, a in enumerate(one.sources):
        for j, b in enumerate(one.sources[i + 1 :], i + 1):
            if a.text != b.text and not ((i, j) == (0, 1) and one.opcode.text in _COMMUTES):
                yield (a, b.text), (b, a.text)


def _vectors(one: Written) -> Iterator[tuple[Change, ...]]:
    """Exchange neighbouring registers of a vector: `{a, b}` becomes `{b, a}`."""
    for word, node in zip(one.operands, one.node.operands, strict=False):
        if isinstance(node, Vector):
            parts = [p.strip() for p in word.text.strip("{} ").split(",")]
            for i in range(len(parts) - 1):
                other = [*parts[:i], parts[i + 1], parts[i], *parts[i + 2 :]]
                yield ((word, "{" + ", ".join(other) + "}"),)


def _guards(one: Written) -> Iterator[tuple[Change, ...]]:
    if one.guard is not None:
        name = one.guard.text.lstrip("@! ")
        yield ((one.guard, f"@{name}" if "!" in one.guard.text else f"@!{name}"),)


def _unguarded(one: Written) -> Iterator[tuple[Change, ...]]:
    if one.guard is not None:
        yield ((one.guard, ""),)


def _gone(one: Written) -> Iterator[tuple[Change, ...]]:
    yield ((one.whole, ""),)


def _immediates(one: Written) -> Iterator[tuple[int, Word, Immediate]]:
    for index, (word, node) in enumerate(zip(one.operands, one.node.operands, strict=False)):
        if isinstance(node, Immediate):
            yield index, word, node


def _is_selector(one: Written, place: int) -> bool:
    return one.opcode.text == "prmt" and place == 3


def _is_table(one: Written, place: int) -> bool:
    return one.opcode.text == "lop3" and place >= 4 and place == len(one.operands) - 1


def _is_amount(one: Written, place: int) -> bool:
    return one.opcode.text in _SHIFTS and place == len(one.operands) - 1


def _constants(one: Written) -> Iterator[tuple[Change, ...]]:
    for index, word, node in _immediates(one):
        if _is_selector(one, index) or _is_table(one, index) or _is_amount(one, index):
            continue
        yield from (((word, new),) for new in _beside(word.text, node))


def _amounts(one: Written) -> Iterator[tuple[Change, ...]]:
    for index, word, node in _immediates(one):
        if _is_amount(one, index):
            yield from (((word, new),) for new in _beside(word.text, node))


def _beside(text: str, node: Immediate) -> Iterator[str]:
    """The constant plus and minus one; for a float, its code plus and minus one, and the value with the other sign."""
    if node.single is not None:
        yield from (f"0f{(node.single + d) & 0xFFFFFFFF:08X}" for d in (1, -1))
        yield f"0f{node.single ^ 1 << 31:08X}"
    elif node.double is not None:
        yield from (f"0d{(node.double + d) & (1 << 64) - 1:016X}" for d in (1, -1))
        yield f"0d{node.double ^ 1 << 63:016X}"
    elif isinstance(node.value, int):
        try:
            value = int(text.rstrip("U"), 0)
        except ValueError:  # an expression
            yield from (f"({text})+1", f"({text})-1")
            return
        shown = hex if text.lstrip("-").lower().startswith("0x") else str
        yield from (shown(value + d) for d in (1, -1))


def _selectors(one: Written) -> Iterator[tuple[Change, ...]]:
    """Exchange two neighbouring bytes of a selector, and select for each byte the neighbouring source byte."""
    for index, word, node in _immediates(one):
        if _is_selector(one, index) and isinstance(node.value, int):
            nibbles = [node.value >> 4 * k & 15 for k in range(4)]
            for k in range(3):
                other = [*nibbles[:k], nibbles[k + 1], nibbles[k], *nibbles[k + 2 :]]
                yield ((word, f"0x{sum(n << 4 * j for j, n in enumerate(other)):04x}"),)
            for k in range(4):
                yield ((word, f"0x{node.value & 0xFFFF ^ 1 << 4 * k:04x}"),)


def _tables(one: Written) -> Iterator[tuple[Change, ...]]:
    """Flip each of the eight bits of a lop3 table."""
    for index, word, node in _immediates(one):
        if _is_table(one, index) and isinstance(node.value, int):
            yield from (((word, f"0x{node.value & 0xFF ^ 1 << k:02x}"),) for k in range(8))


def _negated(one: Written) -> Iterator[tuple[Change, ...]]:
    """Negate a predicate among the sources, or drop its negation."""
    takes = {"selp": (3,), "setp": (3,), "set": (3,), "slct": ()}.get(one.opcode.text, ())
    for index in takes:
        if index < len(one.operands) and isinstance(one.node.operands[index], Name):
            word = one.operands[index]
            yield ((word, word.text[1:] if word.text.startswith("!") else f"!{word.text}"),)


def _addresses(one: Written) -> Iterator[tuple[Change, ...]]:
    """An access 16 bytes further on, which is aligned as before and may be another thread's."""
    for word, node in zip(one.operands, one.node.operands, strict=False):
        if isinstance(node, Address) and node.base is not None and not node.extra:
            base = word.text.strip("[] ").split("+")[0].strip()
            yield ((word, f"[{base}+{node.displacement + 16}]"),)


_OPERATORS: tuple[tuple[str, Callable[[Written], Iterator[tuple[Change, ...]]]], ...] = (
    ("opcode", _opcode),
    ("rounding added", _rounded),
    ("operands swapped", _swapped),
    ("vector order", _vectors),
    ("guard negated", _guards),
    ("guard dropped", _unguarded),
    ("instruction dropped", _gone),
    ("constant off by one", _constants),
    ("shift amount", _amounts),
    ("byte selector", _selectors),
    ("lop3 table", _tables),
    ("predicate negated", _negated),
    ("address", _addresses),
)

NAMES = (
    *(name for name, _ in _OPERATORS), *SUBSTITUTES, *DROPPED, *(name for name, *_ in ADDED),
    "register replaced", "outputs exchanged", "arguments exchanged", "early clobber dropped",
)  # fmt: skip
"""All operators."""


def _registers(
    one: Written, found: list[Written], types: Mapping[str, str]
) -> Iterator[tuple[str, tuple[Change, ...]]]:
    """Replace each register source by another source, and by the nearest register of its type that is written
    before.
    """
    before = [w for w in found if w.whole.start < one.whole.start]
    for word, node in zip(one.sources, one.node.operands[1:], strict=False):
        if not isinstance(node, Name):
            continue
        for other, kind in zip(one.sources, one.node.operands[1:], strict=False):
            if isinstance(kind, Name) and other.text != word.text:
                yield "register replaced", ((word, other.text),)
                break
        for earlier in reversed(before):
            name = earlier.operands[0].text if earlier.operands else ""
            if name != word.text and types.get(name) and types.get(name) == types.get(word.text):
                yield "register replaced", ((word, name),)
                break


_OPERAND = re.compile(r"\$(\d+)|\$\{(\d+)[^}]*\}")


def _exchanged(text: str, numbers: range) -> Iterator[tuple[Change, ...]]:
    """Exchange two neighbouring operands everywhere in the text."""
    places = [(int(m[1] or m[2]), Word(m[0], m.start(), m.end())) for m in _OPERAND.finditer(text)]
    for first in numbers[:-1]:
        here = [(n, w) for n, w in places if n in (first, first + 1)]
        if here:
            yield tuple((w, f"${first + 1 if n == first else first}") for n, w in here)
