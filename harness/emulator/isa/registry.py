"""Declare forms: the decorator `instruction`, and `operation` and `refuse` for instructions without a definition.

See the package's docstring for how to add an instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ptxdiff.emulator.isa.facts import Facts
from ptxdiff.emulator.isa.forms import FORMS, Form, ModifierGroup, OperandSpec, Undefined, parameters
from ptxdiff.emulator.isa.modifiers import CODES
from ptxdiff.emulator.numeric.bits import scalar
from ptxdiff.emulator.targets import Requirement, requirement
from ptxdiff.emulator.text.types import TYPES


def _groups(pattern: str, choices: dict[str, str]) -> tuple[str, tuple[ModifierGroup, ...]]:
    """Split `add{.rnd}{.ftz}.f32` into the opcode and its groups."""
    text = pattern.replace("}", "")
    opcode = text.split("{")[0].split(".")[0]
    rest = text[len(opcode) :]
    groups = []
    at = 0
    while at < len(rest):
        optional = rest[at] == "{"
        at += 2 if optional else 1
        end = min((i for i in (rest.find(".", at), rest.find("{", at)) if i >= 0), default=len(rest))
        name = rest[at:end]
        at = end
        flag = name not in choices
        names = (name,) if flag else tuple(choices[name].replace(".", " ").split())
        groups.append(ModifierGroup(name, names, optional, flag))
    return opcode, tuple(groups)


def _operands(text: str, groups: Sequence[ModifierGroup]) -> tuple[OperandSpec, ...]:
    """Parse `d, a, b:u32, c?`, `p|q, a`, `d, {a b e f}, r` and `d.part, -a.part`; the destinations come first."""
    types = [g.name for g in groups if all(c in TYPES for c in g.choices)]
    if not text.strip():
        return ()
    parts = [p.strip() for p in text.split(",")]
    found = []
    for number, part in enumerate(parts):
        destination = number == 0
        default = (types[0] if destination else types[-1]) if types else "b32"
        vector = part.startswith("{")
        for piece in part.strip("{}").split() if vector else part.split("|"):
            name, _, kind = piece.strip().partition(":")
            constant = kind.startswith("const ")
            optional = name.endswith("?")
            kind = kind.removeprefix("const ") or default
            name, _, selector = name.rstrip("?").partition(".")
            negatable = name.startswith("-")
            name = name.removeprefix("-")
            found.append(OperandSpec(name, kind, destination, optional, constant, vector, selector, negatable))
    return tuple(found)


def instruction(
    pattern: str,
    operands: str,
    *,
    section: str,
    requires: Requirement | int | str = 0,
    needs: Mapping[str, Requirement | int | str] | None = None,
    approximate: bool = False,
    rounded: Callable[..., int] | None = None,
    contracts: str = "",
    relaxed: bool = False,
    undefined: str | Undefined = "all",
    reads: str = "",
    writes: str = "",
    excludes: Iterable[str] = (),
    given: Mapping[str, int] | None = None,
    small: str = "",
    braces: str = "",
    **choices: str,
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Declare a form with the decorated function as its scalar definition; see the docstring of `ptxdiff.emulator.isa`.

    Stacked decorators declare several forms with one definition. Raises ValueError if the definition's parameters do
    not match the operands and modifiers.
    """

    def declare(function: Callable[..., int]) -> Callable[..., int]:
        opcode, groups = _groups(pattern, choices)
        specs = _operands(operands, groups)
        form = Form(
            pattern=_display(pattern, choices),
            opcode=opcode,
            groups=groups,
            operands=specs,
            function=function,
            section=section,
            requires=requirement(requires),
            needs={k: requirement(v) for k, v in (needs or {}).items()},
            approximate=approximate,
            rounded=rounded,
            contracts=contracts,
            relaxed=relaxed,
            undefined=undefined,
            reads=tuple(reads.split()),
            writes=tuple(writes.split()),
            excludes=tuple(tuple(e.replace(".", " ").split()) for e in excludes),
            module=function.__module__.rpartition(".")[2],
            given=dict(given or {}),
            small=tuple(small.split()),
            braces=tuple(braces.split()),
        )
        names, _ = parameters(function)
        inputs = (*(s.name for s in form.sources), *form.reads)
        if names[: len(inputs)] != inputs:
            raise ValueError(f"{pattern}: the definition must begin with the parameters {', '.join(inputs)}")
        if rounded is not None and parameters(rounded)[0] != names:
            raise ValueError(f"{pattern}: the rounded model must have the parameters {', '.join(names)}")
        form.constants = names[len(inputs) :]
        _check_constants(form)
        FORMS.setdefault(opcode, []).append(form)
        return scalar(function)

    return declare


def _check_constants(form: Form) -> None:
    names = {g.name for g in form.groups}
    for name in form.constants:
        known = name == "result" or name in names or name in form.defaults or name in form.selections
        for suffix in ("width", "signed"):
            known = known or (name.endswith(suffix) and name.removesuffix(suffix) + "type" in names)
        if not known:
            raise ValueError(f"{form.pattern}: parameter {name!r} is neither an operand nor a modifier")
        group = next((g for g in form.groups if g.name == name), None)
        if group and not group.flag and not all(c in CODES for c in group.choices):
            raise ValueError(f"{form.pattern}: no code in isa.modifiers for {group.choices}")


_OF_CLUSTERS = ("cluster", "shared::cluster")
"""The scope and the space of clusters, which sm_90 has first."""


_UNKNOWN = Facts()


def operation(
    pattern: str,
    name: str,
    *,
    section: str,
    operands: str = "",
    requires: Requirement | int | str = 0,
    excludes: Iterable[str] = (),
    facts: Facts = _UNKNOWN,
    **choices: str,
) -> Form:
    """Declare an instruction that the machine itself executes (moves of vectors, branches, memory).

    `name`: its binder and runner. The binder checks the operands itself, or has the declared ones checked. `facts`:
    what other rooms must know of it. For instructions without a meaning for a single element see `refuse`.
    """
    opcode, groups = _groups(pattern, choices)
    words = {c for g in groups for c in g.choices}
    form = Form(
        pattern=_display(pattern, choices),
        excludes=tuple(tuple(e.replace(".", " ").split()) for e in excludes),
        opcode=opcode,
        groups=groups,
        operands=_operands(operands, groups),
        function=None,
        section=section,
        requires=requirement(requires),
        needs={word: requirement(90) for word in _OF_CLUSTERS if word in words},
        approximate=False,
        contracts="",
        relaxed=not operands,
        undefined="all",
        reads=(),
        writes=(),
        operation=name,
        facts=facts,
    )
    FORMS.setdefault(opcode, []).append(form)
    return form


REFUSED: dict[str, str] = {}
"""Opcodes that an asm block cannot use, each with a description for the message."""


UNDECLARED: dict[str, Facts] = {}
"""The facts of opcodes without forms, alone or with their first modifier."""


def refuse(opcode: str, what: str, facts: Facts = _UNKNOWN, **by_modifier: Facts) -> None:
    """Declare that no form of an opcode has a meaning for a single element; `what`: a description for the message.

    `facts`, `by_modifier`: of an opcode for which no form is declared, and where its first modifier decides.
    """
    REFUSED[opcode] = what
    UNDECLARED[opcode] = facts
    UNDECLARED.update({f"{opcode}.{modifier}": own for modifier, own in by_modifier.items()})


def _display(pattern: str, choices: dict[str, str]) -> str:
    """The pattern for messages, with the alternatives of small groups."""
    text = pattern
    for name, value in choices.items():
        names = value.split()
        if len(names) <= 6:
            text = (
                text.replace(f".{name}", "|".join(names), 1)
                if f"{{.{name}}}" in text
                else text.replace(f".{name}", names[0] if len(names) == 1 else "(" + "|".join(names) + ")", 1)
            )
    return text
