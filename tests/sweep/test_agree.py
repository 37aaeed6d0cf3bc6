"""The judge's rules for tensors are the judge's rules."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from harness.inputs.edges import edge_units  # noqa: E402
from harness.judging.differences import classify_differences  # noqa: E402
from harness.model.match import Domain, absolute, between, exact, magnitude, relative, ulp  # noqa: E402
from harness.sweep.agree import agrees, classify, doubtful  # noqa: E402
from harness.sweep.onarrays import on_device  # noqa: E402
from references.formats import BF16, E2M1, E4M3, F16, F32, F64, I32, I64, TF32, U8, UE8M0  # noqa: E402

MATCHES = [
    exact(), exact(zero_sign="any"), ulp(1), ulp(2, overflow=True, underflow=True), ulp(3, zero_sign="any"),
    absolute(2**-20), absolute(0.1, underflow=True, overflow=True), relative(2**-10),
    relative(2**-10, overflow=True, underflow=True),
]  # fmt: skip


@pytest.mark.parametrize("match", MATCHES, ids=lambda m: m.describe())
@pytest.mark.parametrize("fmt", [F32, F16, BF16, TF32, F64, E4M3, E2M1, UE8M0, U8, I32, I64], ids=lambda f: f.name)
def test_classes_are_those_of_the_plain_judge(fmt, match):
    edges = edge_units(fmt)[::12]
    a, b = (x.reshape(-1) for x in np.meshgrid(edges, edges))
    a, b = np.tile(a, 6), np.concatenate([b, *(a + k for k in (-2, -1, 0, 1, 2))])
    if fmt.code_bits < 64:
        a, b = a & fmt.code_mask, b & fmt.code_mask
    e, g = torch.from_numpy(a), torch.from_numpy(b)
    for nan in ("any", "canonical", "payload"):
        expected = classify_differences(fmt, match, nan, a, b)
        decided = ~doubtful(fmt, match, e, g).numpy()
        np.testing.assert_array_equal(classify(fmt, match, nan, e, g).numpy()[decided], expected[decided])
        assert not (agrees(fmt, match, nan, e, g).numpy() & (expected != 0)).any()


VALUES = {
    "a": np.array([0, 1, -2, np.inf, np.nan, 3e38, -0.0, 5.0]),
    "b": np.array([1, 0.5, -2, 0, 1, 2, np.inf, 1e-300]),
}
DOMAINS = [
    magnitude("a", 1, 4),
    between("b", -3, 1) & magnitude("a", 0, 2),
    Domain("a * b is a number", lambda v: ~np.isnan(v["a"] * v["b"])),
    Domain("functions", lambda v: np.logical_or(np.abs(v["a"]) <= 2, np.maximum(v["b"], 0) > 1)),
    Domain("only numpy can", lambda v: np.isin(v["a"], [1.0, 5.0])),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda d: d.text)
def test_a_domain_holds_on_tensors_where_it_holds_on_arrays(domain):
    found = on_device(domain, {n: torch.from_numpy(v) for n, v in VALUES.items()})
    np.testing.assert_array_equal(found.numpy(), domain.holds(VALUES))
