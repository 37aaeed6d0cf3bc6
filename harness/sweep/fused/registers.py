"""A sweep's first pass without memory: one kernel makes the inputs, runs the asm, and tallies its results.

It is another kernel than the variant's, so it serves only asm whose results are the same in every kernel, and the
variant's own kernel runs on a part of the inputs, where both must give the same tallies (`OWN`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ptxdiff.emulator import PtxError, sharing
from ptxdiff.inputs import InputSet
from ptxdiff.inputs.generated import CountedTuples
from ptxdiff.jobs import Job
from ptxdiff.judging.offenders import judged_padding
from ptxdiff.model.compilers import compiler_of
from ptxdiff.model.derive import DerivationError, asm_form, compiled_form
from ptxdiff.model.variants import AsmVariant
from ptxdiff.sweep.fused import kernels
from ptxdiff.sweep.oracle import Oracle
from ptxdiff.sweep.result import ROW
from ptxdiff.triton.elementwise import InlineAsm

OWN = 32
"""Of so many chunks one runs as the variant's own kernel, beside those with special values.

With chunks of 2^23 inputs and a float32 input each has one sign and exponent, so 19 of 512 compare both kernels in as
many places as 19 of 256 did, with half as many inputs.
"""


def own_chunks(chunks: int) -> list[int]:
    """The chunks that run as the variant's own kernel.

    In sets that count, zeros, subnormals, infinities and NaNs lie at both ends and on both sides of the middle.
    """
    ends = {0, chunks // 2 - 1, chunks // 2, chunks - 1}
    spread = (k + k // OWN * 5 % OWN for k in range(0, chunks, OWN))
    return sorted({k for k in (*ends, *spread) if 0 <= k < chunks})


def asm_in_registers(job: Job, inputs: InputSet) -> InlineAsm | None:
    """The asm of a job, if its results cannot depend on the kernel around it; else None.

    They could by registers that an output shares with an input, by special registers, by products and sums that ptxas
    may fuse, by another assembler or Triton build, and in a loop. Of inputs in which neighbours belong together, such
    as words of packs, the kernel would make other ones.
    """
    variant, setup = job.variant, job.setup
    if not isinstance(variant, AsmVariant) or isinstance(inputs.generator, CountedTuples) or inputs.group > 1:
        return None
    if setup.context != "straight" or setup.fusion or setup.assembler is not None:
        return None
    if compiler_of(job.case, variant) or judged_padding(job.case):
        return None
    try:
        form = asm_form(job.case, variant, setup.pack)
        if "%" in form.text or sharing(form.text, form.constraints).hazards:
            return None
        form = compiled_form(job.case, form)
    except (DerivationError, PtxError):
        return None
    return InlineAsm(form.text, form.constraints, form.pack)


def sweep_in_registers(asm: InlineAsm, oracle: Oracle) -> Callable[[Tensor, int], Tensor]:
    """A function of the number of the first input and of a number of rows. It returns `Oracle.tally` of these rows.

    The first call makes the kernel, and raises NotFused if none can be made.
    """

    @functools.cache
    def kernel() -> kernels.RowKernel:
        return kernels.tally_in_registers(oracle, kernels.number_bits(oracle), asm)

    def tallies(first: Tensor, rows: int) -> Tensor:
        table = torch.empty((len(oracle.names), rows), dtype=torch.int64, device=first.device)
        kernel()(rows, first, table)
        return table

    return tallies


def rows_of(chunks: Sequence[int], size: int) -> Tensor:
    """The numbers of the rows of some chunks of `size` inputs each: int64."""
    each = size // ROW
    return torch.cat([torch.arange(k * each, (k + 1) * each) for k in chunks])
