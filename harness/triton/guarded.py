"""One tensor in memory that is watched: where it lies, where nothing may change, and what was never written.

Every backend lays its tensors out so; what differs is the memory below: a numpy image with definedness bits in the
emulator, a tensor of torch on a device. Between guard zones the tensor begins on a 16-byte boundary, or one unit past
it, and its rows may lie apart. Guards, gaps and unwritten outputs hold a fill pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.triton.launch import TensorLayout

GUARD = 256
"""Bytes on either side; a multiple of every alignment in use."""

PATTERNS = (0xA5, 0x5A)
"""Complementary: no byte that was written once can equal both."""


@dataclass(frozen=True)
class Layout:
    """Where a tensor lies in an image, an array of bytes.

    alignment: bytes by which its first unit is aligned; less than 16 puts it one unit past a 16-byte boundary, aligned
    as the unit needs it and no more. guard: bytes on either side; 0 lets the memory end with the tensor, so that a tool
    sees what lies outside.
    """

    tensor: TensorLayout
    alignment: int = 16
    guard: int = GUARD

    @property
    def unit(self) -> int:
        """Bytes of a storage unit."""
        return self.tensor.format.unit_bits // 8

    @property
    def residue(self) -> int:
        """Bytes from a 16-byte boundary to the first unit."""
        return 0 if self.alignment % 16 == 0 else self.unit

    @property
    def span(self) -> slice:
        """The image's bytes from the first unit to the last, gaps between rows included."""
        start = self.guard + self.residue
        return slice(start, start + self.tensor.extent * self.unit)

    @property
    def size(self) -> int:
        """Bytes of the image."""
        stop = self.span.stop
        return -(-(stop + self.guard) // self.guard) * self.guard if self.guard else int(stop)

    def units(self, image: NDArray[np.uint8]) -> NDArray[Any]:
        """The tensor's units in an image, as a view of the tensor's shape."""
        return self._shaped(image[self.span].view(self.tensor.format.numpy_dtype()))

    def image(self, pattern: int, units: Any | None) -> NDArray[np.uint8]:
        """The bytes before a launch: the units of an input, the pattern everywhere else."""
        made = np.full(self.size, pattern, dtype=np.uint8)
        if units is not None:
            self.units(made)[...] = units
        return made

    def forbidden(self, *, is_input: bool) -> NDArray[np.bool_]:
        """The bytes of an image that no kernel may change: of an input all, of an output all but its units."""
        mask = np.ones(self.size, dtype=bool)
        if not is_input:
            self._shaped(mask[self.span].reshape(-1, self.unit))[...] = False
        return mask

    def _shaped(self, flat: NDArray[Any]) -> NDArray[Any]:
        """A view of the tensor's shape on what has an entry for each unit, gaps included."""
        shape, stride = self.tensor.shape, self.tensor.row_stride
        rest, steps = flat.shape[1:], flat.strides
        if stride is None or 0 in shape:
            return flat[: 0 if 0 in shape else None].reshape(shape + rest)
        return np.lib.stride_tricks.as_strided(flat, shape + rest, (stride * steps[0], *steps))

    def where(self, byte: int) -> str:
        """A byte of the image as seen from the tensor."""
        if byte < self.span.start:
            return f"{self.span.start - byte} before its start"
        if byte >= self.span.stop:
            return f"{byte - self.span.stop} past its end"
        return f"{byte - self.span.start} from its start"


def never_written(name: str, never: NDArray[np.bool_]) -> list[str]:
    """The finding on bytes that no kernel wrote. never: for each byte of an output, whether it is one."""
    if not never.any():
        return []
    return [f"{int(never.sum())} bytes of {name} were never written, first byte {int(never.argmax())}"]


def input_overwritten(name: str, count: int, first: object) -> str:
    """The finding on an input that a kernel wrote to: inputs are read only."""
    return f"{name} is an input and {count} of its bytes were overwritten, first byte {first}"
