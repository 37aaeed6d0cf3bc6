"""A node's pytest session, tested without Ray, starts in projects with various settings."""

import os
import subprocess
import sys

import pytest

from tests.cluster.conftest import ROOT, path_of

BEGINS = """
import ptxdiff.plugin
from pathlib import Path
from ptxdiff.running.cluster.messages import NodeRun
from ptxdiff.running.cluster.node_session import NodeSession
session = NodeSession(NodeRun("ident", "run", {}, ".", ()), Path.cwd())
print(sorted(session.items_of("cases/one.py")))
"""
CASE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8

def same(x):
    return x

moved = asm("mov.b32 $0, $1;", constraints="=r,r")
case = Case(inputs={"x": U8}, outputs={"y": U8}, reference=same, variants={"mov": moved})
"""


WARNS = """
import os, warnings

def pytest_configure(config):
    if os.environ.get("PYTEST_XDIST_WORKER"):
        warnings.warn("xdist is active")
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("installed", [True, False])
def test_a_project_that_turns_warnings_into_errors(tmp_path, installed):
    """pytest warns that an installed ptxdiff was imported before its assertions could be rewritten.

    pytest-benchmark 5.2 warns under pytest-xdist, whose workers may have started Ray; so does the project's conftest.
    """
    place = tmp_path / "site" / "ptxdiff-9.dist-info"
    project = tmp_path / "project"
    (project / "cases").mkdir(parents=True)
    (project / "cases" / "one.py").write_text(CASE)
    (project / "conftest.py").write_text(WARNS)
    (project / "pyproject.toml").write_text('[tool.pytest.ini_options]\nfilterwarnings = ["error"]\n')
    if installed:
        place.mkdir(parents=True)
        (place / "METADATA").write_text("Metadata-Version: 2.1\nName: ptxdiff\nVersion: 9\n")
        (place / "entry_points.txt").write_text("[pytest11]\nptxdiff = ptxdiff.plugin\n")
        (place / "RECORD").write_text("harness/__init__.py,,\nptxdiff-9.dist-info/RECORD,,\n")
    environment = {**os.environ, "PYTHONPATH": path_of(place.parent, ROOT), "PYTEST_XDIST_WORKER": "gw1"}
    done = subprocess.run([sys.executable, "-c", BEGINS], cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "one.py::mov" in done.stdout
