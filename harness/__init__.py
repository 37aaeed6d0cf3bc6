"""ptxdiff: a differential correctness test harness for inline PTX in Triton kernels.

A case file needs `from ptxdiff import Case, asm, plain, ulp`, and formats and references from `ptxdiff.references`.
Each name here is loaded when it is first used: importing this package loads neither torch, triton nor numba.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptxdiff.emulator import emulate
    from ptxdiff.launcher import emulated, run_cubin, run_ptx
    from ptxdiff.model.case import Case
    from ptxdiff.model.compilers import module_of_build
    from ptxdiff.model.match import (
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
    from ptxdiff.model.targets import ALL, NONE, only, since
    from ptxdiff.model.variants import (
        Differs,
        ExpectedFailure,
        Meets,
        PtxasFailure,
        asm,
        either,
        kernel,
        numpy_reference,
        plain,
        ptx,
    )
    from ptxdiff.notebooks import bits
    from ptxdiff.scripts import emulating

_MODULES = {
    "ptxdiff.launcher": ("emulated", "run_cubin", "run_ptx"),
    "ptxdiff.model.case": ("Case",),
    "ptxdiff.model.compilers": ("module_of_build",),
    "ptxdiff.model.variants": (
        "Differs",
        "ExpectedFailure",
        "Meets",
        "PtxasFailure",
        "asm",
        "either",
        "kernel",
        "numpy_reference",
        "plain",
        "ptx",
    ),
    "ptxdiff.model.match": (
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
    "ptxdiff.notebooks": ("bits",),
    "ptxdiff.emulator": ("emulate",),
    "ptxdiff.scripts": ("emulating",),
    "ptxdiff.model.targets": ("ALL", "NONE", "only", "since"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "ALL", "NONE", "Case", "Differs", "Domain", "ExpectedFailure", "Meets", "PtxasFailure", "absolute", "approximate",
    "asm", "between", "bits", "either", "emulate", "emulated", "emulating", "exact", "finite", "generated", "kernel",
    "magnitude", "module_of_build", "numpy_reference", "only", "plain", "ptx", "relative", "run_cubin", "run_ptx",
    "since", "ulp",
]  # fmt: skip
__version__ = "0.1.0"


if __name__ != "ptxdiff":
    raise ImportError(f"import ptxdiff instead of {__name__}: folders of the repository are no packages of their own")

# In a checkout `ptxdiff` may be found through a link. Modules then have their real files nevertheless, always the same:
# PTX and tracebacks contain their paths.
__path__[:] = map(os.path.realpath, __path__)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        from ptxdiff.suggestions import did_you_mean

        meant = did_you_mean(name, __all__)
        raise AttributeError(f"module 'ptxdiff' has no attribute {name!r}{meant}; it offers {', '.join(__all__)}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
