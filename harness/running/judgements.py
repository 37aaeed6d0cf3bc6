"""The judgements on one item's outcomes.

Equal bits of one variant are judged once for a backend, whichever target they come from (`judged`).
"""

from __future__ import annotations

import contextlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.backends.snippet import fed_back
from ptxdiff.emulator import judging_emulated
from ptxdiff.inputs.sets import has_tuples
from ptxdiff.jobs import Backend, Job, Outcome, same_bits
from ptxdiff.judging.answers import results_of
from ptxdiff.judging.judge import Judgement, Units, judge, judge_same
from ptxdiff.judging.judged_share import pooled, too_little, unwritten_error
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.derive import asm_form
from ptxdiff.model.identity import digest
from ptxdiff.model.policies import Policies, policies
from ptxdiff.model.variants import CLOBBER, REVERSED, UNDEFINED, AsmVariant, CaseError, KernelVariant, Variant
from ptxdiff.records import Share
from ptxdiff.running.contexts import run_straight

KEPT = 512
KEPT_BYTES = 1 << 28
"""Bytes of compared codes in all kept judgements of failures. Passes keep none: only failures are explained by them."""


class Judged:
    """The newest judgements, by case, variant, backend and pack, and by the bits of inputs and outputs.

    Case and variant are compared by identity. They are kept alive here, so that no other object gets their ids.
    """

    def __init__(self, size: int = KEPT, most_bytes: int = KEPT_BYTES) -> None:
        self.size, self.most_bytes, self.bytes = size, most_bytes, 0
        self._found: OrderedDict[tuple[Any, ...], tuple[Case, Variant, Judgement]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def __call__(
        self, case: Case, variant: Variant, policy: Policies, inputs: Units, outputs: Units, pack: int
    ) -> Judgement:
        """The judgement that `judge` gives, of a pass without the codes that were compared; policy: the variant's.

        Each caller gets a copy of its own.
        """
        key = (id(case), id(variant), results_of.get(), pack, digest(dict(inputs)), digest(dict(outputs)))
        if key in self._found:
            self._found.move_to_end(key)
            return _own(self._found[key][2])
        judgement = judge(case, policy, inputs, outputs, pack)
        if judgement.passed:
            judgement.compared = {}
        self._found[key] = (case, variant, judgement)
        self.bytes += _compared_bytes(judgement)
        while len(self._found) > self.size or (self.bytes > self.most_bytes and len(self._found) > 1):
            self.bytes -= _compared_bytes(self._found.popitem(last=False)[1][2])
        return _own(judgement)


def _compared_bytes(judgement: Judgement) -> int:
    return sum(o.expected.nbytes + o.got.nbytes + o.difference.nbytes for o in judgement.compared.values())


def _own(kept: Judgement) -> Judgement:
    """A copy whose collections a caller may change. Arrays are shared: no caller changes them."""
    return replace(
        kept,
        judged=dict(kept.judged),
        needed=dict(kept.needed),
        classes=dict(kept.classes),
        ulps=dict(kept.ulps),
        ulps_failing=dict(kept.ulps_failing),
        ulps_unchecked=dict(kept.ulps_unchecked),
        ranges=dict(kept.ranges),
        offenders=list(kept.offenders),
        notes=list(kept.notes),
        compared=dict(kept.compared),
    )


judged = Judged()


@contextlib.contextmanager
def judging_results_of(backend: str) -> Iterator[None]:
    """Within this block, references compute answers for results of this backend, and do not run it if it emulates."""
    before = results_of.set(backend)
    try:
        with judging_emulated(backend == "emulator"):
            yield
    finally:
        results_of.reset(before)


PADDINGS = (11, 12, 13)
"""Seeds of the bits with which undefined padding is filled, to find out whether a failure is due to it alone."""
PRUNED_NOTE = (
    "the kernel's autotuner removes configurations by a function, which a case does not call (prune_configs_by): if it "
    "removes this one at these sizes, name in meta= the values of another one"
)
PADDING_NOTE = (
    "undefined padding alone: where a pack is not full, the rest of its registers is undefined, and a result depends "
    "on it; filled with random bits, all results are right. If the asm may look at the whole pack, and is right "
    "whatever fills it, say so: asm(..., reads_padding=True)"
)
"""The note of a `Result.padding_alone`."""


class ItemJudge:
    """Judges the outcomes of one item, and keeps how much of the outputs was judged.

    runs: the backend that runs a job, if it is not always `backend`. shares: by input set, of straight runs. needed: by
    shape and input set, the codes of each output that had to be written, and those that were.
    """

    def __init__(
        self,
        case: Case,
        variant: Variant,
        policy: Policies,
        backend: Backend,
        runs: Callable[[Job], Backend] | None = None,
    ) -> None:
        self.case, self.variant, self.policy, self.backend = case, variant, policy, backend
        self.runs = runs or (lambda job: backend)
        self.shares: dict[str, Mapping[str, Share]] = {}
        self.needed: dict[str, dict[str, Mapping[str, tuple[int, int]]]] = {}

    def judgement(self, job: Job, outcome: Outcome) -> Judgement:
        """The judgement on a job's outcome. Raises ReferenceFault or DomainError."""
        if not outcome.outputs:
            return Judgement()
        if job.setup.context == "shared":
            straight = run_straight(self.runs(job), job)
            return judge_same(self.case, job.inputs, straight, outcome.outputs, job.setup.pack)
        judgement = self._judge(job, outcome.outputs)
        if judgement.passed and outcome.alternative:
            judgement = self._judge(job, outcome.alternative)
            judgement.notes.append("the readings with and without contraction differ; this is the one without")
        for order, outputs in outcome.orders.items():
            if judgement.passed:
                judgement = self._judge(job, outputs)
                judgement.notes.append(f"the bits depend on the order of blocks; these are the ones {order}")
        return judgement

    def _judge(self, job: Job, outputs: Mapping[str, Any]) -> Judgement:
        with judging_results_of(self.backend.name):
            return judged(self.case, self.variant, self.policy, job.inputs, outputs, job.setup.pack)

    def passes(self, job: Job, outcome: Outcome) -> bool:
        """Whether the bits of an outcome pass. Raises ReferenceFault or DomainError."""
        return self.judgement(job, outcome).passed

    def passes_with_padding(self, job: Job, outcome: Outcome) -> bool:
        """Whether a straight run of asm fails only because padding is undefined: it is right with several fillings."""
        setup = job.setup
        if not isinstance(job.variant, AsmVariant) or self.backend.name != "emulator" or setup.context != "straight":
            return False
        if not outcome.findings or setup.padding is not None or not job.inputs:
            return False
        for seed in PADDINGS:
            filled = replace(job, setup=replace(setup, padding=seed, alone=True, alignment=16))
            other = self.backend.run(filled)
            if other.status != "ran" or other.findings or not self.passes(filled, other):
                return False
        return True

    def count(self, input_set: str, job: Job, judgement: Judgement) -> None:
        """Count how much a straight run judged.

        The first run of a set has all its inputs; further runs of the edges in other shapes do not count, and tuples
        have the same edges over and over.
        """
        if job.setup.context != "straight":
            return
        if not has_tuples(input_set):
            self.shares.setdefault(input_set, judgement.judged)
        self.needed.setdefault(job.setup.shape_text, {}).setdefault(input_set, judgement.needed)

    def too_little(self) -> str:
        """Why almost nothing was judged, or no output had to be written, so that anything would pass; "" if neither."""
        written = unwritten_error({shape: sets.values() for shape, sets in self.needed.items()})
        return too_little(self.policy, pooled(self.shares.values())) or written or ""


# Diagnoses: explanations of a failure that were tested by reproducing its bits -------------------------------------
#
# A diagnosis is never guessed from the asm's text. "missing early clobber" is given only if the emulator, with an
# output and an input in one register, computes exactly the bits that the variant gave. "results reversed within
# registers" is given to a kernel whose results are right once those that share a register are reversed. "undefined bits
# stored" is given if the emulator found undefined bits on their way to memory.

_LEFT = re.compile(r"out of bounds|out of range|IndexError|lies in no buffer|illegal memory access")


def index_hint(case: Case, input_set: str, words: str) -> str:
    """A hint for a memory fault, or a fault of a reference, in a whole kernel that has integer inputs of any value.

    input_set: the name of the set that caused it. words: the fault's text. Returns "" if nothing suggests an index.
    """
    if case.elementwise or input_set.startswith("generated") or not _LEFT.search(words):
        return ""
    known = {*case.domains, *case.in_place}
    free = [n for n, a in case.inputs.items() if not format_of(a).is_float and n not in known]
    if not free:
        return ""
    name = free[0]
    return (
        f"if an input is that index: {input_set} gives {', '.join(free)} any bits; state the range of an index with "
        f'where={{"{name}": Domain("...", lambda v: v["{name}"] < ...)}}, or by where={{"{name}": generated}} and '
        "generate="
    )


def diagnose(job: Job, outcome: Outcome) -> str:
    """The diagnosis that reproduces the outcome's outputs, one of `ptxdiff.model.variants.DIAGNOSES`, or an empty
    string."""
    if outcome.undefined:
        return UNDEFINED
    if not outcome.outputs:
        return ""
    if isinstance(job.variant, KernelVariant) and not outcome.findings:
        return REVERSED if _right_in_reverse(job, outcome.outputs) else ""
    if not isinstance(job.variant, AsmVariant) or job.setup.context == "straight":
        return ""
    if job.setup.context == "shared":
        return CLOBBER  # this context shares registers, and does nothing else
    shared = _with_shared_registers(job)
    if shared is not None and same_bits(shared, outcome.outputs):
        return CLOBBER
    return ""


# How many results share a register, and the distance between them: neighbours, or a warp's width apart.
_REGISTERS = ((2, 1), (4, 1), (2, 32), (4, 32))


def _right_in_reverse(job: Job, outputs: Mapping[str, Any]) -> bool:
    """Whether a kernel's outputs pass once the results within every register are reversed."""
    policy = policies(job.case, job.variant)
    for many, apart in _REGISTERS:
        if any(np.size(units) % (many * apart) for units in outputs.values()):
            continue
        turned = {n: _reversed(np.asarray(units), many, apart) for n, units in outputs.items()}
        if judged(job.case, job.variant, policy, job.inputs, turned, job.setup.pack).passed:
            return True
    return False


def _reversed(units: NDArray[Any], many: int, apart: int) -> NDArray[Any]:
    """The units, with each group of `many` that lie `apart` from each other in reverse order."""
    return np.ascontiguousarray(units.reshape(-1, many, apart)[:, ::-1]).reshape(units.shape)


_UNFILLED_TRIED = 1 << 12
"""Inputs with which asm is run to see whether it looks beside its elements."""


def bits_beside_elements(job: Job) -> str:
    """The cause of a failure if results depend on bits of registers that a whole pack leaves undefined, such as the
    upper 24 of a register with one element of 8 bits; "" if none does.

    The kernels of Triton give these bits some value, so that their results differ from the expected ones like any
    other. The emulator tracks undefined bits in the asm alone.
    """
    from ptxdiff.backends.snippet import run_once
    from ptxdiff.emulator import PtxError, UndefinedBits, bind, parse_constraints

    setup = job.setup
    if not isinstance(job.variant, AsmVariant) or setup.context != "straight" or not job.inputs:
        return ""
    if job.variant.reads_padding:
        return ""
    ins, outs = ([format_of(a).unit_bits for a in side.values()] for side in (job.case.inputs, job.case.outputs))
    try:
        form = asm_form(job.case, job.variant, setup.pack)
        operands = bind(parse_constraints(form.constraints), ins, outs, form.pack, form.convention)
        partial = [o for o in operands if not o.output and o.count * o.element_width < o.width]
        whole = np.arange(_UNFILLED_TRIED // form.pack * form.pack)
        few = {n: np.take(np.asarray(u).reshape(-1), whole, mode="wrap") for n, u in job.inputs.items()}
        if partial:
            run_once(replace(job, setup=replace(setup, shape=whole.shape, padding=None), inputs=few), form, few, {})
    except UndefinedBits:
        one = partial[0]
        name, bits = list(job.case.inputs)[one.tensor], one.count * one.element_width
        return (
            f"a result depends on bits beside the elements of a pack: at pack {form.pack}, ${one.number} holds {name} "
            f"in its lower {bits} bits, and its upper {one.width - bits} are undefined; clear them first (`and.b"
            f"{one.width} t, ${one.number}, 0x{(1 << bits) - 1:x};`), or extend the sign"
        )
    except (PtxError, CaseError):
        return ""
    return ""


def _with_shared_registers(job: Job) -> Mapping[str, Any] | None:
    """The loop's outputs with registers shared wherever the constraints allow it; None if they allow it nowhere."""
    from ptxdiff.backends.snippet import run_once, shareable
    from ptxdiff.emulator import PtxError

    assert isinstance(job.variant, AsmVariant)
    carry = policies(job.case, job.variant).carry
    unpadded = replace(job, setup=replace(job.setup, padding=None))
    try:
        form = asm_form(job.case, job.variant, job.setup.pack)
        share = shareable(job.case, form, carry)
        if not share:
            return None
        units = {n: np.asarray(u).reshape(-1) for n, u in job.inputs.items()}
        outputs: dict[str, Any] = {}
        for _ in range(job.setup.steps):
            outputs = run_once(unpadded, form, units, share)
            units |= fed_back(job.case, carry, outputs)
    except (PtxError, CaseError):
        return None
    return outputs
