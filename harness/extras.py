"""Packages that only some parts of ptxdiff need, and the command that installs them.

The base install has what `lint`, `emulate` and kernels given as PTX need. `pip install 'ptxdiff[EXTRA]'` adds the rest.
LLVM, three times as large as the base, is one of them: without it, definitions of instructions run in Python.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable

EXTRA_OF = {
    "torch": "triton",
    "triton": "triton",
    "llvmlite": "compiler",
    "numba": "compiler",
    "jinja2": "report",
    "altair": "report",
    "vl_convert": "report",
    "msgspec": "report",
    "hypothesis": "strategies",
    "pytest_benchmark": "bench",
    "xdist": "parallel",
    "ray": "cluster",
    "pyarrow": "parquet",
    "bitwuzla": "prove",
    "z3": "prove",
    "pygls": "lsp",
    "lsprotocol": "lsp",
    "argcomplete": "completion",
    "cuda": "gpu",
    "pynvml": "gpu",
}
"""The extra that brings a package, by the package's import name."""


class MissingPackage(ModuleNotFoundError):
    """A package of an extra is not installed. The message has the command that installs it."""


SLOW_WITHOUT_COMPILER = (
    "instructions run in Python, about 1000 times slower than compiled, because llvmlite is not installed: "
    "pip install 'ptxdiff[compiler]'"
)


def installed(package: str) -> bool:
    """Whether a package can be imported; it is not imported."""
    if package in sys.modules:
        return sys.modules[package] is not None  # None: an import of it is an error, as of a package that is missing
    return importlib.util.find_spec(package) is not None


def require(*packages: str, purpose: str) -> None:
    """Raise MissingPackage if one of these packages is not installed. purpose: what needs it, in the message."""
    missing = [package for package in packages if not installed(package)]
    if missing:
        raise MissingPackage(advice(missing, purpose), name=missing[0])


def advice(missing: Iterable[str], purpose: str) -> str:
    """A sentence for packages that are missing: what needs them, and the command that installs them."""
    missing = list(missing)
    extras = dict.fromkeys(EXTRA_OF[package] for package in missing)
    if "triton" in extras:
        extras.pop("compiler", None)  # part of it
    named = " and ".join([", ".join(missing[:-1]), missing[-1]] if len(missing) > 1 else missing)
    return f"{purpose} needs {named}: pip install 'ptxdiff[{','.join(extras)}]'"


def missing_package(error: BaseException) -> str:
    """The package of an extra that a failed import wanted; "" for any other error."""
    name = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    package = (name or "").partition(".")[0]
    return package if package in EXTRA_OF and not installed(package) else ""
