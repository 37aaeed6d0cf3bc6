"""Names that a package gives to others, loaded from its modules at their first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def attribute_of(package: str, names: Mapping[str, Sequence[str]], name: str) -> Any:
    """The value of `name`, which one of the package's modules defines. Raises AttributeError if none of them does."""
    for module, given in names.items():
        if name in given:
            value = getattr(importlib.import_module(f"{package}.{module}"), name)
            setattr(sys.modules[package], name, value)
            return value
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
