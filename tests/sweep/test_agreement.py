"""The sweep's judge, on tensors, applies the plain judge's rules."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ptxdiff.inputs.edges import edge_units  # noqa: E402
from ptxdiff.judging import differences  # noqa: E402
from ptxdiff.judging.differences import Difference, classify_differences  # noqa: E402
from ptxdiff.model.match import Domain, absolute, between, exact, magnitude, relative, ulp  # noqa: E402
from ptxdiff.references.formats import (  # noqa: E402  # noqa: E402
    BF16,
    E2M1,
    E4M3,
    F16,
    F32,
    F64,
    I32,
    I64,
    TF32,
    U8,
    UE8M0,
    distance,
    is_finite,
    is_zero,
    sign,
)
from ptxdiff.sweep.oracle import (  # noqa: E402
    agrees,
    classify,
    doubtful,
    holds_on_tensors,
)

MATCHES = [
    exact(), exact(zero_sign="any"), ulp(1), ulp(2, overflow=True, underflow=True), ulp(3, zero_sign="any"),
    absolute(2**-20), absolute(0.1, underflow=True, overflow=True), relative(2**-10),
    relative(2**-10, overflow=True, underflow=True),
]  # fmt: skip


@pytest.mark.sample(3)
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


def pairs_of(fmt):
    edges = edge_units(fmt)
    edges = edges[:: max(1, len(edges) // 40)]
    a, b = (x.reshape(-1) for x in np.meshgrid(edges, edges))
    a, b = np.tile(a, 2), np.concatenate([b, a + 1])
    return torch.from_numpy(a & fmt.code_mask), torch.from_numpy(b & fmt.code_mask)


@pytest.mark.parametrize(
    "kind", [d for d in Difference if d not in (0, 1, Difference.VALUE, Difference.POSITIONAL, Difference.PADDING)]
)
def test_a_change_of_the_definition_changes_what_a_sweep_flags(kind, monkeypatch):
    """Each class in turn is defined as SAME: the plain judge and the sweep's judge change in the same way."""
    e, g = pairs_of(F16)
    match = ulp(1, underflow=True) if kind == Difference.ZERO_SIGN else exact()
    was = agrees(F16, match, "payload", e, g)
    planted = [(Difference.SAME if d == kind else d, condition) for d, condition in differences.RULES]
    monkeypatch.setattr(differences, "RULES", planted)
    now = agrees(F16, match, "payload", e, g)
    assert (now & ~was).any()
    plain = classify_differences(F16, match, "payload", e.numpy(), g.numpy())
    np.testing.assert_array_equal(now.numpy(), plain == 0)
    np.testing.assert_array_equal(classify(F16, match, "payload", e, g).numpy(), plain)


@pytest.mark.parametrize("fmt", [F32, F16, E4M3, UE8M0], ids=lambda f: f.name)
def test_results_that_agree_are_as_near_as_the_oracle_assumes(fmt):
    """`Oracle._distance` assumes that results that agree under an exact policy are equal, and under ulp have the same
    sign."""
    e, g = pairs_of(fmt)
    for match in (exact(), exact(zero_sign="any"), ulp(3), ulp(3, zero_sign="any", overflow=True)):
        near = agrees(fmt, match, "any", e, g) & is_finite(fmt, e) & is_finite(fmt, g)
        zeros = is_zero(fmt, e) & is_zero(fmt, g)
        assert ((sign(fmt, e) == sign(fmt, g)) | zeros)[near].all()
        if match.kind == "exact":
            assert (distance(fmt, e, g) == 0)[near].all()


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
def test_a_domain_is_the_same_on_tensors_and_on_arrays(domain):
    found = holds_on_tensors(domain, {n: torch.from_numpy(v) for n, v in VALUES.items()})
    np.testing.assert_array_equal(found.numpy(), domain.holds(VALUES))
