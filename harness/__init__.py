"""ptxdiff: a differential correctness test harness for inline PTX in Triton kernels.

A case file needs `from harness import Case, asm, plain, ulp` and formats and references from `references`. Each name
here is loaded when it is first used: importing this package loads neither torch, triton nor numba.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.launcher import emulated, run_ptx
    from harness.model.case import Case
    from harness.model.compilers import module_of_build
    from harness.model.match import (
        Domain,
        absolute,
        approximate,
        between,
        exact,
        finite,
        generated,
        magnitude,
        relative,
        ulp,
    )
    from harness.model.targets import ALL, NONE, only, since
    from harness.model.variants import (
        Differs,
        ExpectedFailure,
        Meets,
        PtxasFailure,
        asm,
        either,
        kernel,
        numpy_reference,
        plain,
    )
    from harness.ptx import emulate
    from harness.scripts.emulating import emulating

_MODULES = {
    "harness.launcher": ("emulated", "run_ptx"),
    "harness.model.case": ("Case",),
    "harness.model.compilers": ("module_of_build",),
    "harness.model.variants": (
        "Differs",
        "ExpectedFailure",
        "Meets",
        "PtxasFailure",
        "asm",
        "either",
        "kernel",
        "numpy_reference",
        "plain",
    ),
    "harness.model.match": (
        "Domain",
        "absolute",
        "approximate",
        "between",
        "exact",
        "finite",
        "generated",
        "magnitude",
        "relative",
        "ulp",
    ),
    "harness.ptx": ("emulate",),
    "harness.scripts.emulating": ("emulating",),
    "harness.model.targets": ("ALL", "NONE", "only", "since"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "ALL", "NONE", "Case", "Differs", "Domain", "ExpectedFailure", "Meets", "PtxasFailure", "absolute", "approximate",
    "asm", "between", "either", "emulate", "emulated", "emulating", "exact", "finite", "generated", "kernel",
    "magnitude", "module_of_build", "numpy_reference", "only", "plain", "ptx", "relative", "run_ptx", "since", "ulp",
]  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "ptx":
        return importlib.import_module("harness.ptx")
    if name not in _MODULE_OF:
        if error := importlib.import_module("harness.ours").missing("harness", name):
            raise error
        raise AttributeError(f"module 'harness' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
