"""Run a job's asm by itself: one pass, with operands in shared registers, or with results fed back in a loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.emulator import KERNEL_SECONDS
from ptxdiff.jobs import Job
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.derive import AsmForm

if TYPE_CHECKING:
    from ptxdiff.emulator import AsmOperand

Units = Mapping[str, NDArray[np.generic]]


def run_once(
    job: Job,
    form: AsmForm,
    units: Units,
    share: Mapping[int, int],
    fuse: bool = False,
    limit: float = KERNEL_SECONDS,
) -> dict[str, NDArray[np.generic]]:
    """Run the asm once over the inputs. Takes and returns storage arrays by name. Raises PtxError.

    share: output operand number to input operand number, for outputs in the register of an input.
    """
    from ptxdiff.emulator import emulate

    case, setup = job.case, job.setup
    shape = next((units[n].shape for n in case.inputs), setup.shape)
    arguments = [np.asarray(units[n]) for n in case.inputs]
    results = emulate(
        form.text,
        form.constraints,
        arguments,
        [format_of(a).storage for a in case.outputs.values()],
        pack=form.pack,
        target=job.target,
        padding=setup.padding,
        share=share or None,
        fuse=fuse,
        limit=limit,
        convention=form.convention,
        approximate=job.approximate,
    )
    assert isinstance(results, tuple)
    return {n: np.broadcast_to(r, shape) for n, r in zip(case.outputs, results, strict=True)}


def shareable(case: Case, form: AsmForm, carry: Mapping[str, str]) -> dict[int, int]:
    """The operands that LLVM may put into one register in a loop that carries outputs into inputs.

    Returns output operand number to input operand number, for outputs that are not early clobbers. carry: output name
    to input name. Raises PtxError if the constraints do not fit the case.
    """
    from ptxdiff.emulator import bind, parse_constraints

    constraints = parse_constraints(form.constraints)
    ins, outs = list(case.inputs), list(case.outputs)
    widths = [[format_of(a).unit_bits for a in side.values()] for side in (case.inputs, case.outputs)]
    operands = bind(constraints, widths[0], widths[1], form.pack, form.convention)
    numbers: dict[tuple[bool, int], list[int]] = {}
    for number, operand in enumerate(operands):
        numbers.setdefault((operand.output, operand.tensor), []).append(number)
    shared: dict[int, int] = {}
    for output, source in carry.items():
        made, taken = numbers[True, outs.index(output)], numbers[False, ins.index(source)]
        if [_register_contents(operands[o]) for o in made] != [_register_contents(operands[i]) for i in taken]:
            continue  # the registers differ in width or elements, so the compiler copies the values
        for o, i in zip(made, taken, strict=True):
            if not constraints[o].early and constraints[i].tied is None:
                shared[o] = i
    return shared


def _register_contents(operand: AsmOperand) -> tuple[int, int, int]:
    """The first element of the pack that an operand holds, their number, and the bits of its register."""
    return operand.first, operand.count, operand.width


def fed_back(case: Case, carry: Mapping[str, str], outputs: Mapping[str, Any]) -> dict[str, NDArray[np.generic]]:
    """The inputs of a loop's next iteration that are outputs of this one, bit for bit."""
    return {
        source: np.ascontiguousarray(outputs[output]).view(format_of(case.inputs[source]).numpy_dtype())
        for output, source in carry.items()
    }


def error_line(error: Exception) -> str:
    """The text of an emulator error, joined to one line."""
    return " | ".join(part.strip() for part in str(error).splitlines() if part.strip())
