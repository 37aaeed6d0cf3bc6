"""Inputs that are computed from their number: all inputs in order, and stratified random ones.

The same int64 arithmetic works on numpy arrays and torch tensors, so that a GPU makes its own inputs and the host can
make any single one again. Neither set is ever in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ptxdiff.inputs.edges import edge_units
from ptxdiff.references.formats import Format

Index = Any  # a numpy int64 array or a torch int64 tensor: numbers of inputs


class Generator(Protocol):
    """Makes storage units from the numbers of inputs."""

    @property
    def formats(self) -> Mapping[str, Format]:
        """The inputs' formats by name."""

    def units(self, name: str, index: Index) -> Index:
        """One input's units as int64, zero-extended (64-bit units as their two's complement), shaped as `index`."""


@dataclass(frozen=True)
class Counted:
    """Every input: the bits of its number, the last input's varying fastest. At most 63 bits in all.

    shifts: for each input, the position of its lowest bit in the number.
    """

    formats: Mapping[str, Format]
    shifts: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shifts, shift = {}, 0
        for name, fmt in reversed(list(self.formats.items())):
            shifts[name] = shift
            shift += fmt.unit_bits
        object.__setattr__(self, "shifts", shifts)

    def units(self, name: str, index: Index) -> Index:
        """See `Generator`."""
        return (index >> self.shifts[name]) & ((1 << self.formats[name].unit_bits) - 1)


@dataclass(frozen=True)
class CountedTuples:
    """Every tuple that one invocation reads, `pack` inputs in a row: its bits are those of the number of the tuple.

    The last input's elements vary fastest, and of one input the first element, which has the lowest bits of a register.
    """

    formats: Mapping[str, Format]
    pack: int

    def units(self, name: str, index: Index) -> Index:
        """See `Generator`."""
        names = list(self.formats)
        behind = sum(self.formats[n].unit_bits for n in names[names.index(name) + 1 :])
        bits = self.formats[name].unit_bits
        if self.pack & (self.pack - 1):
            number, element = index // self.pack, index % self.pack
        else:  # kernels of sweeps have shifts, but no division
            number, element = index >> (self.pack.bit_length() - 1), index & (self.pack - 1)
        return (number >> (element * bits + behind * self.pack)) & ((1 << bits) - 1)


@dataclass(frozen=True)
class Stratified:
    """Random units from a hash of the input's number and a seed.

    Floating-point formats wider than a byte: half are uniform bits; the others are near one, subnormal, in the last
    binades (with infinities and NaN), have few significand bits set, or are edges. Integers wider than a byte: half are
    uniform, half have a uniformly distributed number of leading zeros. All other formats are uniform.
    """

    formats: Mapping[str, Format]
    seed: int

    def units(self, name: str, index: Index) -> Index:
        """See `Generator`."""
        fmt = self.formats[name]
        stream = (self.seed * 64 + 4 * list(self.formats).index(name)) & _MASK63
        bits = _hash(index, stream) & _mask(fmt)
        if fmt.codes_per_unit > 1 or fmt.code_bits <= 8:
            return bits
        choice = _hash(index, stream + 1)
        return self._float(fmt, index, bits, choice, stream) if fmt.is_float else _integer(fmt, bits, choice)

    def _float(self, fmt: Format, index: Index, bits: Index, choice: Index, stream: int) -> Index:
        kind, number = choice & 15, (choice >> 4) & 0xFFFF
        fraction = fmt.mantissa_bits + fmt.ignored_bits
        last = (1 << fmt.exponent_bits) - 1
        bare = bits & _signed(fmt.code_mask ^ (last << fraction))
        few = _hash(index, stream + 2) & _hash(index, stream + 3) & ((1 << fraction) - 1)
        strata = (
            (8, 11, bare | ((fmt.bias - 12 + number * 25 // 65536) << fraction)),
            (12, 12, bare),
            (13, 13, bare | ((last - (number & 3)) << fraction)),
            (14, 14, (bits ^ (bits & ((1 << fraction) - 1))) | few),
            (15, 15, _edges(fmt, number)),
        )
        where = _library(bits).where
        for first, last_kind, units in strata:
            bits = where((kind >= first) & (kind <= last_kind), units, bits)
        return bits


def _integer(fmt: Format, bits: Index, choice: Index) -> Index:
    shift = ((choice >> 1) & 0xFFFF) * fmt.code_bits // 65536
    library = _library(bits)
    positive = _shifted(bits, shift) if fmt.code_bits == 64 else bits >> shift
    small = library.where((choice >> 20) & 1 == 1, -positive, positive) if fmt.has_sign else positive
    return library.where(choice & 1 == 1, small & _mask(fmt), bits)


def _edges(fmt: Format, number: Index) -> Index:
    table: Any = edge_units(fmt) & _mask(fmt)
    if _is_torch(number):
        import torch

        table = torch.tensor(table, device=number.device)
    return table[number * len(table) // 65536]


_MASK63 = (1 << 63) - 1


def _hash(index: Index, stream: int) -> Index:
    """Sixty-four mixed bits (the finalizer of SplitMix64; Steele, Lea, Flood, 2014)."""
    x = index * _signed(0x9E3779B97F4A7C15) + _signed(stream * 0xD1342543DE82EF95)
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _signed(0x94D049BB133111EB)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def _shifted(bits: Index, shift: Index) -> Index:
    """Logical right shift of 64-bit patterns by 0 to 63."""
    return (bits >> shift) & ~((bits * 0 - 1 << 1) << (63 - shift))


def _signed(pattern: int) -> int:
    pattern &= (1 << 64) - 1
    return pattern - (1 << 64) if pattern >> 63 else pattern


def _mask(fmt: Format) -> int:
    return -1 if fmt.unit_bits == 64 else (1 << fmt.unit_bits) - 1


def _is_torch(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def _library(array: Any) -> Any:
    import importlib

    return importlib.import_module("torch" if _is_torch(array) else "numpy")
