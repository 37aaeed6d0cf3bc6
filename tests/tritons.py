"""Which Triton is installed: tests of what older ones lack, or write otherwise, skip with the reason."""

import importlib.metadata
import re

import pytest


def installed() -> tuple[int, int]:
    """Major and minor version; (0, 0) where there is no Triton."""
    try:
        found = re.match(r"(\d+)\.(\d+)", importlib.metadata.version("triton"))
    except importlib.metadata.PackageNotFoundError:
        return 0, 0
    return (int(found[1]), int(found[2])) if found else (0, 0)


def since(major: int, minor: int, reason: str) -> pytest.MarkDecorator:
    """Skip a test where Triton is older, or missing. reason: what is different there."""
    return pytest.mark.skipif(installed() < (major, minor), reason=f"Triton before {major}.{minor}: {reason}")
