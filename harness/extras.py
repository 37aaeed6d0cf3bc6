"""Packages that only some parts of ptxdiff need, and the command that installs them.

The base install has what `lint`, `emulate` and kernels given as PTX need. `pip install 'ptxdiff[EXTRA]'` adds the rest.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

EXTRA_OF = {
    "torch": "triton",
    "triton": "triton",
    "jinja2": "report",
    "altair": "report",
    "vl_convert": "report",
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
}
"""The extra that brings a package, by the package's import name."""


class MissingPackage(ModuleNotFoundError):
    """A package of an extra is not installed. The message has the command that installs it."""


def require(*packages: str, purpose: str) -> None:
    """Raise MissingPackage if one of these packages is not installed. purpose: what needs it, in the message."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingPackage(advice(missing, purpose), name=missing[0])


def advice(missing: Iterable[str], purpose: str) -> str:
    """A sentence for packages that are missing: what needs them, and the command that installs them."""
    missing = list(missing)
    extras = ",".join(dict.fromkeys(EXTRA_OF[package] for package in missing))
    return f"{purpose} needs {' and '.join(missing)}: pip install 'ptxdiff[{extras}]'"


def missing_package(error: BaseException) -> str:
    """The package of an extra that a failed import wanted; "" for any other error."""
    name = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    package = (name or "").partition(".")[0]
    return package if package in EXTRA_OF and importlib.util.find_spec(package) is None else ""
