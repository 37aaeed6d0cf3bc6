"""Wrong roundings inside a computation: every quick run has an input on which each shows."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ptxdiff import Case, Domain, asm, numpy_reference
from ptxdiff.inputs.intermediate import intermediate_inputs
from ptxdiff.inputs.rounding import rounding_inputs
from ptxdiff.inputs.sets import input_sets, within
from ptxdiff.model.arguments import format_of
from ptxdiff.model.load import load
from ptxdiff.references import arithmetic, conversion, stochastic
from ptxdiff.references.formats import BF16, E2M1, E2M1X4, E4M3, E5M2, F16, F32, I8, I32, U32, U64, to_float64, unpack
from ptxdiff.references.rounding import observing, round_float64


@functools.cache
def converted(target: Any, **options: Any) -> Callable[..., Any]:
    return lambda x: conversion.convert(
        x, source=F32, target=target, satfinite=not target.infinity or target is E5M2, **options
    )


@functools.cache
def scaled(target: Any, rounding: Any = "rn", last: Any = "rn") -> Callable[..., Any]:
    """A product in float32, converted."""
    return lambda x, s: converted(target, rounding=last)(arithmetic.mul(x, s, rounding=rounding))


@functools.cache
def fused(target: Any, rounding: Any = "rn") -> Callable[..., Any]:
    return lambda a, b, c: converted(target)(arithmetic.fma(a, b, c, rounding=rounding))


@functools.cache
def product_and_sum(target: Any, rounding: Any = "rn", last: Any = "rn") -> Callable[..., Any]:
    return lambda a, b, c: converted(target)(arithmetic.add(arithmetic.mul(a, b, rounding=rounding), c, rounding=last))


@functools.cache
def directly(target: Any) -> Callable[..., Any]:
    """The exact product, rounded once to a narrow format."""
    return lambda x, s: round_float64(target, to_float64(F32, x) * to_float64(F32, s), satfinite=True)


@functools.cache
def by_way_of(middle: Any, target: Any, rounding: Any = "rn") -> Callable[..., Any]:
    def twice(x):
        half = conversion.convert(x, source=F32, target=middle, rounding=rounding)
        return conversion.convert(half, source=middle, target=target, satfinite=True)

    return twice


@functools.cache
def randomly(target: Any, rounding: Any = "rn", random: Any = lambda r: r & 0xFFFF) -> Callable[..., Any]:
    """A product, then random bits, then truncation."""
    return lambda x, s, r: stochastic.convert(
        arithmetic.mul(x, s, rounding=rounding), random(r) & ((1 << stochastic.random_bits(target)) - 1),
        target=target, satfinite=True,
    )  # fmt: skip


@functools.cache
def randomly_added(rounding: Any = "rn") -> Callable[..., Any]:
    return lambda a, b, r: stochastic.convert(
        arithmetic.add(a, b, rounding=rounding), r & 0xFFFF, target=BF16, satfinite=True
    )


@functools.cache
def quotient(target: Any, rounding: Any = "rn") -> Callable[..., Any]:
    return lambda x, s: converted(target)(arithmetic.div(x, s, rounding=rounding))


@functools.cache
def half_scaled(rounding: Any = "rn") -> Callable[..., Any]:
    """A product of float16, converted to e4m3."""
    return lambda x, s: conversion.convert(
        arithmetic.mul(x, s, fmt=F16, rounding=rounding), source=F16, target=E4M3, satfinite=True
    )


@functools.cache
def root(rounding: Any = "rn") -> Callable[..., Any]:
    return lambda x, s: converted(BF16)(arithmetic.mul(arithmetic.sqrt(x, rounding=rounding), s))


@functools.cache
def squared(rounding: Any = "rn") -> Callable[..., Any]:
    return lambda x, s: converted(F16)(arithmetic.mul(arithmetic.mul(x, x, rounding=rounding), s))


@functools.cache
def integer(rounding: Any = "rn", middle: Any = F32) -> Callable[..., Any]:
    """An int32 in float32, times a scale, to int8."""
    return lambda i, s: converted(I8)(
        arithmetic.mul(conversion.convert(i, source=I32, target=F32, rounding=rounding), s)
    )


@functools.cache
def four_at_once(rounding: Any = "rn") -> Callable[..., Any]:
    """Four bfloat16 in a word times two float32 in a word, each twice, to e2m1 with random bits."""

    def quantized(x, s, r):
        lanes = torch.stack([x >> 16 * k & 0xFFFF for k in range(4)], -1) << 16
        scales = torch.stack([s >> 32 * (k % 2) & 0xFFFFFFFF for k in range(4)], -1)
        products = arithmetic.mul(lanes, scales, rounding=rounding)
        shares = stochastic.share(r, target=E2M1)
        return stochastic.convert(products, shares, target=E2M1, satfinite=True).flatten(-2)

    return quantized


@dataclass(frozen=True)
class Plant:
    """A right function, and a wrong one that differs in one rounding before the last step."""

    inputs: tuple[Any, ...]
    output: Any
    right: Callable[..., Any]
    wrong: Callable[..., Any]


TWO, THREE = (F32, F32), (F32, F32, F32)
PLANTS: dict[str, Plant] = {
    **{f"product {r}, e4m3": Plant(TWO, E4M3, scaled(E4M3), scaled(E4M3, r)) for r in ("rz", "rp", "rm", "rna")},
    **{f"product {r}, f16": Plant(TWO, F16, scaled(F16), scaled(F16, r)) for r in ("rz", "rp")},
    **{f"product {r}, bf16": Plant(TWO, BF16, scaled(BF16), scaled(BF16, r)) for r in ("rz", "rm")},
    **{f"product {r}, int8": Plant(TWO, I8, scaled(I8), scaled(I8, r)) for r in ("rz", "rp", "rm")},
    "product rn for rz, int8": Plant(TWO, I8, scaled(I8, "rz"), scaled(I8)),
    "product, int8 away from zero": Plant(TWO, I8, scaled(I8), scaled(I8, last="rna")),
    "product, e4m3 away from zero": Plant(TWO, E4M3, scaled(E4M3), scaled(E4M3, last="rna")),
    **{f"fma {r}, e5m2": Plant(THREE, E5M2, fused(E5M2), fused(E5M2, r)) for r in ("rz", "rp")},
    **{f"fma {r}, f16": Plant(THREE, F16, fused(F16), fused(F16, r)) for r in ("rz", "rm")},
    "fma for product and sum, bf16": Plant(THREE, BF16, product_and_sum(BF16), fused(BF16)),
    "product and sum for fma, bf16": Plant(THREE, BF16, fused(BF16), product_and_sum(BF16)),
    "product rz, sum, f16": Plant(THREE, F16, product_and_sum(F16), product_and_sum(F16, "rz")),
    "product, sum rz, f16": Plant(THREE, F16, product_and_sum(F16), product_and_sum(F16, last="rz")),
    "twice for once, e4m3": Plant(TWO, E4M3, directly(E4M3), scaled(E4M3)),
    "once for twice, e4m3": Plant(TWO, E4M3, scaled(E4M3), directly(E4M3)),
    "once for twice, f16": Plant(TWO, F16, scaled(F16), directly(F16)),
    "by way of f16, e4m3": Plant((F32,), E4M3, converted(E4M3), by_way_of(F16, E4M3)),
    "by way of bf16, e4m3": Plant((F32,), E4M3, converted(E4M3), by_way_of(BF16, E4M3)),
    "directly for by way of f16": Plant((F32,), E4M3, by_way_of(F16, E4M3), converted(E4M3)),
    "by way of f16 rz": Plant((F32,), E4M3, by_way_of(F16, E4M3), by_way_of(F16, E4M3, "rz")),
    "by way of f16, e5m2": Plant((F32,), E5M2, converted(E5M2), by_way_of(F16, E5M2)),
    **{
        f"product {r}, stochastic {t.name}": Plant((F32, F32, U32), t, randomly(t), randomly(t, r))
        for t, r in ((E2M1, "rz"), (E2M1, "rp"), (E4M3, "rz"), (BF16, "rz"), (BF16, "rm"), (F16, "rz"))
    },
    **{f"words {r}, stochastic": Plant((U64, U64, U32), E2M1X4, four_at_once(), four_at_once(r)) for r in ("rz", "rp")},
    "sum rz, stochastic": Plant((F32, F32, U32), BF16, randomly_added(), randomly_added("rz")),
    **{f"quotient {r}, int8": Plant(TWO, I8, quotient(I8), quotient(I8, r)) for r in ("rz", "rp")},
    "quotient rz, e4m3": Plant(TWO, E4M3, quotient(E4M3), quotient(E4M3, "rz")),
    **{f"half product {r}, e4m3": Plant((F16, F16), E4M3, half_scaled(), half_scaled(r)) for r in ("rz", "rna")},
    "root rz": Plant(TWO, BF16, root(), root("rz")),
    "square rz": Plant(TWO, F16, squared(), squared("rz")),
    "int32 rz, int8": Plant((I32, F32), I8, integer(), integer("rz")),
}  # fmt: skip


def case_of(plant: Plant, **options: Any) -> Case:
    names = [f"i{k}" for k in range(len(plant.inputs))]
    return Case(
        inputs=dict(zip(names, plant.inputs, strict=True)),
        outputs={"y": plant.output},
        reference=plant.right,
        variants={"v": asm("x", constraints=",".join(["=r", *"r" * len(names)]), pack=1)},
        **options,
    )


def made(case: Case, seed: int = 0, references: Any = ()) -> list[Any]:
    """The set of a case as units by input, for a seed."""
    formats = {n: format_of(a) for n, a in case.inputs.items()}
    inside = functools.partial(within, case.domain, formats)
    rng = np.random.default_rng(seed)

    def ties() -> list[Any]:
        return rounding_inputs(formats, [F32, F16], "quick", rng)

    found = intermediate_inputs(case, references or [case.reference], formats, "quick", rng, inside, ties)
    return [c.astype(f.numpy_dtype()) for c, f in zip(found, formats.values(), strict=True)]


@functools.cache
def made_for(inputs: Any, output: Any, right: Any, seed: int) -> list[Any]:
    """The set of a reference, for all plants in it."""
    return made(case_of(Plant(inputs, output, right, right)), seed)


def differing(case: Case, plant: Plant, columns: Any) -> int:
    codes = [torch.from_numpy(unpack(f, c)) for f, c in zip(case.inputs.values(), columns, strict=True)]
    return int((plant.right(*codes) != plant.wrong(*codes)).sum())


HARDEST = [n for n in PLANTS if "rna" in n or "words" in n or "e2m1" in n]
ROUNDED_ONCE = [n for n, p in PLANTS.items() if p.right.__qualname__.startswith(("directly", "converted"))]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        *((n, 0) for n in PLANTS if n not in ROUNDED_ONCE),
        # slow: ten further searches of half a second each
        *(pytest.param(n, s, marks=pytest.mark.slow) for n in HARDEST for s in (1, 2)),
    ],
)
def test_a_wrong_rounding_before_the_last_step_shows_for_any_seed(name, seed):
    plant = PLANTS[name]
    assert differing(case_of(plant), plant, made_for(plant.inputs, plant.output, plant.right, seed)) > 0


@pytest.mark.parametrize("name", ROUNDED_ONCE)
def test_a_rounding_too_many_shows_at_quick_effort(name):
    """The reference rounds once, so the other sets aim at its boundaries."""
    plant = PLANTS[name]
    case = case_of(plant)
    assert not len(made_for(plant.inputs, plant.output, plant.right, 0)[0])
    assert any(differing(case, plant, s.all().values()) for s in input_sets(case, "quick"))


def test_the_set_is_one_of_a_quick_runs_and_the_same_each_time():
    case = case_of(PLANTS["half product rz, e4m3"])
    again = case_of(PLANTS["half product rz, e4m3"])
    one, two = (next(s for s in input_sets(c, "quick") if s.name == "intermediate/1").all() for c in (case, again))
    assert all(np.array_equal(one[n], two[n]) for n in case.inputs)


def test_inputs_outside_of_where_are_neither_tried_nor_made():
    positive = Domain("i1 is positive", lambda v: v["i1"] > 0)
    plant = PLANTS["product rz, e4m3"]

    def right(x, s):
        assert bool((to_float64(F32, s) > 0).all()), "the reference is called outside of where="
        return plant.right(x, s)

    case = case_of(replace(plant, right=right), where=positive)
    x, s = made(case)
    assert len(x) > 20
    assert (s.view(np.float32) > 0).all()
    assert differing(case, plant, (x, s)) > 0


def test_references_of_variants_are_solved_too():
    plant = PLANTS["product rz, int8"]
    case = case_of(replace(plant, right=lambda x, s: conversion.convert(x, source=F32, target=I8)))
    assert not len(made(case)[0])
    assert differing(case, plant, made(case, references=[case.reference, plant.right])) > 0


def test_references_that_raise_or_take_numpy_give_no_inputs():
    @numpy_reference
    def host(x, s):
        return x

    def raising(x, s):
        raise ValueError("planted")

    plant = PLANTS["product rz, int8"]
    for reference in (host, raising):
        assert not len(made(case_of(replace(plant, right=reference)))[0])


def test_an_observer_sees_each_rounding_once_and_is_gone_afterwards():
    seen = []

    def observer(fmt, rounding, rounded):
        seen.append((fmt.name, rounding))
        conversion.convert(torch.tensor([0x3F800000]), source=F32, target=F16)  # not observed
        return rounded(fmt, "rz")

    x, s = torch.tensor([0x3F800001]), torch.tensor([0x3F800003])
    with observing(observer):
        inside = arithmetic.mul(x, s)
    assert seen == [("float32", "rn")]
    assert int(inside) == int(arithmetic.mul(x, s, rounding="rz"))
    assert int(arithmetic.mul(x, s)) == 0x3F800004
    assert len(seen) == 1


def test_other_threads_are_not_observed():
    x, found = torch.tensor([0x3F800001]), []
    with observing(lambda fmt, rounding, rounded: rounded(fmt, "rz")):
        other = threading.Thread(target=lambda: found.append(int(arithmetic.mul(x, x + 2))))
        other.start()
        other.join()
    assert found == [0x3F800004]


def test_cases_whose_outputs_have_another_size_than_their_inputs_give_none():
    """The cases of effects count executions: their output has no row for each input."""
    for loaded in load(Path(__file__).resolve().parents[2] / "cases" / "effects.py")[:5]:
        names = [s.name for s in input_sets(loaded.case, "quick")]
        assert not any(name.startswith("intermediate") for name in names)
