"""Functions with the same name: the given object is compiled, or the compiler refuses."""

import sys

import pytest

from ptxdiff.model.load import load_module
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.spec import Compilation, FunctionRef, KernelSpec

FIRST = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef change(x):\n    tl.store(x, 1111111)\n\n\n"
SECOND = FIRST.partition("\n\n\n")[2].replace("1111111", "2222222")


def compiled(function):
    spec = KernelSpec(FunctionRef.of(function), (("x", "*i32"),), (), ((0,),), "sm_90a", False)
    return compile_kernel(spec)


@pytest.fixture
def module(tmp_path):
    def loaded(text):
        path = tmp_path / "twice.py"
        path.write_text(text)
        return load_module(path)

    return loaded


def test_a_function_whose_name_is_bound_again_is_compiled_from_its_own_source(module):
    found = module(FIRST + "former = change\n\n\n" + SECOND)
    texts = [compiled(f).ptx for f in (found.former, found.change, found.former)]
    assert ["1111111" in t for t in texts] == [True, False, True]
    assert ["2222222" in t for t in texts] == [False, True, False]


def test_a_function_without_any_name_in_the_file_is_found(module):
    """`kept` exists only in the caller's process; in the compiler's process only the list of made functions has the
    first."""
    found = module(FIRST + "import sys\nvars(sys).setdefault('kept', change)\n\n\n" + SECOND)
    former = vars(sys).pop("kept")
    assert former is not found.change
    assert "1111111" in compiled(former).ptx


def test_the_former_function_calls_the_last_objects_with_its_names(module):
    """As in Python, a name in a function is read when the function runs; only the given object is fixed."""
    outer = "@triton.jit\ndef outer(x):\n    change(x)\n\n\n"
    again = outer.replace("change(x)", "tl.store(x, 3333333)")
    found = module(FIRST + outer + "former = outer\n\n\n" + SECOND + "\n\n" + again)
    assert "2222222" in compiled(found.former).ptx
    assert "3333333" in compiled(found.outer).ptx


def test_a_file_that_was_changed_meanwhile_is_still_refused(module, tmp_path):
    found = module(FIRST)
    (tmp_path / "twice.py").write_text(FIRST.replace("1111111", "4444444"))
    refusal = compiled(found.change)
    assert not isinstance(refusal, Compilation)
    assert "has no function change with the code that was to be compiled" in refusal.words
    assert "the file was changed, or makes another function" in refusal.words
