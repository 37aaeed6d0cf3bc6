"""Addresses that host code is told, for kernels that find pointers in memory, such as a table of matrices.

They are the emulator's, as far apart as those of arguments, so that an access beyond a tensor is an error here too.
Nothing else may be done with them: they are no addresses of this process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.arguments import MOST_POINTED, LaunchError
from harness.ptx.kernel.memory import pointed_address


class Pointers:
    """The storages whose addresses were asked for, as long as they live."""

    def __init__(self) -> None:
        self._storages: list[Any] = []
        self._slots: dict[int, int] = {}

    def address(self, tensor: Any) -> int:
        """What `tensor.data_ptr()` gives: views of one storage keep their distance. Raises LaunchError for too many."""
        from torch.multiprocessing import reductions

        storage = tensor.untyped_storage()
        key = storage._cdata
        slot = self._slots.get(key)
        # A weak reference keeps the number of its storage from being given to another one.
        if slot is None:
            slot = self._slots[key] = len(self._storages)
            self._storages.append(reductions.StorageWeakRef(storage))  # type: ignore[no-untyped-call]
            if slot >= MOST_POINTED:
                raise LaunchError(f"data_ptr() was asked of more than {MOST_POINTED:,} tensors")
        start: int = storage.data_ptr()
        return pointed_address(slot, start) + int(tensor.data_ptr()) - start

    def memory(self, slot: int) -> NDArray[np.uint8] | None:
        """The bytes of a storage; None for one that is gone, and where there is none."""
        import torch

        if slot >= len(self._storages):
            return None
        storage = torch.UntypedStorage._new_with_weak_ptr(self._storages[slot].cdata)
        if storage is None or not storage.nbytes():
            return None
        whole: NDArray[np.uint8] = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        return whole
