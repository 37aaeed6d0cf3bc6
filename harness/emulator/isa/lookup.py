"""The forms that a parsed instruction can mean on a target, or an error that says why there are none."""

from __future__ import annotations

from functools import lru_cache

from ptxdiff.emulator.errors import NotElementwise, UnknownInstruction, UnsupportedOnTarget
from ptxdiff.emulator.isa import load
from ptxdiff.emulator.isa.facts import ARITHMETIC, Facts
from ptxdiff.emulator.isa.forms import FORMS, Bound, Form, find
from ptxdiff.emulator.isa.modifiers import NEWER
from ptxdiff.emulator.isa.registry import REFUSED, UNDECLARED
from ptxdiff.emulator.targets import AnyTarget
from ptxdiff.emulator.text.nodes import Instruction, Source
from ptxdiff.suggestions import nearest


def lookup(node: Instruction, source: Source, target: AnyTarget | None, elementwise: bool) -> tuple[Bound, ...]:
    """The forms a parsed instruction can mean on `target`.

    Raises UnknownInstruction with similar names, UnsupportedOnTarget, or NotElementwise.
    """
    found = find(node.opcode, node.modifiers)
    if target is not None and any(target.older_than(NEWER[m]) for m in node.modifiers if m in NEWER):
        found = ()
    if elementwise and node.opcode in REFUSED:
        message = f"{node.spelling} is {REFUSED[node.opcode]}; an elementwise snippet cannot use it"
        raise source.error(NotElementwise, message, node.offset)
    if not found:
        if node.opcode in REFUSED and (not FORMS.get(node.opcode) or "bulk" in node.modifiers):
            message = f"{node.spelling} is {REFUSED[node.opcode]} that the emulator does not run"
            raise source.error(NotElementwise, message, node.offset)
        raise source.error(UnknownInstruction, _unknown(node), node.offset)
    if target is None:
        return found
    fitting = tuple(b for b in found if b.requirement_unmet(target) is None)
    newer = [b for b in found if b.requirement_unmet(target) is not None and _as_many_operands(b.form, node)]
    if fitting and newer and not any(b.form.operation or _as_many_operands(b.form, node) for b in fitting):
        needed, what = newer[0].requirement_unmet(target), f"{node.spelling} of {len(node.operands)} operands"
        raise source.error(UnsupportedOnTarget, f"{what} needs {needed}; the target is {target}", node.offset)
    if not fitting:
        needed = found[0].requirement_unmet(target)
        raise source.error(UnsupportedOnTarget, f"{node.spelling} needs {needed}; the target is {target}", node.offset)
    return fitting


def _as_many_operands(form: Form, node: Instruction) -> bool:
    return not form.operation and len(form.sources) + 1 == len(node.operands)


def _unknown(node: Instruction) -> str:
    forms = FORMS.get(node.opcode)
    if not forms:
        near = nearest(node.opcode, FORMS, 0.5)
        hint = f"; near it there is {', '.join(near)}" if near else ""
        return f"unknown instruction {node.spelling!r}{hint}"
    known = {c for f in forms for g in f.groups for c in g.choices}
    strange = [m for m in node.modifiers if m not in known]
    if strange:
        near = nearest(strange[0], known, 0.4)
        hint = f" (near it: {', '.join('.' + n for n in near)})" if near else ""
        text = f"{node.spelling}: {node.opcode} has no modifier .{strange[0]}{hint}"
    else:
        text = f"{node.spelling}: {node.opcode} has no form with these modifiers"
    best = sorted(forms, key=lambda form: _closeness(form, node.modifiers), reverse=True)[:4]
    return f"{text}; supported: {', '.join(f.pattern for f in best)}"


def _closeness(form: Form, modifiers: tuple[str, ...]) -> int:
    """How well modifiers fit a form that they do not spell."""
    wanted = set(modifiers)
    spelled = {c for g in form.groups for c in g.choices}
    missing = sum(1 for g in form.groups if not g.optional and not wanted & set(g.choices))
    return len(wanted & spelled) * 2 - missing


@lru_cache(maxsize=4096)
def facts_of(opcode: str, modifiers: tuple[str, ...]) -> Facts:
    """The facts of an instruction by its spelling alone: of its form, or of the form that the modifiers fit best.

    An unknown opcode has those of arithmetic.
    """
    load()
    found = find(opcode, modifiers)
    if found:
        return found[0].form.facts
    if opcode in FORMS:
        return max(FORMS[opcode], key=lambda form: _closeness(form, modifiers)).facts
    own = UNDECLARED.get(".".join((opcode, *modifiers[:1])))
    return own or UNDECLARED.get(opcode, ARITHMETIC)
