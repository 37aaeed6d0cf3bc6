"""Run a job's asm by itself: one pass, with operands in shared registers, or with results fed back in a loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.emulator import KERNEL_SECONDS
from ptxdiff.jobs import Job, Outcome, same_bits
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.derive import AsmForm, asm_form
from ptxdiff.model.variants import AsmVariant, CaseError

if TYPE_CHECKING:
    from ptxdiff.emulator import AsmOperand, Hazard


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


# ---- Shared registers: outputs in registers of inputs, in every assignment that may change the bits ------------------


def may_share(case: Case, variant: AsmVariant, pack: int) -> bool:
    """Whether some assignment of outputs to registers of inputs might change the result of a variant's asm."""
    from ptxdiff.emulator import PtxError, sharing

    try:
        form = asm_form(case, variant, pack)
        return bool(sharing(form.text, form.constraints).hazards)
    except (PtxError, CaseError):
        return False  # the other contexts report the error


def run_shared(job: Job, form: AsmForm, fuse: bool, limit: float) -> Outcome:
    """Run the asm in each assignment of shared registers until one changes the result.

    limit: the seconds that each run may take. The first assignment that changes the result gives the outputs and a
    finding that names the operands. Its repair names each other output too that changes the result on its own. If none
    does, the outputs are those of the plain run. Raises PtxError if the plain run does.
    """
    from ptxdiff.emulator import PtxError, sharing

    shared = sharing(form.text, form.constraints, job.target)
    hazards = {(h.output, h.input): h for h in shared.hazards}
    plain = run_once(job, form, job.inputs, {}, fuse, limit)
    notes = () if shared.complete else (_incomplete(len(shared.assignments), len(hazards)),)
    for share in shared.assignments:
        chosen = [hazards[pair] for pair in share.items()]
        units = job.inputs if chosen[0].tied < 0 else _equal_inputs(job, form, chosen[0])
        if units is None:
            continue
        expected = plain if units is job.inputs else run_once(job, form, units, {}, fuse, limit)
        message = "; ".join(_words(job.case, form, hazard) for hazard in chosen)
        named = dict.fromkeys(hazard.output for hazard in chosen)
        try:
            outputs = run_once(job, form, units, share, fuse, limit)
        except PtxError as e:
            found = f"{message}; {_repair(job.case, form, named)}: {error_line(e)}"
            return Outcome("ran", outputs=plain, findings=(found,), notes=notes)
        if not same_bits(expected, outputs):
            named |= dict.fromkeys(h.output for h in shared.hazards if _changes_alone(job, form, h, plain, fuse, limit))
            # The report shows outputs beside the job's inputs, so outputs of other inputs are not returned.
            shown = outputs if expected is plain else plain
            found = f"{message}; {_repair(job.case, form, named)}"
            return Outcome("ran", outputs=shown, findings=(found,), notes=notes)
    return Outcome("ran", outputs=plain, notes=notes)


def _changes_alone(job: Job, form: AsmForm, hazard: Hazard, plain: Units, fuse: bool, limit: float) -> bool:
    """Whether the result changes with this pair of operands in one register and no other pair."""
    from ptxdiff.emulator import PtxError

    if hazard.tied >= 0:
        return False
    try:
        return not same_bits(plain, run_once(job, form, job.inputs, {hazard.output: hazard.input}, fuse, limit))
    except PtxError:
        return False


def _equal_inputs(job: Job, form: AsmForm, hazard: Hazard) -> Units | None:
    """The job's inputs with a hazard's input equal to the tied one; None if the two can never be equal."""
    operands = _operands(job.case, form)
    one, other = operands[hazard.tied], operands[hazard.input]
    if (one.first, one.count, one.element_width) != (other.first, other.count, other.element_width):
        return None
    names = list(job.case.inputs)
    units = dict(job.inputs)
    like = units[names[other.tensor]]
    units[names[other.tensor]] = np.ascontiguousarray(units[names[one.tensor]]).view(like.dtype)
    return units


def _operands(case: Case, form: AsmForm) -> tuple[AsmOperand, ...]:
    from ptxdiff.emulator import bind, parse_constraints

    widths = [[format_of(a).unit_bits for a in side.values()] for side in (case.inputs, case.outputs)]
    return bind(parse_constraints(form.constraints), widths[0], widths[1], form.pack, form.convention)


def _incomplete(tried: int, hazards: int) -> str:
    from ptxdiff.emulator import HAZARDS

    which = f"only the first {hazards:,} pairs" if hazards >= HAZARDS else f"each of the {hazards} pairs"
    return f"{tried} of all assignments of shared registers were tried; they cover {which} at least once"


def _words(case: Case, form: AsmForm, hazard: Hazard) -> str:
    operands = _operands(case, form)
    output, source = operands[hazard.output], operands[hazard.input]
    names = list(case.outputs)[output.tensor], list(case.inputs)[source.tensor]
    return (
        f"the result changes with ${hazard.output} (output {names[0]}) in the register of ${hazard.input} (input "
        f"{names[1]}), as the compiler may choose{_where(hazard)}: ${hazard.output} is written on line "
        f"{hazard.written}, before ${hazard.input} is read on line {hazard.read}"
    )


def _repair(case: Case, form: AsmForm, outputs: Iterable[int]) -> str:
    """What to write: "make the constraint of $0 '=&r', and of $1 '=&r'"."""
    operands = _operands(case, form)
    given = [f"of ${number} '=&{operands[number].constraint.letter}'" for number in sorted(outputs)]
    return "make the constraint " + ", and ".join(given)


def _where(hazard: Hazard) -> str:
    return f" where the two inputs ${hazard.tied} and ${hazard.input} are equal" if hazard.tied >= 0 else ""
