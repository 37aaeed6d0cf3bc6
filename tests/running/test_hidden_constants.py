"""A reference that changed by a number which no walk from it finds: the gate and a replay say so.

Asm and reference change together, so that wrong asm passes. The gate must not take that for a repair of the asm, and
whoever repeats a failure must not take the pass for theirs.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from ptxdiff.gating import baseline, digests
from ptxdiff.gating.gate import ACCEPTED, CORRECTNESS, Policy, gate
from ptxdiff.model.identity import source
from ptxdiff.records import read
from tests.support.caches import share_caches

CASE = """
import collections, colorsys, ctypes, os, queue, sys, threading, weakref
from pathlib import Path
import hidden_{name} as helper
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8
{before}

def flipped(x):
    return x ^ {number}

case = Case(
    inputs={{"x": U8}}, outputs={{"y": U8}}, reference=flipped,
    variants={{"v": asm("xor.b32 $0, $1, {asm};", constraints="=r,r")}},
)
"""

# Columns: the number in the reference, what stands before it, the text of a module, that of a file beside the case.
WAYS = {
    "attribute_by_name": ("getattr(helper, 'ke' + 'y')", "", "key = 6\n", ""),
    "modules_getattr": ("helper.anything", "", "def __getattr__(name):\n    return 6\n", ""),
    "subclasses": ("helper.Base.__subclasses__()[0].by", "", "class Base: pass\nclass One(Base):\n    by = 6\n", ""),
    "patched_package": ("colorsys.hidden", "", "import colorsys\ncolorsys.hidden = 6\n", ""),
    "file_read_in_a_call": ("int((Path(__file__).parent / 'n.txt').read_text())", "", "", "6"),
    "file_without_open": ("int(os.read(os.open(Path(__file__).parent / 'n.txt', 0), 9))", "", "", "6"),
    "docstring": ("int(G.__doc__)", "def G():\n    '6'", "", ""),
    "frame": ("sys._getframe().f_globals['KE' + 'Y']", "KEY = 6", "", ""),
    "wrapped": ("G.__wrapped__()", "def k():\n    return 6\ndef G(): pass\nG.__wrapped__ = k", "", ""),
    "weak_reference": ("HELD().k", "class C:\n    k = 6\nKEPT = C()\nHELD = weakref.ref(KEPT)", "", ""),
    "queue": ("HELD.queue[0]", "HELD = queue.Queue()\nHELD.put(6)", "", ""),
    "thread_local": ("HELD.k", "HELD = threading.local()\nHELD.k = 6", "", ""),
    "ctypes_object": ("HELD.value", "HELD = ctypes.py_object(6)", "", ""),
    "conftest": ("colorsys.by_conftest", "", "", ""),
    "ini_setting": ("colorsys.by_ini", "", "", ""),
    "environment": ("int(os.environ['HIDDEN_' + 'NUMBER'])", "", "", ""),
}
MODELS = Policy(allow_model=True)


@pytest.fixture(params=WAYS)
def run(request, run_cases, pytester, monkeypatch):
    """Run the case with a number in its reference and one in its asm, as in a new process. Returns the output."""
    name = request.param
    number_in_code, before, helper, data = WAYS[name]
    share_caches(pytester.path / "cache")
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(pytester.path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(pytester.path))

    def write(path: str, text: str) -> None:
        (pytester.path / path).parent.mkdir(exist_ok=True)
        (pytester.path / path).write_text(text)

    def run(reference: str, asm: str, *arguments: str) -> str:
        if name == "environment":
            monkeypatch.setenv("HIDDEN_NUMBER", reference)
        ini, conftest = (reference if name == kind else "0" for kind in ("ini_setting", "conftest"))
        write("pytest.ini", f"[pytest]\nhidden = {ini}\n")
        write(
            "conftest.py",
            f"import colorsys\ncolorsys.by_conftest = {conftest}\n"
            "def pytest_addoption(parser):\n    parser.addini('hidden', 'a number', default='0')\n"
            "def pytest_configure(config):\n    colorsys.by_ini = int(config.getini('hidden'))\n",
        )
        write(f"hidden_{name}.py", helper.replace("6", reference))
        write("cases/n.txt", data.replace("6", reference))
        for known in [n for n in sys.modules if n.startswith(("hidden_", "ptxdiff_folder_", "conftest"))]:
            del sys.modules[known]
        importlib.invalidate_caches()
        source.forget()
        monkeypatch.setattr("ptxdiff.running.carry_over._NONCE", os.urandom(4).hex())
        text = CASE.format(name=name, before=before.replace("6", reference), number=number_in_code, asm=asm)
        return run_cases(*arguments, c=text).stdout.str()

    return run


@pytest.mark.sample(4)
def test_the_gate_takes_it_for_no_repair(run, tmp_path):
    """Neither with the full form of a baseline nor with its digests."""
    assert "1 passed" in run("6", "6", "--ptx-records=accepted.jsonl")
    assert "1 passed" in run("7", "7", "--ptx-records=changed.jsonl")
    accepted, changed = read(Path("accepted.jsonl")), read(Path("changed.jsonl"))
    for form, decide, kept in (
        (baseline, gate, accepted),
        (digests, digests.decided, digests.condensed(accepted)),
    ):
        folder = tmp_path / form.__name__.rpartition(".")[2]
        form.write(kept, folder)
        assert decide(accepted, form.load(folder), MODELS).code == ACCEPTED
        decision = decide(changed, form.load(folder), MODELS)
        assert decision.code == CORRECTNESS
        assert any("changed too" in f.text for f in decision.findings if f.code)


@pytest.mark.sample(4)
def test_a_replay_says_so(run):
    output = run("6", "7")
    node, word = shlex.split(re.findall(r"^  repeat    pytest (.*)$", output, flags=re.M)[0])
    output = " ".join(run("7", "7", node, word).split())
    assert "1 passed" in output
    assert "since this token was made" in output
