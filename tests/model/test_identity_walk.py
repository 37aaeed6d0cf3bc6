"""The walk from a function to everything that it calls: an edit of any of it changes the digest, equally in every
process."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from ptxdiff import Case, asm
from ptxdiff.jobs import Setup
from ptxdiff.model.identity import digest_with_code
from ptxdiff.model.identity.code import is_users
from ptxdiff.model.identity.definition import definition, what_changed
from ptxdiff.references.formats import U8
from ptxdiff.running.replay import Origin, Replay, remarks

LIBRARY = """
def helper(x):
    return x + 1
"""

# The text before a reference, the reference, and an edit of either or of the library.
EDITS = {
    "a method of a dataclass": (
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass C:\n    by: int\n"
        "    def shift(self, x):\n        return x + self.by\nC1 = C(1)\n",
        "C1.shift(x)", "x + self.by", "x - self.by",
    ),
    "a method of a named tuple": (
        "import collections\nclass C(collections.namedtuple('C', 'by')):\n"
        "    def shift(self, x):\n        return x + self.by\nC1 = C(1)\n",
        "C1.shift(x)", "x + self.by", "x - self.by",
    ),
    "a method of an enum": (
        "import enum\nclass C(enum.Enum):\n    ONE = 1\n    def shift(self, x):\n        return x + self.value\n",
        "C.ONE.shift(x)", "x + self.value", "x - self.value",
    ),
    "a member of an enum": ("import enum\nclass C(enum.Enum):\n    ONE = 1\n", "x + C.ONE.value", "= 1", "= 2"),
    "what a dictionary gives for a missing key": (
        "class Table(dict):\n    def __missing__(self, key):\n        return 1\nTABLE = Table()\n",
        "TABLE[x]", "return 1", "return 2",
    ),
    "the factory of a defaultdict": (
        "import collections\nTABLE = collections.defaultdict(lambda: 1)\n", "TABLE[x]", "lambda: 1", "lambda: 2",
    ),
    "the value of an integer's subclass": ("class Bits(int):\n    pass\nBY = Bits(1)\n", "x + BY", "(1)", "(2)"),
    "a slot of a callable": (
        "class Scale:\n    __slots__ = ('by',)\n    def __init__(self, by):\n        self.by = by\n"
        "    def __call__(self, x):\n        return x * self.by\nscale = Scale(1)\n",
        "scale(x)", "Scale(1)", "Scale(2)",
    ),
    "the state of a decorator that is a class": (
        "import functools\nclass Scale:\n    def __init__(self, f):\n        functools.update_wrapper(self, f)\n"
        "        self.by = 1\n    def __call__(self, x):\n        return self.__wrapped__(x) * self.by\n"
        "@Scale\ndef scaled(x):\n    return x\n",
        "scaled(x)", "* self.by", "* 2 * self.by",
    ),
    "the state of an object with a function called fn": (
        "class Scale:\n    def __init__(self, fn, by):\n        self.fn, self.by = fn, by\n"
        "    def __call__(self, x):\n        return self.fn(x) * self.by\nscale = Scale(lambda x: x, 1)\n",
        "scale(x)", "lambda x: x, 1", "lambda x: x, 2",
    ),
    "what an itemgetter takes": (
        "import operator\nfirst = operator.itemgetter(0)\n", "first((x, -x))", "itemgetter(0)", "itemgetter(1)",
    ),
    "the table of a bound method": ("look = {1: 2}.get\n", "look(x)", "{1: 2}", "{1: 3}"),
    "the pattern of a regular expression": (
        "import re\nP = re.compile('a')\n", "x if P.match('a') else -x", "'a')", "'b')",
    ),
    "what a function imports itself": (
        "", "__import_helper(x)", "x + 1", "x + 2",
    ),
    "what a function reaches by its module's dictionary": (
        "def helper(x):\n    return x + 1\n", "globals()['hel' + 'per'](x)", "x + 1", "x + 2",
    ),
    "what a closed-over module calls": (
        "def made():\n    import {library} as library\n    return lambda x: library.helper(x)\ninner = made()\n",
        "inner(x)", "x + 1", "x + 2",
    ),
}  # fmt: skip

IMPORTING = "from {library} import helper as h\n    return h(x)"


class Written:
    """Modules written to a folder and imported under unique names."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def __call__(self, library: str, before: str, body: str) -> tuple[str, str]:
        """The name of the module that holds `reference`, and of its library."""
        self.count += 1
        names = [f"ptxdiff_walk_{what}_{abs(hash(self.folder))}_{self.count}" for what in ("library", "user")]
        text = "def reference(x):\n    " + (IMPORTING if body.startswith("__import") else f"return {body}") + "\n"
        (self.folder / f"{names[0]}.py").write_text(library)
        (self.folder / f"{names[1]}.py").write_text((before + text).replace("{library}", names[0]))
        importlib.invalidate_caches()
        return names[1], names[0]


@pytest.fixture(scope="module")
def digests(tmp_path_factory) -> dict[str, tuple[str, str, str]]:
    """For each edit: the reference's digest here, in another process, and in a third process after the edit."""
    folder = tmp_path_factory.mktemp("walk")
    written = Written(folder)
    names = {what: written(LIBRARY, before, body) for what, (before, body, _, _) in EDITS.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        here = [digest_with_code(importlib.import_module(user).reference) for user, _ in names.values()]
    same = _elsewhere(folder, [user for user, _ in names.values()])
    for what, (before, _, old, new) in EDITS.items():
        # The text contains the library's name, so the module is written again under the same name.
        for name, text in zip(names[what], (before, LIBRARY), strict=True):
            path = folder / f"{name}.py"
            path.write_text(path.read_text().replace(old, new) if old in text else path.read_text())
    edited = _elsewhere(folder, [user for user, _ in names.values()])
    return dict(zip(EDITS, zip(here, same, edited, strict=True), strict=True))


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_what_a_reference_uses_changes_its_digest(digests, edit):
    before, _, old, _ = EDITS[edit]
    assert old in before + LIBRARY
    here, _, edited = digests[edit]
    assert here != edited


@pytest.mark.parametrize("edit", EDITS)
def test_without_an_edit_another_process_finds_the_same_digest(digests, edit):
    here, same, _ = digests[edit]
    assert here == same


def _elsewhere(folder: Path, modules: list[str]) -> list[str]:
    """The digests of modules' references, computed in a new process without cached byte code."""
    code = (
        f"import sys; sys.dont_write_bytecode = True; sys.path.insert(0, {str(folder)!r})\n"
        "from importlib import import_module\nfrom ptxdiff.model.identity import digest_with_code\n"
        f"for name in {modules!r}:\n    print(digest_with_code(import_module(name).reference))"
    )
    options = ["-X", f"pycache_prefix={folder / 'cold'}"]
    done = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    return done.stdout.split()


def test_two_functions_of_arrays_made_of_python_functions_differ():
    """numpy gives only a name for such functions, so that no other process has the same digest."""
    one, two = (np.frompyfunc(lambda x, by=by: x + by, 1, 1) for by in (1, 2))
    assert digest_with_code(one) != digest_with_code(two)
    assert digest_with_code(np.add) == digest_with_code(np.add) != digest_with_code(np.subtract)


def test_the_annotation_of_a_kernels_parameter_counts(tmp_path):
    """Only the annotation, which uses a name of the user's, may make a parameter a compile-time constant."""
    pytest.importorskip("triton")
    from ptxdiff.model.identity.modules import execute_file

    digests = []
    for name, kind in (("one", "tl.constexpr"), ("two", "int")):
        path = tmp_path / f"{name}.py"
        path.write_text(
            f"import triton\nimport triton.language as tl\nKIND = {kind}\n"
            "@triton.jit\ndef f(x, BY: KIND):\n    return x + BY\n"
        )
        digests.append(digest_with_code(execute_file(path, f"ptxdiff_annotation_{name}").f))
    assert digests[0] != digests[1]


def test_a_value_that_cannot_be_compared_is_reported_as_such():
    """A lock equals no other object, so the part that uses it equals that of no other process, and the message says
    why."""
    guard = threading.Lock()

    def reference(x):
        with guard:
            return x

    case = Case(inputs={"x": U8}, outputs={"y": U8}, reference=reference, variants={"v": asm("mov.b32 $0, $1;")})
    here = definition(case, case.variants["v"])
    assert here["reference"].startswith("cannot be compared: _thread.lock ")
    elsewhere = {**here, "reference": here["reference"][:-16] + "0" * 16}
    words = "reference uses a value of type _thread.lock, which cannot be compared with that of another process"
    assert what_changed(elsewhere, here) == words
    assert what_changed({**elsewhere, "asm": ""}, here) == f"asm changed; {words}"
    assert what_changed(here, here) == ""
    found = remarks(Replay(Setup(), 0, {}, origin=Origin.of(elsewhere)), here)
    assert found == ("--ptx-replay: cannot tell whether the reference has changed since this token was made",)


def test_whose_a_module_is_needs_no_text_of_it(monkeypatch):
    """It is asked of every module of a process whenever another case begins: two thousand, with torch."""
    monkeypatch.setattr("ptxdiff.model.identity.code.file_text", pytest.fail)
    assert not any(map(is_users, (pytest, np, importlib, sys.modules["ptxdiff"])))
    assert is_users(sys.modules[__name__])
