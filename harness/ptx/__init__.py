"""PTX on the CPU: parse it, bind it as Triton does, and run it bit for bit. Needs only numpy, ml_dtypes and numba.

`emulate` runs an inline asm block on arrays, `trace` runs it on one pack step by step, `analyse` lists its
instructions; `errors` has the exceptions. Names load at their first use.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptxdiff.ptx.analysis.describe import analyse, program_text, refusal, repeated_name, written_input
    from ptxdiff.ptx.analysis.trace import Trace, trace
    from ptxdiff.ptx.api import emulate
    from ptxdiff.ptx.binding.contents import Analysis
    from ptxdiff.ptx.errors import PtxError

__all__ = [
    "Analysis",
    "PtxError",
    "Trace",
    "analyse",
    "emulate",
    "program_text",
    "refusal",
    "repeated_name",
    "trace",
    "written_input",
]

_MODULE_OF = dict.fromkeys(
    ("analyse", "program_text", "refusal", "repeated_name", "written_input"), "analysis.describe"
)
_MODULE_OF |= dict.fromkeys(("Trace", "trace"), "analysis.trace")
_MODULE_OF |= {"Analysis": "binding.contents", "PtxError": "errors", "emulate": "api"}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


class _Callable(ModuleType):
    """This package, which can also be called: `ptx(...)` in a case declares a variant in PTX, as `asm(...)` does in
    asm."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return importlib.import_module("ptxdiff.model.ptxvariant").ptx(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
