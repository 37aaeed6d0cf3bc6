"""No way of carrying results over keeps a pass after an edit with which the code would fail.

Each case file here passes. Then one file of it is edited, so that its reference gives other bits. The edit is reached
in a way that no walk from the reference sees, or that lies in no text.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.caches import share_caches

CASE = '''
"""One way to reach the number that a reference uses."""
import collections, ctypes, colorsys, io, operator, os
import numpy as np
import torch
from pathlib import Path
import carried_{name} as helper
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8

{before}

def flipped(x):
    return {result}

case = Case(
    inputs={{"x": U8}}, outputs={{"y": U8}}, reference=flipped,
    variants={{"right": asm("xor.b32 $0, $1, 6;", constraints="=r,r")}},
)
'''


class Way(NamedTuple):
    """before, result: in the case file. helper: the text of its helper. data: of a file beside the case file."""

    result: str
    before: str = ""
    helper: str = "def f(x):\n    return x ^ 6\n"
    data: str = ""


READ = "(Path(__file__).parent / '{name}.txt').read_text()"

WAYS = {
    "a_deque": Way("TABLE[0](x)", "TABLE = collections.deque([helper.f])"),
    "a_ctypes_object": Way("HELD.value(x)", "HELD = ctypes.py_object(helper.f)"),
    "a_tensors_attribute": Way("TENSOR.f(x)", "TENSOR = torch.zeros(1)\nTENSOR.f = helper.f"),
    "a_views_base": Way("x ^ int(VIEW.base[0])", "VIEW = np.array([6, 0])[1:]"),
    "a_masked_array": Way(
        "x ^ int(MASKED.filled()[0])", "MASKED = np.ma.masked_array([0], mask=[True], fill_value=6)"
    ),
    "a_text_in_memory": Way("x ^ int(TEXT.getvalue())", "TEXT = io.StringIO('6')"),
    "metadata_of_a_dtype": Way("x ^ KIND.metadata['by']", "KIND = np.dtype('f4', metadata={'by': 6})"),
    "subclasses": Way(
        "x ^ helper.Base.__subclasses__()[0].by", "", "class Base:\n    pass\nclass One(Base):\n    by = 6\n"
    ),
    "an_attrgetter": Way("get(helper)(x)", "get = operator.attrgetter('f')"),
    "a_modules_getattr": Way("helper.anything(x)", "", "def __getattr__(name):\n    return lambda x: x ^ 6\n"),
    "a_patched_torch": Way("torch.carried_flip(x)", "", "import torch\ntorch.carried_flip = lambda x: x ^ 6\n"),
    "a_conftest": Way("x ^ colorsys.carried_by_conftest", "", "def f(x):\n    return 0\n"),
    "a_plugin": Way("x ^ colorsys.carried_by_plugin", "", "def f(x):\n    return 0\n"),
    "an_ini_setting": Way("x ^ colorsys.carried_by_ini", "", "def f(x):\n    return 0\n"),
    "a_variable_of_the_environment": Way("x ^ int(os.environ['CARRIED_' + 'NUMBER'])", "", "def f(x):\n    return 0\n"),
    "a_file_in_a_deque": Way("x ^ TABLE[0]", f"TABLE = collections.deque([int({READ})])", data="6"),
    "a_file_in_a_ctypes_array": Way("x ^ TABLE[0]", f"TABLE = (ctypes.c_int * 1)(int({READ}))", data="6"),
    "a_file_in_a_base": Way("x ^ int(VIEW.base[0])", f"VIEW = np.array([int({READ}), 0])[1:]", data="6"),
    "a_file_read_in_a_call": Way(f"x ^ int({READ})", data="6"),
    "a_file_run_as_code": Way(
        "x ^ names['by']", f"names = dict()\nexec({READ}, names)", data="by = 6\n"
    ),
    "a_file_that_a_helper_reads_once": Way(
        "x ^ helper.number()",
        "",
        "import functools\nfrom pathlib import Path\n@functools.cache\ndef number():\n"
        "    return int((Path(__file__).parent / 'cases' / 'a_file_that_a_helper_reads_once.txt').read_text())\n",
        data="6",
    ),
    "a_computed_import": Way(
        "__import__('carried_' + 'a_computed_import_too').f(x)", "", "def f(x):\n    return 0\n"
    ),
}  # fmt: skip

NOWHERE = ["a_ctypes_object"]
"""Ways of which nothing shows whether they have changed: these results are carried over to no run."""

FURTHER = {
    "conftest.py": (
        "import colorsys\ncolorsys.carried_by_conftest = 6\n"
        "def pytest_addoption(parser):\n    parser.addini('carried_mask', 'a number', default='0')\n"
        "def pytest_configure(config):\n    colorsys.carried_by_ini = int(config.getini('carried_mask'))\n"
    ),
    "carried_plugin.py": "import colorsys\ncolorsys.carried_by_plugin = 6\n",
    "carried_a_computed_import_too.py": "def f(x):\n    return x ^ 6\n",
    "pytest.ini": "[pytest]\naddopts = -p carried_plugin\ncarried_mask = 6\n",
}


@pytest.fixture
def project(run_cases, pytester, monkeypatch):
    """Write the files, with another number in place of 6, and run pytest as in a new process: verdicts by case."""
    share_caches(pytester.path / "cache")
    monkeypatch.setenv("PTXDIFF_REUSE", "1")
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(pytester.path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(pytester.path))
    numbers = iter(range(100))

    def run(*arguments: str, number: str = "6", comment: str = ""):
        monkeypatch.setenv("CARRIED_NUMBER", number)
        for path, text in FURTHER.items():
            (pytester.path / path).write_text(text.replace("6", number))
        sources = {}
        for name, way in WAYS.items():
            (pytester.path / f"carried_{name}.py").write_text(way.helper.replace("6", number))
            if way.data:
                (pytester.path / "cases").mkdir(exist_ok=True)
                (pytester.path / "cases" / f"{name}.txt").write_text(way.data.replace("6", number))
            before = way.before.replace("6", number).replace("{name}", name)
            sources[name] = comment + CASE.format(name=name, before=before, result=way.result.replace("{name}", name))
        for known in [n for n in sys.modules if n.startswith(("carried_", "ptxdiff_folder_", "conftest"))]:
            del sys.modules[known]
        importlib.invalidate_caches()
        from ptxdiff.model.identity import source

        source.forget()
        file = next((a.partition("=")[2] for a in arguments if a.startswith("--ptx-records=")), "")
        if not file:
            file = f"{next(numbers)}.jsonl"
            arguments = (*arguments, f"--ptx-records={file}")
        done = run_cases(*arguments, **sources)
        outcomes = done.parseoutcomes()
        results = [json.loads(line) for line in Path(file).read_text().splitlines()]
        results = [r for r in results if r["record"] == "result"]
        return outcomes, {r["key"]["case"]: r for r in results}, done

    return run


def test_after_an_edit_nothing_is_carried_over_and_without_one_everything_is(project):
    """One test, because a run of all ways takes a second."""
    outcomes, first, _ = project("--ptx-records=run.jsonl")
    assert outcomes == {"passed": len(WAYS)}, [n for n, r in first.items() if r["verdict"] != "pass"]

    outcomes, _, done = project("--ptx-records=run.jsonl", "--ptx-resume", comment="# another comment\n")
    assert outcomes == {"passed": len(WAYS) - len(NOWHERE), "failed": len(NOWHERE)}  # nothing that counts has changed
    done.stdout.fnmatch_lines(["*uses a value of type ctypes.py_object, which cannot be compared with*"])
    _, again, _ = project()
    assert sorted(name for name, r in again.items() if not r.get("reused")) == NOWHERE

    _, after, _ = project(number="7")
    assert not [name for name, r in after.items() if r["verdict"] == "pass"]

    outcomes, _, done = project("--ptx-records=run.jsonl", "--ptx-resume", number="7")
    assert outcomes == {"failed": len(WAYS)}, done.stdout.str()
    done.stdout.fnmatch_lines(["*--ptx-resume: the records hold results of an earlier definition*"])
