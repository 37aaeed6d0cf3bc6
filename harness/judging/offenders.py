"""The compared codes, element by element, and the differing elements with their inputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ptxdiff.judging.differences import Difference, bits, signed_steps
from ptxdiff.model.arguments import Argument, format_of
from ptxdiff.model.case import Case
from ptxdiff.records import Bits, Offender
from ptxdiff.references.codes import as_codes
from ptxdiff.references.formats import Format, Shaped, is_finite, is_nan

Codes = NDArray[np.int64]

SHOWN_OF_A_SLICE = 4
"""How many elements are shown of an input that has several for one output element, such as the row of a sum."""


@dataclass(frozen=True)
class Compared:
    """One output's codes, flat, with the data for judging them. shape: the shape of the codes before flattening."""

    name: str
    fmt: Format
    expected: Codes
    got: Codes
    difference: Codes
    shape: tuple[int, ...]

    @property
    def units(self) -> tuple[int, ...]:
        """The output's shape in storage units."""
        return (*self.shape[:-1], self.shape[-1] // self.fmt.codes_per_unit) if self.shape else ()

    @property
    def failing(self) -> NDArray[np.bool_]:
        """Which codes fail."""
        return np.asarray(self.difference > Difference.UNCHECKED)


def farthest(output: Compared, among: NDArray[np.bool_]) -> int | None:
    """The index, among the chosen, of the largest distance between two different finite results; None if there is
    none."""
    differs = among & (output.expected != output.got)
    differs &= is_finite(output.fmt, output.expected) & is_finite(output.fmt, output.got)
    where = np.flatnonzero(differs)
    if not len(where):
        return None
    steps = np.abs(signed_steps(output.fmt, output.expected[where], output.got[where]))
    return int(where[int(np.argmax(steps))])


def offender_at(case: Case, output: Compared, inputs: Mapping[str, Codes], index: int, pack: int) -> Offender:
    """The record of code number `index` of an output. inputs: codes in the arguments' shapes."""
    fmt = output.fmt
    element = index // fmt.codes_per_unit
    e, g = int(output.expected[index]), int(output.got[index])
    numeric = not (fmt.is_float and (is_nan(fmt, e) or is_nan(fmt, g)))
    at = tuple(int(i) for i in np.unravel_index(element, output.units)) if len(output.shape) > 1 else ()
    return Offender(
        index=index,
        place=index % (pack * fmt.codes_per_unit),
        output=output.name,
        inputs=_inputs_of(case, output, inputs, element),
        expected=bits(fmt, e),
        got=bits(fmt, g),
        difference=Difference(int(output.difference[index])).text,
        ulp=int(signed_steps(fmt, np.array([e]), np.array([g]))[0]) if numeric else None,
        at=at,
    )


def _inputs_of(case: Case, output: Compared, inputs: Mapping[str, Codes], element: int) -> dict[str, Bits]:
    """The input codes of one output element.

    In an elementwise case: the codes with the same number. In a whole kernel: the codes at the same indices; along
    dimensions that only the input has, the first few.
    """
    found: dict[str, Bits] = {}
    for name, argument in case.inputs.items():
        fmt, flat = format_of(argument), inputs[name].reshape(-1)
        if case.elementwise:
            same = flat.size == output.expected.size // output.fmt.codes_per_unit * fmt.codes_per_unit
            places = iter([("", element)] if same else [])
        else:
            units = (*inputs[name].shape[:-1], inputs[name].shape[-1] // fmt.codes_per_unit) if flat.size > 1 else ()
            places = _places(case.outputs[output.name.partition(" ")[0]], output.units, element, argument, units)
        for label, unit in places:
            for slot in range(fmt.codes_per_unit):
                code = f"[{slot}]" if fmt.codes_per_unit > 1 else ""
                found[name + label + code] = bits(fmt, int(flat[unit * fmt.codes_per_unit + slot]))
    return found


def _places(
    output: Argument, shape: Sequence[int], element: int, argument: Argument, units: Sequence[int]
) -> Iterator[tuple[str, int]]:
    """The storage units of a kernel's input for an element of an output: label (`[1, 20]`) and number."""
    if not isinstance(argument, Shaped) or not units:
        yield "", 0  # by value, or a single unit
        return
    if 0 in units:
        return
    at = np.unravel_index(element, tuple(shape)) if shape else ()
    named = {str(d): int(i) for d, i in zip(getattr(output, "dims", ()), at, strict=False)}
    choices = [
        [named[str(dim)]] if named.get(str(dim), size) < size else range(size)
        for dim, size in zip(argument.dims, units, strict=True)
    ]
    for position in itertools.islice(itertools.product(*choices), SHOWN_OF_A_SLICE):
        yield f"[{', '.join(map(str, position))}]", int(np.ravel_multi_index(position, tuple(units)))


# The bits above a code in its slot ---------------------------------------------------------------------------------
#
# A format of six bits fills the lower ones of a byte, and the upper two are zero.
#
# PTX ISA, cvt: the results of `.e2m3x2` and `.e3m2x2` have zeros in the two upper bits of each byte. No code has
# these bits, so they are judged apart. They are not judged where an input has such bits too: the sets fill them with
# anything, and code that moves codes may move them along.

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
