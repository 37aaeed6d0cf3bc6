"""Identities differ exactly if something that decides bits or the verdict differs."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import itertools
import os
import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxdiff import between, exact, ulp
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.model.identity import digest_with_code, encode
from ptxdiff.model.identity import source as identity_source
from ptxdiff.model.identity.definition import changed_parts, definition
from ptxdiff.model.load import load
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item
from tests.support.identity_cases import FILES, VERDICTS

UNLIKE = [
    0, 0.0, -0.0, False, None, "", b"", (), [], {}, frozenset(), Fraction(0), np.float32(0), np.float32(-0.0),
    np.int64(0), np.zeros(2, np.int32), np.zeros(2, np.float32), np.zeros((2, 1), np.int32), 1, True, 1.0, 2, 2.0,
    float("nan"), ..., slice(0, 1), slice(0, 1.0), range(1),
    range(2), "0", ("a", "b"), ("ab",), (("a",), "b"), {"a": 1}, {"a": True}, {"b": 1}, 1 << 70,
]  # fmt: skip


def test_no_two_values_that_differ_in_type_or_bits_are_encoded_alike():
    assert len({encode(v) for v in UNLIKE}) == len(UNLIKE)


@pytest.mark.parametrize("value", UNLIKE, ids=repr)
def test_equal_bits_are_encoded_alike(value):
    import copy

    assert encode(copy.deepcopy(value)) == encode(value)


class Words(list):
    pass


class Table(dict):
    pass


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (None, "is:4:None"),
        (True, "is:4:True"),
        (False, "is:5:False"),
        (0, "int:1:0"),
        (-12, "int:3:-12"),
        ("", "str:0:"),
        ("a:é", "str:4:a:é"),
        ((), "tuple:"),
        ([1, True], "list:7:int:1:19:is:4:True"),
        ((1, (None,)), "tuple:7:int:1:117:tuple:9:is:4:None"),
        ({"k": (0,)}, "map:7:str:1:k15:tuple:7:int:1:0"),
        ([0] * 65, f"list of int:195:{[0] * 65}"),
        (tuple([0] * 65), f"tuple of int:195:{[0] * 65}"),
        (Words([1]), "Words:7:int:1:1"),
        (Table(k=1), "map:7:str:1:k7:int:1:1"),
    ],
)
def test_an_encoding_is_the_type_and_the_parts_with_their_lengths(value, spelled):
    """Stored digests rest on these bytes, and quick ways to make them must not change them."""
    assert encode(value) == spelled.encode()


def test_a_text_with_half_a_surrogate_pair_has_an_encoding():
    assert encode("\ud800") == b"str:3:\xed\xa0\x80"


def test_a_value_that_cannot_be_encoded_equals_no_other():
    class Opaque:
        __slots__ = ()

    one, other = Opaque(), Opaque()
    assert encode(one) == encode(one) != encode(other)


# Functions -------------------------------------------------------------------------------------------------------

LIBRARY = """
TABLE = (1, 2, 3)
def helper(x):
    \"\"\"A docstring.\"\"\"
    return x + 1
class Rounder:
    step = 1
    def round(self, x):
        return inner(x) + self.step
def inner(x):
    return x
"""

USER = """
import functools
import {library}
from {library} import helper, Rounder
LIMIT = 0.0
UNUSED = 1
def plain(x):
    return helper(x) + LIMIT
def by_module(x):
    return {library}.helper(x) + {library}.TABLE[0]
def by_method(x):
    return Rounder().round(x)
def factory(step):
    return lambda x: x + step
closed = factory(3)
bound = functools.partial(plain, 2)
defaulted = lambda x, by=1: x + by
one, two = (lambda x: x + 1), (lambda x: x + 2)
def circle(x):
    return other(x)
def other(x):
    return circle(x)
"""


class Made:
    """A module's attributes, and digests of them. The module itself is not changed."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def digest_of(self, name: str) -> str:
        return digest_with_code(getattr(self._module, name))


class Modules:
    """A user's module and its library, written to a folder and imported from there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def __call__(self, library: str = LIBRARY, user: str = USER) -> Any:
        """Import both again under the same names, from a new folder, so that only the texts differ."""
        self.count += 1
        names = [f"ptxdiff_test_{what}_{id(self)}" for what in ("lib", "user")]
        folder = self.folder / str(self.count)
        folder.mkdir()
        (folder / f"{names[0]}.py").write_text(library)
        (folder / f"{names[1]}.py").write_text(user.format(library=names[0]))
        sys.path.insert(0, str(folder))
        for name in names:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return Made(importlib.import_module(names[1]))


@pytest.fixture
def modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return Modules(tmp_path)


FUNCTIONS = ("plain", "by_module", "by_method", "closed", "bound", "defaulted", "one", "two", "circle")


def test_the_same_text_has_the_same_digest(modules):
    one, other = modules(), modules()
    for name in FUNCTIONS:
        assert one.digest_of(name) == other.digest_of(name), name


def test_two_lambdas_of_one_line_differ(modules):
    made = modules()
    assert made.digest_of("one") != made.digest_of("two")


CHANGES = [
    ("plain", "library", "x + 1", "x + 2"),
    ("plain", "user", "LIMIT = 0.0", "LIMIT = -0.0"),
    ("bound", "library", "x + 1", "x + 2"),
    ("bound", "user", "partial(plain, 2)", "partial(plain, 2.0)"),
    ("by_module", "library", "(1, 2, 3)", "(1, 2, 4)"),
    ("by_module", "library", "x + 1", "x + 2"),
    ("by_method", "library", "step = 1", "step = 2"),
    ("by_method", "library", "return x\n", "return x * 2\n"),
    ("closed", "user", "factory(3)", "factory(4)"),
    ("closed", "user", "x + step", "x - step"),
    ("defaulted", "user", "by=1", "by=True"),
    ("circle", "user", "return circle(x)", "return -circle(x)"),
]


@pytest.mark.parametrize(("name", "where", "old", "new"), CHANGES, ids=lambda v: str(v).strip())
def test_everything_that_a_function_calls_or_names_counts(modules, name, where, old, new):
    texts = {"library": LIBRARY, "user": USER}
    assert old in texts[where]
    changed = {**texts, where: texts[where].replace(old, new)}
    assert modules(**texts).digest_of(name) != modules(**changed).digest_of(name)


@pytest.mark.parametrize(
    ("where", "old", "new"),
    [
        ("library", "A docstring", "Another docstring"),
        ("library", "def helper(x):", "def helper(x):  # a comment"),
        ("user", "UNUSED = 1", "UNUSED = 2"),
        ("user", "import functools\n", "import functools\n\n\n"),
    ],
)
def test_comments_layout_and_unused_names_do_not_count(modules, where, old, new):
    texts = {"library": LIBRARY, "user": USER}
    changed = {**texts, where: texts[where].replace(old, new)}
    one, other = modules(**texts), modules(**changed)
    for name in FUNCTIONS:
        assert one.digest_of(name) == other.digest_of(name), name


def test_a_digest_is_the_same_in_another_process(modules):
    made = modules()
    code = f"import sys; sys.path.insert(0, {str(modules.folder / '1')!r}); import {made.__name__} as m\n"
    code += "from ptxdiff.model.identity import digest_with_code\n"
    code += f"print(*[digest_with_code(getattr(m, n), exact=True) for n in {FUNCTIONS!r}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.split() == [digest_with_code(getattr(made, n), exact=True) for n in FUNCTIONS]


@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_every_case_here_has_the_same_definition_in_another_process(step, monkeypatch):
    """A process that owns a GPU compares its definition with that of the process that sends a job. Quick: a few
    files."""
    code = (
        "from pathlib import Path\n"
        "from ptxdiff.model.identity.definition import definition\n"
        "from ptxdiff.model.load import load\n"
        f"for file in sorted(Path('cases').glob('[!_]*.py'))[::{step}]:\n"
        "    for c in load(file):\n"
        "        for v in c.case.variants.values():\n"
        "            print(c.name, sorted(definition(c.case, v, exact=True).items()))\n"
    )
    # Strings have other hashes in that process, because this one drew its seed, or got another one.
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    monkeypatch.chdir(Path(__file__).parents[2])
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    ).stdout  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()) as here:
        exec(code, {})
    digests = [here.getvalue(), other]
    assert digests[0].count("\n") > 20
    assert digests[0] == digests[1]


HIDDEN = {
    "globals": ("def ref(x):\n    return globals()['f'](x)\ndef f(x):\n    return x", "return x", "return -x"),
    "eval": ("def ref(x):\n    return eval('f(x)')\ndef f(x):\n    return x", "return x", "return -x"),
    "wraps": ("@functools.wraps(functools.reduce)\ndef ref(x):\n    return x", "return x", "return -x"),
    "dataclass": ("@dataclass\nclass C:\n    s: int\n    def f(self, x):\n        return x\nref = C(1)", "return x",
                  "return -x"),
    "slots": ("@dataclass(slots=True)\nclass C:\n    s: int\n    def __call__(self, x):\n        return x\nref = C(1)",
              "return x", "return -x"),
    "value in a slot": ("@dataclass(slots=True)\nclass C:\n    s: int\n    def __call__(self, x):\n        return x\n"
                        "ref = C(1)", "C(1)", "C(1.0)"),
    "dict": ("class C(dict):\n    def __missing__(self, x):\n        return x\nref = C()", "return x", "return -x"),
    "named tuple": ("class C(NamedTuple):\n    s: int\n    def f(self, x):\n        return x\nref = C(1)", "return x",
                    "return -x"),
    "enum": ("class C(enum.Enum):\n    A = 1\n    def f(self, x):\n        return x\nref = C.A", "return x",
             "return -x"),
    "integer": ("class C(int):\n    pass\nref = C(1)", "C(1)", "C(2)"),
    "metaclass": ("class M(type):\n    def f(cls, x):\n        return x\nclass ref(metaclass=M):\n    pass", "return x",
                  "return -x"),
    "item": ("ref = operator.itemgetter('M')", "'M'", "'N'"),
    "method of a list": ("ref = [1, 2].__getitem__", "[1, 2]", "[1, 3]"),
    "method of an array": ("ref = np.array([1, 2]).take", "[1, 2]", "[1, 3]"),
    "ufunc": ("ref = np.add", "add", "multiply"),
    "range": ("ref = range(4)", "range(4)", "range(5)"),
    "pattern": ("ref = re.compile('a')", "'a'", "'b'"),
}  # fmt: skip
HEAD = """
import enum, functools, operator, re
import numpy as np
from dataclasses import dataclass
from typing import NamedTuple
"""


@pytest.mark.parametrize(("text", "old", "new"), HIDDEN.values(), ids=HIDDEN)
def test_code_counts_in_every_kind_of_value(modules, text, old, new):
    assert old in text
    one, same, other = (modules(user=HEAD + t) for t in (text, text, text.replace(old, new)))
    assert one.digest_of("ref") == same.digest_of("ref") != other.digest_of("ref")


@pytest.mark.parametrize("line", ["from {name} import helper as f", "import {name}; f = {name}.helper"])
def test_what_a_function_imports_when_it_runs_counts(tmp_path, monkeypatch, line):
    name = f"ptxdiff_test_inside_{'from' in line}"
    space: dict[str, Any] = {}
    exec(f"def ref(x):\n    {line.format(name=name)}\n    return f(x)", space)
    found = []
    for change in ("x + 1", "x + 2"):
        (tmp_path / f"{name}.py").write_text(f"def helper(x):\n    return {change}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        identity_source.forget()
        sys.dont_write_bytecode, kept = True, sys.dont_write_bytecode
        found += [digest_with_code(space["ref"]), digest_with_code(space["ref"])]
        sys.dont_write_bytecode = kept
    assert found[0] == found[1] != found[2] == found[3]


def test_a_function_wrapped_by_functools_counts():
    @functools.cache
    def one(x):
        return x + 1

    @functools.cache
    def two(x):
        return x + 2

    assert digest_with_code(one) != digest_with_code(two)
    assert digest_with_code(one) == digest_with_code(one)


# Cases -----------------------------------------------------------------------------------------------------------

CASE = """
import triton
import triton.language as tl
from ptxdiff import Case, Meets, between, exact, kernel, ulp
from ptxdiff.references.formats import F32
from {library} import helper

def wanted(m):
    return helper(m)

def bounds(values):
    return values["x"] < 4

def grid(sizes):
    return (1,)

def made(sizes, rng):
    return {{"x": rng.standard_normal(sizes["M"]).astype("float32")}}

@triton.jit
def copy(x, y, M, scale, BLOCK: tl.constexpr):
    tl.store(y + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)) * scale)

case = Case(
    inputs={{"x": F32["M"]}}, outputs={{"y": F32["M"]}}, reference=wanted, match=ulp(2), ftz="never", nan="any",
    sizes=[{{"M": 64}}], generate=made,
    variants={{"v": kernel(copy, grid=grid, meta={{"scale": 1.0, "BLOCK": 64}}, num_warps=4)}},
)
"""

CASE_CHANGES = [
    ("reference", "library", "x + 1", "x + 2"),
    ("reference", "user", "helper(m)", "helper(m) + 1"),
    ("policy", "user", "ulp(2)", "ulp(3)"),
    ("policy", "user", 'ftz="never"', 'ftz="allowed"'),
    ("policy", "user", 'nan="any"', 'nan="payload"'),
    ("formats", "user", 'outputs={{"y": F32["M"]}}', 'outputs={{"y": F32["M", 1]}}'),
    ("inputs", "user", '"M": 64}}]', '"M": 32}}]'),
    ("inputs", "user", "standard_normal", "random"),
    ("launch", "user", "return (1,)", "return (2,)"),
    ("launch", "user", '"scale": 1.0', '"scale": 1'),
    ("launch", "user", "num_warps=4", "num_warps=8"),
    ("function", "user", "* scale", "+ scale"),
    ("targets", "user", "num_warps=4", 'num_warps=4, targets=["sm_90a"]'),
]


@pytest.mark.parametrize(("part", "where", "old", "new"), CASE_CHANGES, ids=lambda v: str(v).strip())
def test_every_part_of_a_case_counts(modules, part, where, old, new):
    texts = {"library": LIBRARY, "user": CASE}
    assert old in texts[where]
    changed = {**texts, where: texts[where].replace(old, new)}
    before, after = (m.case for m in (modules(**texts), modules(**changed)))
    found = changed_parts(definition(before, before.variants["v"]), definition(after, after.variants["v"]))
    assert part in found
    assert definition(before, before.variants["v"]) == definition(before, before.variants["v"])


def test_domains_with_equal_texts_differ_by_their_functions():
    alike = [ulp(1, on=between("x", 0, limit)) for limit in (1.0000001, 1.0000002)]
    assert alike[0].describe() == alike[1].describe()
    assert digest_with_code(alike[0]) != digest_with_code(alike[1])
    assert digest_with_code(exact()) == digest_with_code(exact())


# Experiments: verdicts after other items -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    """The items of the catalogue by case, variant and target."""
    folder = tmp_path_factory.mktemp("identity")
    found = {}
    for name, text in FILES.items():
        path = folder / f"{name}.py"
        path.write_text(text)
        for loaded in load(path):
            for case, variant, target in VERDICTS:
                if loaded.name == case:
                    found[case, variant, target] = Item(loaded, variant, target, "emulator")
    assert found.keys() == VERDICTS.keys()
    return found


def ran(item: Item, backend: EmulatorBackend) -> tuple[str, Any]:
    """An item's verdict, and the contents of its results, with all texts."""
    found = run_item(item, backend, "quick")
    rows = [(r.key, r.verdict, r.words, r.outputs_digest, r.findings, r.ptx, r.body, r.identity) for r in found.results]
    return found.verdict, (rows, sorted(t.text for t in found.texts.values()))


@pytest.fixture(scope="module")
def alone(catalogue):
    """The results of each item from a backend of its own."""
    return {name: ran(item, EmulatorBackend()) for name, item in catalogue.items()}


def test_each_item_alone_gets_its_verdict(alone):
    assert {name: verdict for name, (verdict, _) in alone.items()} == VERDICTS


def test_recorded_ptx_is_that_of_the_target(catalogue, alone):
    for (case, variant, target), (_, (_, texts)) in alone.items():
        for text in texts:
            assert f".target {target}" in text, (case, variant, target)


BESIDE = [pair for pair in itertools.permutations(sorted(VERDICTS), 2) if pair[0][0] == pair[1][0]]


@pytest.mark.sample(3)
@pytest.mark.parametrize("pair", BESIDE, ids=lambda pair: f"{pair[0][1:]} then {pair[1][1:]}")
def test_an_item_after_a_similar_one_keeps_its_verdict(catalogue, alone, pair):
    """The items run directly after each other: a memo whose key lacks the difference would still hold the first's
    outcomes."""
    backend = EmulatorBackend()
    for name in pair:
        assert ran(catalogue[name], backend) == alone[name], name


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 200))])
def test_no_order_and_no_subset_changes_a_verdict_a_bit_or_a_text(catalogue, alone, seed):
    """200 random orders of random subsets. Each runs a dozen items, so most are slow tests."""
    order = random.Random(seed)
    chosen = order.sample(sorted(catalogue), order.randint(2, len(catalogue)))
    backend = EmulatorBackend()
    for name in chosen:
        assert ran(catalogue[name], backend) == alone[name], name
