"""Addresses for host code, for kernels that read pointers from memory, such as a table of matrices.

They are addresses of the emulator, as far apart as those of arguments, so that an access beyond a tensor is an error.
They are not valid in this process, so host code can only pass them on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.arguments import MOST_POINTED, LaunchError
from ptxdiff.emulator import pointed_address


class Pointers:
    """The storages whose addresses host code has asked for, while they live."""

    def __init__(self) -> None:
        self._storages: list[Any] = []
        self._slots: dict[int, int] = {}

    def address(self, tensor: Any) -> int:
        """The result of `tensor.data_ptr()`. Views of one storage keep their distance. Raises LaunchError."""
        from torch.multiprocessing import reductions

        storage = tensor.untyped_storage()
        key = storage._cdata
        slot = self._slots.get(key)
        # A weak reference, so that no other storage gets the same number.
        if slot is None:
            slot = self._slots[key] = len(self._storages)
            self._storages.append(reductions.StorageWeakRef(storage))  # type: ignore[no-untyped-call]
            if slot >= MOST_POINTED:
                raise LaunchError(f"data_ptr() was asked of more than {MOST_POINTED:,} tensors")
        start: int = storage.data_ptr()
        return pointed_address(slot, start) + int(tensor.data_ptr()) - start

    def memory(self, slot: int) -> NDArray[np.uint8] | None:
        """The bytes of a storage; None if it has been freed, or if the slot was never used."""
        import torch

        if slot >= len(self._storages):
            return None
        storage = torch.UntypedStorage._new_with_weak_ptr(self._storages[slot].cdata)
        if storage is None or not storage.nbytes():
            return None
        whole: NDArray[np.uint8] = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        return whole
