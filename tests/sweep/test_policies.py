"""The device's judge and the plain judge refuse the same results under each policy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ptxdiff.inputs.edges import edge_units  # noqa: E402
from ptxdiff.inputs.generated import Counted  # noqa: E402
from ptxdiff.judging.differences import classify_differences  # noqa: E402
from ptxdiff.judging.evaluate import accepted  # noqa: E402
from ptxdiff.judging.judge import judge  # noqa: E402
from ptxdiff.model.case import Case  # noqa: E402
from ptxdiff.model.match import absolute, exact, relative, ulp  # noqa: E402
from ptxdiff.model.policies import policies  # noqa: E402
from ptxdiff.model.reference import runs_on_host  # noqa: E402
from ptxdiff.model.variants import asm, either, numpy_reference  # noqa: E402
from ptxdiff.references.formats import BF16, E4M3, F16, F32, F64, I32, U8  # noqa: E402
from ptxdiff.sweep.oracle import Oracle  # noqa: E402

MATCHES = [
    exact(), exact(zero_sign="any"), ulp(1), ulp(2, overflow=True, underflow=True), absolute(2**-20),
    absolute(0.5, zero_sign="any"), absolute(300, overflow=True), relative(2**-10), relative(0.75, underflow=True),
]  # fmt: skip


FTZ = ["never", "allowed", "required"]


def pairs(fmt: Any) -> tuple[Any, Any]:
    """All pairs of interesting codes, and each code with its neighbours."""
    edges = edge_units(fmt)
    edges = edges[:: max(1, len(edges) // 40)]
    a, b = (x.reshape(-1) for x in np.meshgrid(edges, edges))
    a, b = np.tile(a, 5), np.concatenate([b, *(a + k for k in (-2, -1, 1, 2))])
    return (a, b) if fmt.code_bits == 64 else (a & fmt.code_mask, b & fmt.code_mask)


def case_of(fmt: Any, reference: Any, **options: Any) -> Case:
    return Case(
        inputs={"x": fmt},
        outputs={"y": fmt},
        reference=reference,
        variants={"v": asm("x", constraints="=r,r", pack=1, **options)},
    )


def flagged(case: Case, fmt: Any, x: Any, y: Any) -> Any:
    oracle = Oracle(case, policies(case, case.variants["v"]), Counted({"x": U8}))
    oracle.inputs = {"x": fmt}
    return oracle.flags({"x": torch.from_numpy(x)}, {"y": torch.from_numpy(y)}).flagged.numpy()


def refused(case: Case, fmt: Any, x: Any, y: Any) -> Any:
    """The mask of pairs that the plain judge's rules refuse; the plain judge counts as many."""
    policy = policies(case, case.variants["v"])
    wrong = np.ones(len(x), dtype=bool)
    for answer in accepted(case, policy, {"x": x}):
        wrong &= classify_differences(fmt, policy.match["y"], policy.nan, answer["y"], y) != 0
    units = {n: c.astype(fmt.numpy_dtype()) for n, c in (("x", x), ("y", y))}
    found = judge(case, policy, {"x": units["x"]}, {"y": units["y"]})
    assert found.different == wrong.sum()
    return wrong


def same(x):
    return x


def other_sign(fmt):
    return lambda x: x ^ (1 << fmt.sign_shift)


def together() -> list[Any]:
    """The rows of match, format, flushes and number of references. The quick half has every pair of values of two of
    them."""
    rows = itertools.product(enumerate(MATCHES), enumerate([F32, F16, E4M3]), enumerate(FTZ), (False, True))
    found = []
    for (i, match), (j, fmt), (k, ftz), several in rows:
        marks = () if (i + j + k) % 2 == several else pytest.mark.slow
        name = f"{match.describe()}-{fmt.name}-{ftz}-{'either' if several else 'one'}"
        found.append(pytest.param(match, fmt, ftz, several, marks=marks, id=name))
    return found


@pytest.mark.sample(3)
@pytest.mark.parametrize(("match", "fmt", "ftz", "several"), together())
def test_the_device_flags_what_the_plain_judge_refuses(fmt, match, ftz, several):
    x, y = pairs(fmt)
    reference = either(same, other_sign(fmt)) if several else same
    for nan in ("any", "canonical", "payload")[:: 1 if match.kind == "exact" else 3]:
        case = case_of(fmt, reference, match=match, ftz=ftz, nan=nan)
        flags, wrong = flagged(case, fmt, x, y), refused(case, fmt, x, y)
        assert not (wrong & ~flags).any(), "the device passes what the plain judge refuses"
        if match.kind in ("exact", "ulp"):  # under other policies it may leave doubtful pairs to the plain judge
            assert not (flags & ~wrong).any()
        assert wrong.any()
        assert not wrong.all()


@pytest.mark.parametrize("fmt", [F64, I32, U8], ids=lambda f: f.name)
@pytest.mark.parametrize("match", [exact(), absolute(3), ulp(2)], ids=lambda m: m.describe())
def test_the_device_flags_what_the_plain_judge_refuses_without_flushes(fmt, match):
    x, y = pairs(fmt)
    case = case_of(fmt, same, match=match)
    wrong = refused(case, fmt, x, y)
    np.testing.assert_array_equal(flagged(case, fmt, x, y) | wrong, flagged(case, fmt, x, y))
    assert wrong.any()


def test_one_of_several_specifications_answers_for_all_outputs():
    case = Case(
        inputs={"a": U8},
        outputs={"y": U8, "z": U8},
        reference=either(lambda a: (a, a ^ 1), lambda a: (a ^ 1, a)),
        variants={"v": asm("{ mov.b32 $0, $1; }", constraints="=r,r")},
    )
    oracle = Oracle(case, policies(case, case.variants["v"]), None)
    a = torch.tensor([2, 2, 2, 2])
    got = {"y": torch.tensor([2, 3, 2, 3]), "z": torch.tensor([3, 2, 2, 3])}
    assert oracle.flags({"a": a}, got).flagged.tolist() == [False, False, True, True]


def test_a_second_specification_of_the_host_keeps_a_sweep_there():
    assert runs_on_host(either(same, numpy_reference(lambda x: x + 1)))


@pytest.mark.parametrize("fmt", [F32, F16, BF16, F64, E4M3], ids=lambda f: f.name)
def test_a_canonical_nan_is_required_where_the_reference_gives_a_payload(fmt):
    codes = (fmt.canonical_nan, fmt.canonical_nan ^ (0x80 if fmt == E4M3 else 1))
    canonical, payload = (c - (1 << 64) if c >> 63 else c for c in codes)
    x = np.array([payload, payload, canonical, canonical])
    y = np.array([payload, canonical, payload, canonical])
    case = case_of(fmt, same, nan="canonical")
    np.testing.assert_array_equal(refused(case, fmt, x, y), [True, False, True, False])
    np.testing.assert_array_equal(flagged(case, fmt, x, y), [True, False, True, False])
    case = case_of(fmt, same, nan="payload")
    np.testing.assert_array_equal(refused(case, fmt, x, y), [False, True, True, False])
