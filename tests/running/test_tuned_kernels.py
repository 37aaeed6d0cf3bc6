"""Kernels under @triton.autotune and @triton.heuristics as variants: each configuration is run."""

import json

import pytest

CASE = '''"""The next numbers, from tuned kernels."""

import triton
import triton.language as tl

from ptxdiff import Case, kernel
from ptxdiff.references.formats import I32

CONFIGS = [triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128}, num_warps=4, num_stages=2)]


@triton.jit
def plain(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, WRONG: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(y + i, tl.load(x + i) + 1)
    else:
        tl.store(y + i, tl.load(x + i, i < n) + (2 if WRONG == BLOCK else 1), i < n)


@triton.jit
def small(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, WRONG: tl.constexpr):
    tl.static_assert(BLOCK < 100)
    plain(x, y, n, BLOCK, EVEN, WRONG)


RULES = {"EVEN": lambda args: args["n"] % args["BLOCK"] == 0}
tuned = triton.autotune(configs=CONFIGS, key=["n"])(triton.heuristics(RULES)(plain))
asserted = triton.autotune(configs=CONFIGS, key=["n"])(triton.heuristics(RULES)(small))
by_rules = triton.heuristics(RULES)(plain)
first = triton.heuristics(RULES)(triton.autotune(configs=CONFIGS, key=["n"])(plain))


def blocks(v):
    assert v["EVEN"] is (v["n"] % v["BLOCK"] == 0)
    return (triton.cdiv(v["n"], v["BLOCK"]),)


case = Case(
    inputs={"x": I32["n"]},
    outputs={"y": I32["n"]},
    reference=lambda x: (x + 1) & 0xFFFFFFFF,
    sizes=[{"n": 300}, {"n": 256}],
    variants={
        "tuned": kernel(tuned, grid=blocks, meta={"WRONG": 0}, fusion=False),
        "wrong once": kernel(tuned, grid=blocks, meta={"WRONG": 128}),
        "named": kernel(tuned, grid=blocks, meta={"WRONG": 64, "BLOCK": 128}),
        "by rules": kernel(by_rules, grid=blocks, meta={"WRONG": 0, "BLOCK": 32}),
        "one too large": kernel(asserted, grid=blocks, meta={"WRONG": 0}, fusion=False),
        "rules first": kernel(first, grid="ceil(n/BLOCK)", meta={"WRONG": 0, "EVEN": False}),
    },
)
'''


def worst(path):
    found = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if record["record"] == "result":
            name = record["key"]["variant"]
            found[name] = record["verdict"] if found.get(name, "pass") == "pass" else found[name]
    return found


def test_each_configuration_is_a_variant_of_its_own(run_cases, pytester, monkeypatch):
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "0")
    run_cases("--ptx-records=r.jsonl", case=CASE)
    first, second = "BLOCK=64, num_warps=2, num_stages=3", "BLOCK=128, num_warps=4, num_stages=2"
    assert worst(pytester.path / "r.jsonl") == {
        f"tuned ({first})": "pass",
        f"tuned ({second})": "pass",
        f"wrong once ({first})": "pass",
        f"wrong once ({second})": "fail",
        "named": "pass",
        "by rules": "pass",
        f"one too large ({first})": "pass",
        f"one too large ({second})": "not run",
        f"rules first ({first})": "pass",
        f"rules first ({second})": "pass",
    }


@pytest.mark.slow
def test_a_failure_says_that_the_kernel_prunes_configurations(run_cases, monkeypatch):
    """Triton's own launch would not have taken this one, which fails here; which one it takes depends on arguments."""
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "0")
    pruning = CASE.replace(
        "tuned = triton.autotune(configs=CONFIGS, ",
        "tuned = triton.autotune(configs=CONFIGS, "
        "prune_configs_by={'early_config_prune': lambda configs, args, **meta: configs[:1]}, ",
    )
    said = "*the kernel's autotuner removes configurations by a function*prune_configs_by*"
    run_cases("-k", "wrong", case=pruning).stdout.fnmatch_lines([said])
    run_cases("-k", "wrong", case=CASE).stdout.no_fnmatch_line(said)
