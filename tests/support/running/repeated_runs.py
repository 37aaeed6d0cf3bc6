"""Runs of one case file, one after the other, that may reuse results."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from ptxdiff.running import reuse
from ptxdiff.running import run as running
from tests.support.caches import share_caches

CASE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8
from {helper} import mask

def flipped(x):
    return x ^ mask()

case = Case(
    inputs={{"x": U8}}, outputs={{"y": U8}}, reference=flipped,
    variants={{
        "right": asm("xor.b32 $0, $1, 6;", constraints="=r,r"),
        "wrong": asm("xor.b32 $0, $1, 7;", constraints="=r,r"),
        "only new": asm("{{ .reg .b32 t; add.u16x2 t, $1, $1; xor.b32 $0, $1, 6; }}", constraints="=r,r"),
    }},
)
"""


HELPER = "def mask():\n    return 6\n"


@pytest.fixture
def runs(run_cases, pytester, monkeypatch, tmp_path):
    """Run a case file and its helper as in a new process. Returns verdicts, the items that ran, and the records."""
    monkeypatch.setenv("PTXDIFF_REUSE", "1")
    share_caches(tmp_path / "cache")
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = f"ptxdiff_reuse_{abs(hash(str(tmp_path)))}"
    monkeypatch.syspath_prepend(str(tmp_path))
    ran: list[str] = []
    run_item = running.run_item

    def counted(item, *arguments, **more):
        ran.append(f"{item.variant_name} {item.target}")
        return run_item(item, *arguments, **more)

    monkeypatch.setattr(running, "run_item", counted)
    number = iter(range(100))

    def run(*arguments: str, case: str = CASE, helper: str = HELPER):
        (tmp_path / f"{name}.py").write_text(helper)
        for known in [n for n in sys.modules if n == name or n.startswith("ptxdiff_folder_")]:
            del sys.modules[known]
        importlib.invalidate_caches()
        reuse.forget()
        ran.clear()
        file = tmp_path / f"{next(number)}.jsonl"
        run_cases(f"--ptx-records={file}", *arguments, case=case.format(helper=name))
        found = [json.loads(line) for line in file.read_text().splitlines()]
        results = [r for r in found if r.get("record") == "result"]
        verdicts = {(r["key"]["variant"], r["key"]["target"]): r["verdict"] for r in results}
        return verdicts, list(ran), found

    return run
