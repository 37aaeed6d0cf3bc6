"""Move tensors into and out of registers: arrays to bit patterns and back, elements to packs and lanes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ptxdiff.emulator.binding.constraints import AsmOperand
from ptxdiff.emulator.errors import BindingError, TooLarge, UndefinedBits
from ptxdiff.emulator.limits import ARGUMENTS, ELEMENTS
from ptxdiff.emulator.machine.frame import Frame
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array
from ptxdiff.suggestions import did_you_mean

DType = Any
"""A numpy or ml_dtypes dtype, or the name of one."""

_EIGHT_BITS = {"e4nv": "e4m3fn", "e5": "e5m2", "e4b8": "e4m3fnuz", "e5b16": "e5m2fnuz"}
_NAMES = {
    **{f"{start}{ours}": f"float8_{theirs}" for ours, theirs in _EIGHT_BITS.items() for start in ("fp8", "float8")},
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "int1": "bool",
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"{short}{bits}": f"{long}{bits}" for short, long in (("u", "uint"), ("s", "int")) for bits in (16, 32, 64)},
}
"""Our dtype name for each of Triton's, the attribute (`tl.float8e4nv`) and the printed name (`fp8e4nv`), and of PTX.
`u8` is missing: for numpy it has 8 bytes."""
_COMMON = (
    *(f"{kind}{bits}" for kind in ("float", "int", "uint") for bits in (16, 32, 64)),
    "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
_NO_SUCH = {"fp8e4b15", "float8e4b15"}


def dtype_of(name: DType) -> np.dtype[Any]:
    """A numpy dtype from a dtype, a type or a name; those of ml_dtypes and Triton too.

    Raises BindingError for a value that is no dtype, and for a dtype that no register can hold.
    """
    given = name
    if type(name).__module__.partition(".")[0] == "triton":
        name = str(name)
    try:
        if isinstance(name, str):
            name = _NAMES.get(name, name)
            name = getattr(ml_dtypes, name, name)
        found = np.dtype(name)
    except (TypeError, ValueError, SyntaxError, AttributeError, OverflowError):
        found = None
    if found is None or name is None:
        hint = "its bits are 'uint8' here" if name in _NO_SUCH else "use one such as 'float32', 'bfloat16' or 'uint8'"
        near = did_you_mean(given, _COMMON) if isinstance(given, str) and given not in _NO_SUCH else ""
        raise BindingError(f"{_brief(given)} is no dtype{near or f'; {hint}'}") from None
    if found.itemsize not in (1, 2, 4, 8) or found.hasobject or found.names or found.subdtype or found.kind in "cSUMm":
        raise BindingError(f"dtype {_brief(given)} has no place in a PTX register")
    if found == np.dtype(f"V{found.itemsize}"):
        raise BindingError(f"dtype {_brief(given)} has no place in a PTX register")
    return found.newbyteorder("=") if not found.isnative else found


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def width_of(dtype: np.dtype[Any]) -> int:
    """Bits of an element as Triton counts them: a bool has 1."""
    return 1 if dtype == np.bool_ else dtype.itemsize * 8


@dataclass
class Argument:
    """An argument: its elements as a flat array of unsigned patterns; a scalar has one pattern for all places."""

    patterns: Array
    dtype: np.dtype[Any]
    scalar: bool


def tensors(args: Sequence[Any]) -> tuple[list[Argument], tuple[int, ...]]:
    """The arguments as flat arrays of patterns, broadcast against each other, and their common shape.

    Python numbers get Triton's types: bool becomes int1, int becomes int32 (int64 where needed), float becomes float32.
    """
    if not isinstance(args, (list, tuple)):
        raise BindingError(f"args is a list of arguments, not {type(args).__name__}")
    if len(args) > ARGUMENTS.most:
        raise TooLarge(ARGUMENTS.refusal(len(args)))
    arrays = [_array(a) for a in args]
    try:
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise BindingError(f"arguments of shapes {shapes} do not broadcast against each other") from None
    if math.prod(shape) > ELEMENTS.most:
        raise TooLarge(ELEMENTS.refusal(math.prod(shape)))
    arguments = []
    for array in arrays:
        scalar = array.size == 1
        if not scalar:
            array = np.broadcast_to(array, shape)
        flat = np.require(array, requirements=["C", "A"]).reshape(-1)
        arguments.append(Argument(flat.view(UNSIGNED[max(width_of(array.dtype), 8)]), array.dtype, scalar))
    return arguments, shape


def _array(value: Any) -> Array:
    if isinstance(value, bool):
        return np.array(value)
    if isinstance(value, int):
        for kind in (np.int32, np.uint32, np.int64, np.uint64):
            if np.iinfo(kind).min <= value <= np.iinfo(kind).max:
                return np.array(value, kind)
        raise BindingError(f"an integer argument of {value.bit_length()} bits does not fit in 64 bits")
    if isinstance(value, float):
        return np.array(value, np.float32)
    try:
        array = np.asarray(value)
    except Exception as error:  # an argument of any type may raise any exception
        message = f"{type(error).__name__}: {error}"
        raise BindingError(f"argument {_brief(value)} is no array ({message[:200]})") from None
    if array.dtype.hasobject:
        raise BindingError(f"argument {_brief(value)} is no array of numbers")
    dtype_of(array.dtype)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


@dataclass(frozen=True)
class Placement:
    """The place of each element: slot `lane * pack + position` holds element `order[slot]`, or padding.

    `order` None: element i is in slot i. `padding`: the seed for the bits of slots without an element and for unused
    bits of registers; None leaves both undefined.
    """

    elements: int
    pack: int
    order: Array | None
    padding: int | None

    @property
    def lanes(self) -> int:
        """How many times the block is invoked."""
        return -(-self.elements // self.pack)

    @classmethod
    def make(cls, elements: int, pack: int, order: int | None, padding: int | None) -> Placement:
        """A placement from a seed for the order (None: consecutive) and one for the padding."""
        slots = -(-elements // pack) * pack
        permutation = None if order is None else np.random.default_rng(order).permutation(slots)
        return cls(elements, pack, permutation, padding)

    def missing(self, start: int, stop: int) -> Array | None:
        """For each slot of lanes `start` to `stop`, whether it is padding; None if none is."""
        if self.order is not None:
            absent: Array = self.order[start * self.pack : stop * self.pack] >= self.elements
        elif stop * self.pack <= self.elements:
            return None
        else:
            absent = np.arange(start * self.pack, stop * self.pack) >= self.elements
        return absent if absent.any() else None


def _noise(placement: Placement, operand: AsmOperand, start: int, stop: int) -> Array:
    seed = (placement.padding or 0) & 0xFFFFFFFFFFFFFFFF
    generator = np.random.default_rng([seed, operand.number, start])
    return (
        generator.integers(0, 1 << operand.width, stop - start, UNSIGNED[operand.width], endpoint=False)
        if (operand.width < 64)
        else generator.integers(0, np.iinfo(np.uint64).max, stop - start, np.uint64, endpoint=True)
    )


def load(frame: Frame, slot: int, operand: AsmOperand, tensor: Argument, placement: Placement, start: int) -> None:
    """Put the elements of an input operand into its register, for lanes `start` and up."""
    stop = start + frame.lanes
    pack, count, width = placement.pack, operand.count, operand.element_width
    kind: Any = UNSIGNED[operand.width]
    used = width * count
    absent = placement.missing(start, stop)
    slots = _slots(tensor, placement, start, stop)
    if width == 1:
        value = np.zeros(frame.lanes, kind)
        for i in range(count):
            value |= slots[operand.first + i :: pack].astype(kind) << kind(i)
    else:
        joined = slots.view(UNSIGNED[used])[operand.first // count :: pack // count]
        value = np.ascontiguousarray(joined, dtype=kind)
    undefined: Any = None
    if used < operand.width:
        undefined = np.array(((1 << operand.width) - 1) & ~((1 << used) - 1), kind)
    if absent is not None:
        ones = kind((1 << width) - 1)
        lost = np.zeros(frame.lanes, kind)
        for i in range(count):
            lost |= np.where(absent[operand.first + i :: pack], ones, kind(0)) << kind(i * width)
        undefined = lost if undefined is None else lost | undefined
    if undefined is not None and placement.padding is not None:
        value = (value & ~undefined) | (_noise(placement, operand, start, stop) & undefined)
        undefined = None
    frame.values[slot] = value
    frame.undefined[slot] = undefined if undefined is not None and undefined.any() else None


def by_lane(tensor: Argument, placement: Placement, start: int, stop: int) -> Array:
    """For each lane from `start` to `stop`, the pattern of its first element."""
    return _slots(tensor, placement, start, stop)[:: placement.pack]


def _slots(tensor: Argument, placement: Placement, start: int, stop: int) -> Array:
    """The patterns of all slots of lanes `start` to `stop`; zero in padding."""
    pack = placement.pack
    first, last = start * pack, stop * pack
    if tensor.scalar:
        return np.full(last - first, tensor.patterns[0])
    if placement.order is not None:
        chosen = placement.order[first:last]
        present = chosen < placement.elements
        return np.where(present, tensor.patterns[np.where(present, chosen, 0)], tensor.patterns.dtype.type(0))
    piece = tensor.patterns[first : min(last, placement.elements)]
    if len(piece) < last - first:
        piece = np.concatenate([piece, np.zeros(last - first - len(piece), piece.dtype)])
    return piece


def store(frame: Frame, slot: int, operand: AsmOperand, out: Array, placement: Placement, start: int) -> None:
    """Copy the elements of an output operand from its register to `out` (one pattern for each element).

    Raises UndefinedBits when an element has undefined bits.
    """
    stop = start + frame.lanes
    pack, count, width = placement.pack, operand.count, operand.element_width
    value = frame.values[slot]
    if value is None:
        error = UndefinedBits(f"output operand {operand.describes} is never written")
        slot = start * pack + operand.first
        error.element = slot if placement.order is None else int(placement.order[slot])
        error.output, error.lane = operand.tensor, start
        raise error
    undefined = frame.undefined[slot]
    if undefined is not None:
        _refuse_undefined(frame, undefined, operand, placement, start)
    used = width * count
    if placement.order is None and stop * pack <= placement.elements and width > 1:
        view = out[start * pack : stop * pack].view(UNSIGNED[used])
        view[operand.first // count :: pack // count] = value.astype(UNSIGNED[used], copy=False)
        return
    for i in range(count):
        piece = (value >> value.dtype.type(i * width)).astype(out.dtype)
        if width == 1:
            piece &= 1
        index = np.arange(start * pack + operand.first + i, stop * pack, pack)
        if placement.order is not None:
            index = placement.order[index]
        present = index < placement.elements
        out[index[present]] = piece[present]


def _refuse_undefined(frame: Frame, undefined: Any, operand: AsmOperand, placement: Placement, start: int) -> None:
    mask = np.broadcast_to(undefined, (frame.lanes,))
    pack, width = placement.pack, operand.element_width
    for i in range(operand.count):
        bad = mask >> mask.dtype.type(i * width) & mask.dtype.type((1 << width) - 1)
        for lane in np.flatnonzero(bad):
            slot = (start + int(lane)) * pack + operand.first + i
            element = slot if placement.order is None else int(placement.order[slot])
            if element < placement.elements:
                error = UndefinedBits(
                    f"element {element} of output {operand.tensor}, in operand {operand.describes}, depends on "
                    f"undefined bits (mask 0x{int(bad[lane]):0{max(width // 4, 1)}x})"
                )
                error.element, error.output, error.lane = element, operand.tensor, start + int(lane)
                raise error
