"""What speaks against blaming ptxas for machine code whose bits, on the CPU, differ from those of its PTX.

A false accusation is for machine code what a wrong pass is for the rest. So a difference accuses nobody if a form that
ran is not believed on the target, or if PTX leaves the bits open: where ptxas may fuse a product into a sum, in
approximate instructions (ptxas chooses the roundings of their inner steps), and in the order of atomic operations. The
bits of a NaN are open too: the caller must see that none is on the way. Undefined bits, races and bits that depend on
the schedule end a run before this is asked. The other half of a proof, another level or release of ptxas that gives the
right bits, is for the caller to find.
"""

from __future__ import annotations

from ptxdiff.conformance.taught import unsettled, unsettled_moves, weakest
from ptxdiff.emulator import Kernel, contraction_open, of_generation
from ptxdiff.sass.run import Ran

_ATOMIC = ("atom", "red", "multimem")
"""Opcodes whose results, or what they leave in memory, may depend on the order of threads."""


def doubt_of_forms(ran: Ran, target: str) -> str:
    """Which form of machine code that ran is not believed on a target, in words; "" if all are."""
    for forms in (unsettled(ran.forms, target), unsettled_moves(ran.moves, target)):
        if forms:
            more = f" and {len(forms) - 1} more" if len(forms) > 1 else ""
            return f"{forms[0]}{more} is not taught for {target}"
    if ran.approximate and not of_generation(target):
        return f"{ran.approximate[0]} has the bits of another generation than {target}'s"
    return ""


def doubt_of_ptx(kernel: Kernel, fusion: bool) -> str:
    """What PTX leaves open that may explain other bits, in words; "" if it leaves nothing open.

    fusion: whether ptxas may fuse multiplications and additions.
    """
    if fusion and contraction_open(kernel.program):
        return "ptxas may fuse a multiplication and an addition"
    for step in kernel.program.steps:
        if step.bound.form.approximate:
            return f"{step.bound.name} is approximate, and ptxas chooses how its steps are rounded"
        if step.node.opcode in _ATOMIC:
            return f"the order of {step.node.opcode} is open"
    return ""


def standing(ran: Ran, target: str) -> str:
    """The weakest form that ran, in words: how often it was taught, and whether a GPU confirmed it."""
    form, contexts, confirmed = weakest(ran.forms, target)
    if not form:
        return "no instruction of the table ran"
    device = f"confirmed by a GPU in {confirmed}" if confirmed else "confirmed by no GPU"
    return f"the weakest form that ran is {form}, taught in {contexts} contexts, {device}"
