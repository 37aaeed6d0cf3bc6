"""A guarded tensor in memory: where its units lie, which bytes no kernel may change, and which it never wrote.

All backends use this layout. Only the memory differs: a numpy image with definedness bits in the emulator, a torch
tensor on a device. The tensor lies between guard zones. It begins on a 16-byte boundary, or one unit after it, and its
rows may have gaps between them. Guards, gaps and unwritten outputs hold a fill pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.triton.launch import TensorLayout

GUARD = 256
"""Bytes of a guard zone on either side; a multiple of every alignment in use."""

PATTERNS = (0xA5, 0x5A)
"""Complementary fill patterns: a byte that a kernel wrote cannot equal both."""


@dataclass(frozen=True)
class Layout:
    """The position of a tensor in an image, which is an array of bytes.

    alignment: bytes by which its first unit is aligned. Less than 16 puts the unit so many bytes after a 16-byte
    boundary, or its own size if that is more. guard: bytes on either side; with 0 the memory ends with the tensor, so
    that a memory checker detects accesses outside.
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
        return 0 if self.alignment % 16 == 0 else max(self.alignment, self.unit)

    @property
    def span(self) -> slice:
        """The image's bytes from the first unit to the last, including gaps between rows."""
        start = self.guard + self.residue
        return slice(start, start + self.tensor.extent * self.unit)

    @property
    def size(self) -> int:
        """Bytes of the image."""
        stop = self.span.stop
        return -(-(stop + self.guard) // self.guard) * self.guard if self.guard else int(stop)

    def units(self, image: NDArray[np.uint8]) -> NDArray[Any]:
        """The tensor's units in an image, as a view in the tensor's shape."""
        return self._shaped(image[self.span].view(self.tensor.format.numpy_dtype()))

    def image(self, pattern: int, units: Any | None) -> NDArray[np.uint8]:
        """The bytes before a launch: the units of an input, and the pattern everywhere else."""
        made = np.full(self.size, pattern, dtype=np.uint8)
        if units is not None:
            self.units(made)[...] = units
        return made

    def forbidden(self, *, is_input: bool) -> NDArray[np.bool_]:
        """The bytes of an image that no kernel may change: all bytes of an input; for an output, all but its units."""
        mask = np.ones(self.size, dtype=bool)
        if not is_input:
            self._shaped(mask[self.span].reshape(-1, self.unit))[...] = False
        return mask

    def _shaped(self, flat: NDArray[Any]) -> NDArray[Any]:
        """A view in the tensor's shape of an array with one entry for each unit, including gaps."""
        shape, stride = self.tensor.shape, self.tensor.row_stride
        rest, steps = flat.shape[1:], flat.strides
        if stride is None or 0 in shape:
            return flat[: 0 if 0 in shape else None].reshape(shape + rest)
        return np.lib.stride_tricks.as_strided(flat, shape + rest, (stride * steps[0], *steps))

    def where(self, byte: int) -> str:
        """A byte's position relative to the tensor, in words."""
        if byte < self.span.start:
            return f"{self.span.start - byte} before its start"
        if byte >= self.span.stop:
            return f"{byte - self.span.stop} past its end"
        return f"{byte - self.span.start} from its start"


def never_written(name: str, never: NDArray[np.bool_]) -> list[str]:
    """The finding on bytes that no kernel wrote. never: for each byte of an output, whether it was never written."""
    if not never.any():
        return []
    return [f"{int(never.sum())} bytes of {name} were never written, first byte {int(never.argmax())}"]


def input_overwritten(name: str, count: int, first: object) -> str:
    """The finding on an input that a kernel wrote to; inputs are read only."""
    return f"{name} is an input and {count} of its bytes were overwritten, first byte {first}"
