"""Numbers of similar size for whole kernels: each element gets numbers that are subnormal in a narrow output."""

import numpy as np
import pytest

from ptxdiff import Case, kernel
from ptxdiff.backends import create
from ptxdiff.inputs.fill import kernel_inputs
from ptxdiff.inputs.kernel_sets import NEAR_NAMES, near_sets
from ptxdiff.model.load import LoadedCase
from ptxdiff.references import conversion
from ptxdiff.references.formats import BF16, E5M2, F16, F32, U32, Scalar
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item

pytest.importorskip("torch")
pytest.importorskip("triton")

from tests.support.inputs.near_kernels import to_half_but_for_one


def to_half(x):
    return conversion.convert(x, source=F32, target=F16)


def case_of(inputs, outputs, n=64):
    variant = kernel(to_half_but_for_one, grid="1", meta={"N": 64, "PLACE": 37})
    return Case(
        inputs=inputs, outputs=outputs, reference=to_half, sizes=[{"n": n}], variants={"v": variant}, source="a test"
    )


@pytest.mark.parametrize(("place", "sets"), [(37, {"near/4"}), (99, set())])
def test_one_element_that_is_wrong_where_it_is_subnormal(place, sets, tmp_path):
    case = case_of({"x_ptr": F32["n"]}, {"y_ptr": F16["n"]})
    variant = kernel(to_half_but_for_one, grid="1", meta={"N": 64, "PLACE": place})
    object.__setattr__(case, "variants", {"v": variant})
    loaded = LoadedCase(case, "near", "case", tmp_path / "near.py", "")
    found = run_item(Item(loaded, "v", "sm_90a", "emulator"), create("emulator"), "quick").results
    assert {r.verdict for r in found} <= {"pass", "fail"}
    assert {r.key.input_set for r in found if r.verdict == "fail"} - {"edges/1", "blocks/1"} == sets


@pytest.mark.parametrize("fmt", [E5M2, F16], ids=lambda f: f.name)
def test_every_element_has_subnormal_and_normal_results(fmt):
    case = case_of({"x_ptr": F32["n"]}, {"y_ptr": fmt["n"]})
    seen = {"subnormal": np.zeros(64, bool), "normal": np.zeros(64, bool)}
    for name in near_sets(case, {"n": 64}):
        x = np.abs(kernel_inputs(case, name, {"n": 64})["x_ptr"].view(np.float32))
        least = np.float32(2.0) ** fmt.min_exponent
        seen["subnormal"] |= (x < least) & (x > least / 32)
        seen["normal"] |= x >= least
    assert {k: int(v.sum()) for k, v in seen.items()} == {"subnormal": 64, "normal": 64}


def test_which_kernels_have_the_sets():
    sizes = {"n": 64}
    assert tuple(near_sets(case_of({"x_ptr": F32["n"]}, {"y_ptr": F16["n"]}), sizes)) == NEAR_NAMES
    alike = case_of({"x_ptr": F32["n"]}, {"y_ptr": BF16["n"]})
    assert tuple(near_sets(alike, sizes)) == NEAR_NAMES[: len(NEAR_NAMES) // 2]
    assert not tuple(near_sets(alike, {"n": 1 << 14}))
    assert not tuple(near_sets(case_of({"x_ptr": U32["n"]}, {"y_ptr": F16["n"]}), sizes))
    assert not tuple(near_sets(case_of({"x_ptr": Scalar(F32)}, {"y_ptr": F16["n"]}), sizes))
