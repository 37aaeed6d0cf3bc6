"""torch, imported at the first computation of a reference.

Importing torch takes more than a second of processor time. Processes that read case files but judge no results do not
need it: a compile worker, `ptxdiff list`, or a run that reuses all results.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
else:

    class _Torch(ModuleType):
        """A placeholder for torch in modules of references; digests of functions treat it as torch."""

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):  # tools such as inspect read these of every module: do not import torch for them
                raise AttributeError(name)
            try:
                import torch
            except ModuleNotFoundError as error:
                if error.name != "torch":
                    raise
                message = "references compute with torch: pip install 'ptxdiff[triton]'"
                raise ModuleNotFoundError(message, name="torch") from None
            return getattr(torch, name)

    torch = _Torch("torch")
