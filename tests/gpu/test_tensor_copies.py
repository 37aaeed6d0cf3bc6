"""Bulk tensor copies in all modes that the GPU here has, and reductions, have the bits of the specification."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu
SCRIPT = Path(__file__).with_name("tensor_copies.py")


def test_copies_and_reductions(tmp_path):
    """The script forks, so it runs in a process that has not used the GPU."""
    path = tmp_path / "results.json"
    words = [sys.executable, str(SCRIPT), "--cases", "5", "--seed", "2", "--seconds", "200", "--json", str(path)]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    if found.stdout.startswith("skipped"):
        pytest.skip(found.stdout.strip())
    assert found.returncode == 0, (found.stdout + found.stderr)[-4000:]
    results = json.loads(path.read_text())["results"]
    assert {r["phase"] for r in results if r["ran"]} == {"legal", "load", "store", "reduce"}
