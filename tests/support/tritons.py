"""The installed Triton's version. Tests of what older versions lack, or write differently, skip with a reason."""

import importlib.metadata
import re

import pytest


def installed() -> tuple[int, int]:
    """The major and minor version; (0, 0) without Triton."""
    try:
        found = re.match(r"(\d+)\.(\d+)", importlib.metadata.version("triton"))
    except importlib.metadata.PackageNotFoundError:
        return 0, 0
    return (int(found[1]), int(found[2])) if found else (0, 0)


def since(major: int, minor: int, reason: str) -> pytest.MarkDecorator:
    """Skip a test if Triton is older, or missing. reason: what is different in older versions."""
    return pytest.mark.skipif(installed() < (major, minor), reason=f"Triton before {major}.{minor}: {reason}")
