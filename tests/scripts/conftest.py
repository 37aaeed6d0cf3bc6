"""Markers of files that these tests import."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Triton's tutorials carry a marker of Triton's own tests."""
    config.addinivalue_line("markers", "enable_warmup: of Triton's tests")
