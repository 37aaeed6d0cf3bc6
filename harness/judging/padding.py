"""The bits above a code in its slot: a format of six bits fills the lower ones of a byte, and the upper two are zero.

PTX ISA, cvt: the results of `.e2m3x2` and `.e3m2x2` have zeros in the two upper bits of each byte. No code has
these bits, so they are judged apart. They are not judged where an input has such bits too: the sets fill them with
anything, and code that moves codes may move them along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ptxdiff.judging.differences import Difference
from ptxdiff.judging.offenders import Compared
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.references.codes import as_codes
from ptxdiff.references.formats import Format

Units = Mapping[str, NDArray[np.generic]]


def padding_mask(fmt: Format) -> int:
    """The bits of a storage unit that belong to no code; 0 if there are none."""
    slot = ((1 << fmt.slot_bits) - 1) & ~fmt.code_mask
    return sum(slot << (k * fmt.slot_bits) for k in range(fmt.codes_per_unit))


def judged_padding(case: Case) -> dict[str, int]:
    """By output, the bits of a storage unit that must be zero; no output of a case whose inputs have such bits."""
    if any(padding_mask(format_of(a)) for a in case.inputs.values()):
        return {}
    masks = {name: padding_mask(format_of(a)) for name, a in case.outputs.items()}
    return {name: mask for name, mask in masks.items() if mask}


def with_padding(
    case: Case, output: Compared, units: Units, like: Units | None = None, inside: NDArray[np.bool_] | None = None
) -> Compared:
    """The comparison, with a difference in each code that is right but for the bits above it.

    units: the outputs, storage arrays by name. like: outputs whose bits they must equal; None for zeros. inside: the
    codes that are judged; None for all.
    """
    mask = judged_padding(case).get(output.name)
    if mask is None:
        return output
    wanted = _above(output.fmt, mask, like[output.name]) if like is not None else 0
    bad = (_above(output.fmt, mask, units[output.name]) != wanted) & (output.difference == Difference.SAME)
    bad = bad if inside is None else bad & inside
    return (
        replace(output, difference=np.where(bad, int(Difference.PADDING), output.difference)) if bad.any() else output
    )


def padding_note(output: Compared) -> str:
    """A remark on codes that are right but for the bits above them; "" if there are none."""
    count = int((output.difference == Difference.PADDING).sum())
    return f"{output.name}: {count} codes are right, but the bits above them in their bytes are not zero" * bool(count)


def _above(fmt: Format, mask: int, units: NDArray[np.generic]) -> NDArray[np.int64]:
    """The bits above each code, at their places in the slot."""
    left: NDArray[np.int64] = as_codes(units).reshape(-1, 1) & mask
    shifts = np.arange(fmt.codes_per_unit) * fmt.slot_bits
    return ((left >> shifts) & ((1 << fmt.slot_bits) - 1)).reshape(-1)
