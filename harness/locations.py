"""Where ptxdiff itself lies: the folders of its packages, and the folder in Python's path that holds `ptxdiff`."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
"""The package `ptxdiff`: in a checkout the folder `harness`, to which the link `ptxdiff` beside it leads."""

REFERENCES = (PACKAGE / "references").resolve()
"""The package `ptxdiff.references`: in a checkout the folder of that name at its root."""

ROOT = PACKAGE.parent
"""The folder in which Python finds `ptxdiff`: a checkout's root, or the folder of installed packages."""
