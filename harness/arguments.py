"""The arguments of an emulated launch: arrays and tensors as buffers, tensor descriptors as parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxdiff.emulator import (
    BUFFER_SPACING,
    PADDED_NIBBLES,
    POINTED_BASE,
    Buffer,
    BufferPointer,
    HostMap,
    pointed_address,
)
from ptxdiff.model.targets import capability, normal
from ptxdiff.tracebacks import ShortTraceback

MOST_POINTED = 1 << 18
"""The most addresses that host code can get in one session: those below the addresses of parameters."""


class LaunchError(ShortTraceback, ValueError):
    """A launch that is refused: for arguments that Triton does not accept, or a kernel that does not compile."""


def tensor_maps(target: str) -> bool:
    """Whether a target copies boxes by tensor maps (TMA): from sm_90 on."""
    return capability(normal(target)) >= 90


def is_descriptor(value: Any) -> bool:
    """Whether a value is a tensor descriptor: a tensor with the sizes of its blocks, for bulk copies (TMA)."""
    return type(value).__name__ == "TensorDescriptor"


def is_tensor(value: Any) -> bool:
    """Whether a value is a numpy array or a torch tensor, which becomes a pointer."""
    return isinstance(value, np.ndarray) or (
        type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr")
    )


def address_of(tensor: Any) -> int:
    """The address of its first element."""
    return int(tensor.ctypes.data if isinstance(tensor, np.ndarray) else tensor.data_ptr())


class Pointed(Protocol):
    """Memory that host code has addresses of, by the numbers of these addresses (`pointed_address`)."""

    def memory(self, slot: int) -> NDArray[np.uint8] | None:
        """The bytes of a number; None if it has none, or if they have been freed."""


class Arguments:
    """The tensors of a launch as emulated buffers. One tensor passed twice is one buffer.

    pointed: memory that the kernel reaches through addresses: 64-bit integers among the arguments, or stored in them.
    """

    def __init__(self, values: Mapping[str, Any], unwritten: frozenset[str], pointed: Pointed | None = None) -> None:
        self._buffers: dict[tuple[int, int], tuple[Any, bool]] = {}
        self.pointed: list[Any] = []
        if pointed is not None:
            self._reach(list(values.values()), pointed)
        unknown = unwritten - set(values)
        if unknown:
            raise LaunchError(f"unwritten= names {', '.join(sorted(unknown))}; the arguments are {', '.join(values)}")
        for name, value in values.items():
            self._take(name, value, name in unwritten)

    def _take(self, name: str, value: Any, unwritten: bool) -> None:
        if isinstance(value, tuple | list):
            for number, element in enumerate(value):
                self._take(f"{name}[{number}]", element, unwritten)
        if is_descriptor(value):
            value = value.base
        if not is_tensor(value):
            return
        raw = span(name, value)
        first, last = address_of(raw), address_of(raw) + raw.nbytes
        if raw.nbytes and self._holder(first, last):
            if unwritten:
                raise LaunchError(
                    f"unwritten= names {name}, whose address the kernel finds in memory too; leave it out"
                )
            return
        for other_first, other_last in self._buffers:
            if (other_first, other_last) != (first, last) and first < other_last and other_first < last:
                raise LaunchError(f"{name} overlaps another argument; pass the tensor that contains both, once")
        if (first, last) not in self._buffers:
            buffer = Buffer(raw, name, defined=not unwritten, residue=first % 256)
            self._buffers[first, last] = (buffer, unwritten)

    def placed(self, value: Any) -> Any:
        """A value with tensors replaced by their buffers."""
        if isinstance(value, tuple | list):
            return tuple(self.placed(v) for v in value)
        if not is_tensor(value):
            return value
        raw = span("", value)
        first, last = address_of(raw), address_of(raw) + raw.nbytes
        if raw.nbytes and (holder := self._holder(first, last)):
            return BufferPointer(holder, first - address_of(holder.array))
        return self._buffers[first, last][0]

    def _holder(self, first: int, last: int) -> Any:
        """The pointed buffer that contains these addresses of the host; None if none does."""
        starts = ((b, address_of(b.array)) for b in self.pointed)
        return next((b for b, start in starts if start <= first and last <= start + b.size), None)

    def _reach(self, values: list[Any], pointed: Pointed) -> None:
        """Make buffers of all memory that values point to, and of all memory that this memory points to."""
        by_slot: dict[int, Any] = {}
        while values:
            for slot in _slots(values.pop()):
                memory = None if slot in by_slot else pointed.memory(slot)
                if memory is not None:
                    name = f"the tensor at 0x{pointed_address(slot, address_of(memory)):x}"
                    by_slot[slot] = Buffer(memory, name, residue=address_of(memory) % 256, slot=slot)
                    values.append(memory[: len(memory) // 8 * 8].view(np.int64))
        self.pointed = list(by_slot.values())

    def described(self, name: str, value: Any, layout: Any, target: str) -> list[Any]:
        """A tensor descriptor as parameters of the entry: the map, the sizes and the strides.

        layout: the compiler's; None for a target without tensor maps. There Triton turns copies by a descriptor into
        loads and stores, and the descriptor's fields replace the map (Triton's `decompose_descriptor`).
        """
        if getattr(value, "round_f32_to_tf32", False):
            raise LaunchError(f"{name}: the emulator has no tensor descriptors that round to tf32")
        sizes, strides = tuple(map(int, value.shape)), tuple(map(int, value.strides))
        fill = int(getattr(value, "padding", "zero") == "nan")
        base = self.placed(value.base)
        if layout is None:
            if tensor_maps(target):
                raise LaunchError(f"{name}: Triton gave no layout of this descriptor for {target}")
            flags = [fill, 0] if hasattr(value, "round_f32_to_tf32") else [fill]  # tf32: since Triton 3.7
            return [base, *sizes, *strides, *flags, *sizes, *strides]
        buffer, offset = (base.buffer, base.offset) if isinstance(base, BufferPointer) else (base, 0)
        counted = (*sizes[:-1], 2 * sizes[-1]) if layout.element == PADDED_NIBBLES else sizes
        whole = HostMap(buffer, offset, counted, strides, layout.box, layout.element, layout.swizzle, fill)
        return [whole, *sizes, *strides]

    def check_written(self) -> None:
        """Raise UndefinedBits for a byte of an unwritten argument that the kernel never wrote."""
        from ptxdiff.emulator import UndefinedBits

        for buffer, unwritten in self._buffers.values():
            left = buffer.unwritten
            if unwritten and left is not None and left.any():
                raise UndefinedBits(
                    f"{int(left.sum())} bytes of {buffer.name} were never written, first {int(left.argmax())}"
                )


def _slots(value: Any) -> Iterator[int]:
    """The numbers of the addresses among 64-bit integers: one integer, or the elements of an array or tensor."""
    if isinstance(value, tuple | list):
        for element in value:
            yield from _slots(element)
        return
    if isinstance(value, int) and 0 <= value < 1 << 63:
        numbers = np.array([value])
    elif is_tensor(value) and str(value.dtype).removeprefix("torch.") in ("int64", "uint64"):
        numbers = span("an argument", value).view(np.int64)
    else:
        return
    slots = (numbers - POINTED_BASE) // BUFFER_SPACING
    yield from np.unique(slots[(slots >= 0) & (slots < MOST_POINTED)]).tolist()


def span(name: str, tensor: Any) -> NDArray[np.uint8]:
    """The bytes from a tensor's first element to its last, in its own memory: all that its pointer may be used for.

    Raises LaunchError for a tensor on a device, and for negative strides.
    """
    if isinstance(tensor, np.ndarray):
        if any(s < 0 for s in tensor.strides):
            raise LaunchError(f"{name} has negative strides, which a pointer cannot express; pass a copy")
        extent = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True)) + tensor.itemsize
        extent = extent if tensor.size else 0
        units = tensor.view(f"u{tensor.itemsize}")
        flat = np.lib.stride_tricks.as_strided(units, (extent // tensor.itemsize,), (tensor.itemsize,))
        return flat.view(np.uint8)
    if tensor.device.type != "cpu":
        raise LaunchError(f"{name} is on {tensor.device}; the emulator works on CPU tensors")
    import torch

    extent = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1 if tensor.numel() else 0
    flat = tensor.detach().as_strided((extent,), (1,))
    raw: NDArray[np.uint8] = flat.view(torch.uint8).numpy()
    return raw
