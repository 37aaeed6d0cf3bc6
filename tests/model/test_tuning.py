"""Variants of autotuned kernels: a variant for each configuration, chosen by values of `meta`."""

from dataclasses import replace

import pytest
import triton
import triton.language as tl

from ptxdiff import Case, kernel, plain
from ptxdiff.model.tuning import base_name, passed_over, ruled
from ptxdiff.model.variants import CaseError
from ptxdiff.references.formats import I32


@triton.jit
def copied(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n), i < n)


TWO = [triton.Config({"BLOCK": 64}, num_stages=2), triton.Config({"BLOCK": 128}, num_stages=2, maxnreg=64)]
RULES = {"EVEN": lambda args: args["n"] % args["BLOCK"] == 0}
tuned = triton.autotune(configs=TWO, key=["n"])(triton.heuristics(RULES)(copied))


def case_of(**variants):
    inputs, outputs = {"x": I32["n"]}, {"y": I32["n"]}
    return Case(inputs=inputs, outputs=outputs, reference=lambda x: x, sizes=[{"n": 4}], variants=variants)


def test_each_configuration_has_its_values_options_and_name():
    case = case_of(tuned=kernel(tuned, grid=(1,), num_warps=8), other=kernel(copied, grid=(1,)))
    first, second = "tuned (BLOCK=64, maxnreg=None)", "tuned (BLOCK=128, maxnreg=64)"
    assert list(case.variants) == [first, second, "other"]
    made = case.variants[second]
    assert (made.function, dict(made.meta), made.num_warps) == (copied, {"BLOCK": 128}, 4)
    assert (dict(made.options), made.tuned) == ({"num_stages": 2, "maxnreg": 64}, True)
    assert base_name(second, made) == "tuned"
    assert case.variants["other"].tuned is False


def test_meta_chooses_configurations():
    assert list(case_of(t=kernel(tuned, grid=(1,), meta={"BLOCK": 128})).variants) == ["t"]
    with pytest.raises(CaseError, match="no configuration of the autotuner agrees with meta=; it has: BLOCK: 64"):
        case_of(t=kernel(tuned, grid=(1,), meta={"BLOCK": 32}))


def test_rules_read_sizes_and_meta():
    made = case_of(t=kernel(tuned, grid=(1,), meta={"BLOCK": 128})).variants["t"]
    assert ruled(made, {"n": 256}).meta["EVEN"] is True
    assert ruled(made, {"n": 255}).meta["EVEN"] is False
    chosen = case_of(t=kernel(tuned, grid=(1,), meta={"BLOCK": 128, "EVEN": False})).variants["t"]
    assert ruled(chosen, {"n": 256}).meta["EVEN"] is False
    with pytest.raises(CaseError, match=r"the heuristic for 'EVEN' reads 'n', .* meta=\{'EVEN': \.\.\.\}"):
        ruled(made, {})


@pytest.mark.parametrize("config", [triton.Config({"BLOCK": 64}, pre_hook=print), triton.Config({}, num_ctas=2)])
def test_what_a_case_cannot_run_is_refused(config):
    one = triton.autotune(configs=[config], key=["n"])(copied)
    with pytest.raises(CaseError, match=r"variant 't': the configuration .* give the @triton.jit function itself"):
        case_of(t=kernel(one, grid=(1,)))
    elementwise = {"inputs": {"x": I32}, "outputs": {"y": I32}, "reference": lambda x: x}
    with pytest.raises(CaseError, match=r"plain\(\) takes a @triton.jit function"):
        Case(**elementwise, variants={"t": plain(tuned)})


def test_an_autotuner_passes_over_what_a_target_cannot_hold():
    assert passed_over("kernel k needs 300,000 bytes of shared memory a block; sm_80 has 166,912")
    assert passed_over("ptxas error   : Entry function 'k' uses too much shared data (0x20000 bytes, 0xc000 max)")
    assert not passed_over("a thread reads 4 bytes of shared memory outside of its variables")


def test_a_copy_of_a_case_keeps_the_rules():
    """Without them, a parameter with a default would take that, and another kernel would be judged."""
    case = case_of(tuned=kernel(tuned, grid="ceil(n/BLOCK)"))
    copy = replace(case, variants=dict(case.variants))
    assert [v.rules.keys() for v in copy.variants.values()] == [RULES.keys()] * 2
    assert [(v.meta, v.num_warps, v.configuration) for v in copy.variants.values()] == [
        (v.meta, v.num_warps, v.configuration) for v in case.variants.values()
    ]
