"""torch, imported when a reference first computes with it.

Importing torch takes more than a second of processor time. A process that reads case files without judging anything
does not need it: a compile worker, `ptxdiff list`, or a run whose results are all reused.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
else:

    class _Torch(ModuleType):
        """Stands for torch in a module of references; digests of functions name it as they name torch."""

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):  # asked of every module by inspect and the like: no reason to import
                raise AttributeError(name)
            import torch

            return getattr(torch, name)

    torch = _Torch("torch")
