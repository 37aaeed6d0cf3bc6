"""`ptxdiff.emulated` works wherever Triton does: in a script, a notebook cell, and for a kernel made by a factory."""

import dataclasses
import os
import sys

import numpy as np
import pytest
import triton
import triton.language as tl

from ptxdiff import emulated
from ptxdiff.emulator.errors import MemoryFault
from ptxdiff.launcher import LaunchError
from tests.support import readyprocess
from tests.support.tritons import since

SCRIPT = '''"""A script without a guard."""
import numpy as np, triton, triton.language as tl
from ptxdiff import emulated

print("the script runs")
STEP = tl.constexpr(3)

@triton.jit
def helper(x):
    return x + STEP

@triton.jit
def kernel(x, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, helper(tl.load(x + i)))

x = np.zeros(32, np.float32)
emulated(kernel)[(1,)](x, B=32)
assert (x == 3).all()
'''


MALFORMED = 'tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r", [tl.load(x + i)], tl.float32, True, 1)'


def run_script(path, text):
    path.write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, str(path)]
    return readyprocess.run(words, env=environment)


@pytest.mark.slow
def test_a_script_without_a_guard_runs_once(tmp_path):
    done = run_script(tmp_path / "script.py", SCRIPT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the script runs\n"


def test_a_changed_global_is_compiled_in(tmp_path):
    """The function that was passed runs, with its globals at that moment, and not an earlier compilation."""
    done = run_script(
        tmp_path / "script.py",
        SCRIPT + "STEP = tl.constexpr(5)\nemulated(kernel)[(1,)](x, B=32)\nassert (x == 8).all(), x\n",
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_module_that_launches_while_it_is_imported(tmp_path):
    (tmp_path / "launching.py").write_text(SCRIPT)
    done = run_script(tmp_path / "script.py", "import launching\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the script runs\n"


def test_malformed_asm_in_a_script_is_an_error_with_its_line(tmp_path):
    text = SCRIPT.replace("helper(tl.load(x + i))", MALFORMED).replace(
        "emulated(kernel)[(1,)](x, B=32)\nassert (x == 3).all()",
        "try:\n    emulated(kernel)[(1,)](x, B=32)\nexcept ValueError as e:\n    print(e)\nprint('alive')",
    )
    done = run_script(tmp_path / "script.py", text)
    assert done.returncode == 0, done.stderr
    _, words, last = done.stdout.splitlines()
    assert "number of input constraints" in words
    assert "script.py:12" in words  # the line where the kernel begins, because LLVM names none
    assert last == "alive"
    assert "Fatal Python error" not in done.stderr


@pytest.mark.slow
def test_a_compile_time_value_of_a_class_of_the_script(tmp_path):
    """Importing gives the kernel, but not the class of its argument."""
    text = (
        "import enum, numpy as np, kernels\nfrom ptxdiff import emulated\n\n"
        "class Size(enum.IntEnum):\n    SMALL = 32\n\n"
        "x = np.zeros(32, np.float32)\nemulated(kernels.plain)[(1,)](x, B=Size.SMALL)\n"
    )
    (tmp_path / "kernels.py").write_text(
        "import triton, triton.language as tl\n\n@triton.jit\n"
        "def plain(x, B: tl.constexpr):\n    i = tl.arange(0, 32)\n    tl.store(x + i, tl.load(x + i) + B)\n"
    )
    done = run_script(tmp_path / "script.py", text + "assert (x == 32).all()\n")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_notebook_cell(tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed; it is in the dev extra")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed; it is in the dev extra")
    import nbformat

    cells = [nbformat.v4.new_code_cell(part) for part in SCRIPT.split("\nx = np.zeros")]
    cells[1].source = "x = np.zeros" + cells[1].source
    notebook = nbformat.v4.new_notebook(cells=cells)
    wrong = (
        SCRIPT.split("@triton.jit")[2].replace("helper(tl.load(x + i))", MALFORMED).replace("def kernel", "def wrong")
    )
    wrong = f"@triton.jit{wrong.partition('x = np')[0]}"
    caught = "try:\n    emulated(wrong)[(1,)](x, B=32)\nexcept ValueError as e:\n    assert 'constraints' in str(e)\n"
    cells += [nbformat.v4.new_code_cell(wrong), nbformat.v4.new_code_cell(f"{caught}else:\n    raise AssertionError\n")]
    cells.append(nbformat.v4.new_code_cell("emulated(kernel)[(1,)](x, B=32)\nassert (x == 6).all()"))
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()


def test_a_cell_without_a_file(tmp_path):
    """Like a notebook: code in `__main__` whose text is only in linecache."""
    text = (
        "import linecache, sys\n"
        f"text = {SCRIPT!r}\n"
        "name = '/tmp/ipykernel_1/1234.py'\n"
        "linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)\n"
        "exec(compile(text, name, 'exec'), globals())\n"
    )
    done = run_script(tmp_path / "cell.py", text)
    assert done.returncode == 0, done.stderr


def adder(amount, fault=""):
    """A kernel that adds `amount` and can only be reached as a closure."""
    AMOUNT = tl.constexpr(amount)

    @triton.jit
    def kernel(x, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(x + i, tl.load(x + i) + AMOUNT)

    @triton.jit
    def outside(x, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(x + i + B, tl.load(x + i) + AMOUNT)

    @triton.jit
    def misspelt(x, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(x + i, tl.lode(x + i) + AMOUNT)

    return {"": kernel, "outside": outside, "misspelt": misspelt}[fault]


def test_closures_of_one_factory_are_distinguished():
    x = np.zeros(32, np.float32)
    for amount in (1, 10, 1):
        emulated(adder(amount))[(1,)](x, B=32)
    assert (x == 12).all()


@since(3, 9, "it makes 0.0 of the constant -0.0")
def test_closures_over_numbers_that_compare_equal_are_distinguished():
    for amount in (0.0, -0.0):
        x = np.full(32, -0.0, np.float32)
        emulated(adder(amount))[(1,)](x, B=32)
        assert np.signbit(x).all() == np.signbit(amount)


def test_errors_of_a_closure_name_its_own_line():
    with pytest.raises(MemoryFault, match=r"test_launcher_places\.py:\d+"):
        emulated(adder(1, "outside"))[(1,)](np.zeros(32, np.float32), B=32)
    with pytest.raises(
        LaunchError,
        match=r"lode.*\[.*test_launcher_places\.py:\d+: tl\.store\(x \+ i, tl\.lode\(x \+ i\) \+ AMOUNT\)\]",
    ):
        emulated(adder(1, "misspelt"))[(1,)](np.zeros(32, np.float32), B=32)


def test_errors_of_a_script_name_the_inner_line(tmp_path):
    """An error in a function that the kernel calls, and a refusal of Triton's own library."""
    called = SCRIPT.replace("return", "missing = x.nothing\n    return", 1)
    assert called != SCRIPT
    done = run_script(tmp_path / "script.py", called)
    line = next(n for n, text in enumerate(called.splitlines(), 1) if "missing = x.nothing" in text)
    assert f"script.py:{line}: missing = x.nothing]" in done.stderr


def test_a_function_of_a_factory_as_a_compile_time_argument():
    def made(factor):
        FACTOR = tl.constexpr(factor)

        @triton.jit
        def scaled(x):
            return x * FACTOR

        return scaled

    for factor in (2, 3):
        x = np.ones(32, np.float32)
        emulated(apply)[(1,)](x, FUNCTION=made(factor), B=32)
        assert (x == factor).all()


@triton.jit
def apply(x, FUNCTION: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, FUNCTION(tl.load(x + i)))


def test_a_name_that_was_bound_again():
    """The function that was passed is compiled, not the one that now has its name."""
    first = _again
    globals()["_again"] = _other
    try:
        x = np.zeros(32, np.float32)
        emulated(first)[(1,)](x, B=32)
        assert (x == 1).all()
    finally:
        globals()["_again"] = first


@triton.jit
def _again(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 1.0)


@triton.jit
def _other(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 2.0)


def test_a_text_that_was_replaced_is_compiled():
    """Triton compiles the text that `_unsafe_update_src` set, not the text of the file."""
    kernel = adder(1)
    x = np.zeros(32, np.float32)
    emulated(kernel)[(1,)](x, B=32)
    kernel._unsafe_update_src(kernel.src.replace("+ AMOUNT", "+ 2 * AMOUNT"))
    emulated(kernel)[(1,)](x, B=32)
    assert (x == 3).all()


def test_values_of_classes_that_differ_in_a_method_are_distinguished():
    """Both classes have the same name and equal fields, and yet the kernel computes different results with them."""

    def made(factor):
        @dataclasses.dataclass(frozen=True)
        class Scale:
            base: int = 1

            def __radd__(self, other):
                return other + self.base * factor

            def __index__(self):
                return self.base * factor

        return Scale()

    results = []
    for factor in (2, 3):
        x = np.zeros(32, np.float32)
        emulated(fill)[(1,)](x, VALUE=made(factor), B=32)
        results.append(float(x[0]))
    assert results == [2, 3]


@triton.jit
def fill(x, VALUE: tl.constexpr, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), VALUE.__index__())
