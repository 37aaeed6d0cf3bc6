"""`emulate` runs for a target exactly those forms of the registry that ptxas assembles for it.

If ptxas accepts more than the ISA allows, the emulator does what ptxas's code does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest

from tests.support.emulator import legality_campaign
from tests.support.emulator.legality import (
    TARGETS,
    check,
    disagreements,
    error_of_emulate,
    errors_of_ptxas,
    mutated,
    needs,
    odd_operands,
    operand_variations,
    refused_in_use,
    scalar_forms,
    spelled,
    summary,
    with_needless,
)
from tests.support.emulator.legality_campaign import walked

QUICK = {"sm_75": 200, "sm_80": 200, "sm_90a": 1000, "sm_100a": 500, "sm_107a": 250, "sm_110a": 150, "sm_120f": 200}
"""Targets of the default run, and how many lines of each kind they get. The slow tests run every line on every
target."""


def sample(lines: Sequence[str], count: int, seed: str) -> list[str]:
    """`count` of the lines at random, the same in every run."""
    return random.Random(seed).sample(list(lines), min(count, len(lines)))


@cache
def all_spelled() -> list[str]:
    return spelled(scalar_forms())


@cache
def needless() -> list[str]:
    return [line for form in scalar_forms() for line in with_needless(form)]


@cache
def with_other_types() -> list[str]:
    return [line for form in scalar_forms() for line in operand_variations(form)]


@cache
def unusual() -> list[str]:
    return list(dict.fromkeys(line for form in scalar_forms() for line in odd_operands(form)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", QUICK)
def test_forms(target: str) -> None:
    check(sample(all_spelled(), QUICK[target], target), target)


@cache
def combinations() -> list[str]:
    return list(dict.fromkeys(line for form in scalar_forms() for line in mutated(form, 12)))


@pytest.mark.sample(9)
@pytest.mark.parametrize("target", QUICK)
def test_combinations_that_no_form_lists(target: str) -> None:
    check(sample(combinations(), QUICK[target], target), target)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("target", "count"), [("sm_80", 400), ("sm_90a", 1500), ("sm_107a", 400)])
def test_needless_modifiers(target: str, count: int) -> None:
    """For example `add.finite.f32` and `cvt.pred.u32.u16`: ptxas ignores some and refuses some."""
    check(sample(needless(), count, target), target)


@pytest.mark.sample(9)
@pytest.mark.parametrize("target", QUICK)
def test_types_of_operands(target: str) -> None:
    check(sample(with_other_types(), QUICK[target], target), target)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("target", "count"), [("sm_80", 100), ("sm_90a", 200), ("sm_107a", 150)])
def test_unusual_operands(target: str, count: int) -> None:
    """Sinks, vectors, negated predicates, special registers, constants out of range."""
    check(sample(unusual(), count, target), target)


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100a", "sm_107a"])
def test_braces(target: str) -> None:
    """Vectors where the ISA has one, and where it has none but ptxas reads the first element."""
    texts = {"cvt.rs.satfinite.e2m1x4.f32 %b16_0, {}, %b32_5;": BETWEEN_BRACES}
    texts |= dict.fromkeys(["abs.bf16x2 %b32_0, {};", "cvt.f32.bf16 %b32_0, {};", "neg.f16x2 %b32_0, {};"], SOURCES)
    texts |= dict.fromkeys(["add.e5m2x4.e4m3x4 %b32_0, {}, %b32_6;", "add.u8x4 %b32_0, {}, %b32_6;"], SOURCES)
    narrow = "cvt.rn.satfinite.scaled::n1::ue8m0.e4m3x2.bf16x2 %b16_0, {}, %b8_6;"
    texts |= dict.fromkeys([narrow, "cvt.rn.satfinite.s2f6x2.bf16x2 %b16_0, {};"], SOURCES)
    texts |= {"cvt.rn.satfinite.s2f6x2.f32 {}, %b32_1, %b32_3;": [t.replace("32", "16") for t in DESTINATIONS]}
    texts |= dict.fromkeys(["abs.bf16x2 {}, %b32_1;", "cvt.rn.bf16x2.f32 {}, %f32_1, %f32_3;"], DESTINATIONS)
    texts |= {"mul.e5m2x4.e4m3x4.e2m3x4 {}, %b32_6, %b32_7;": DESTINATIONS}
    check([line.replace("{}", text) for line, found in texts.items() for text in found], target)


BETWEEN_BRACES = ("%b32_1,%f32_2,%u32_3,%s32_4", "%f32_1,%b32_2,%b32_3,%b32_4", "%u32_1,%u32_2,%u32_3,%u32_4")
BETWEEN_BRACES += ("%u32_1,%s32_2,%u32_3,%s32_4", "%f16x2_1,%f32_2,%f32_3,%f32_4", "%u32_1,%f16x2_2,%u32_3,%u32_4")
BETWEEN_BRACES += ("%f32_1,%b32_2,%u32_3,%b32_4", "%tid.x,%tid.y,%ctaid.x,%laneid", "%clock64,%f32_2,%f32_3,%f32_4")
BETWEEN_BRACES += ("%laneid,%s32_2,%u32_3,%u32_4", "%f32_1,%laneid,%u32_3,%f32_4", "1.0,%u32_2,%u32_3,%u32_4")
BETWEEN_BRACES += ("%b32_2,1.0,%u32_3,%b32_4", "1.0,2.0,3.0,4.0", "%b32_2,%b32_3,%b32_1,0d3FF0000000000000", "%b32_1")
BETWEEN_BRACES = tuple(f"{{{elements}}}" for elements in BETWEEN_BRACES)
SOURCES = ("{%b32_1}", "{%b32_1,%b32_2,%b32_3,%b32_4}", "{%b32_1,%b32_2,%b32_3}", "{%f32_1,%f32_2}", "{%u32_1,%u32_2}")
SOURCES += ("{%f16x2_1,%f16x2_2}", "{%b32_1,%f32_2}", "{%s32_1,%u32_2}", "{%b32_1,_}", "{%b32_1,%tid.x}", "%tid.x")
SOURCES += ("{%b16_1,%b16_2}", "{%b64_1,%b64_2}", "%f32_1", "%f16x2_1", "0f3F800000", "1.0", "WARP_SZ")
DESTINATIONS = ("{%b32_0}", "{%b32_0,%b32_2,%b32_3,%b32_4}", "{%b32_0,_}", "{%f32_0,%f32_2}")
DESTINATIONS += ("{%b32_0,%f32_2}", "{%u32_0,%f32_2}", "{%u32_0,%b32_2}", "{%u32_0,%u32_2}")


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_all_unusual_operands(target: str) -> None:
    check(unusual(), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_all_needless_modifiers(target: str) -> None:
    """Every form with every needless modifier: ten seconds each."""
    check(needless(), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_form(target: str) -> None:
    """Every spelling on one target: ten seconds each."""
    check(all_spelled(), target)


def in_use(lines: Sequence[str], target: str) -> None:
    """Fail if `emulate` accepts a line that ptxas refuses when operands come from memory and results go there."""
    needs(target)
    accepted = [line for line in lines if error_of_emulate(line, target) is None]
    assert len(accepted) > len(lines) // 4
    for at in range(0, len(accepted), 250):
        assert refused_in_use(accepted[at : at + 250], target) == {}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("target", "count"), [("sm_80", 150), ("sm_90a", 250), ("sm_107a", 150)])
def test_forms_in_use(target: str, count: int) -> None:
    in_use(sample(all_spelled(), count, target), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_form_in_use(target: str) -> None:
    """Every form once without and once with optimisation: half a minute each."""
    in_use(all_spelled(), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_many_combinations_that_no_form_lists(target: str) -> None:
    """Up to two hundred neighbours of every form on one target: twenty seconds each."""
    check(list(dict.fromkeys(line for form in scalar_forms() for line in mutated(form, 200))), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_all_types_of_operands(target: str) -> None:
    """Every operand with every register type: ten seconds each."""
    check(with_other_types(), target)


WALKS = {"sm_80": 100, "sm_90a": 250, "sm_107a": 100}
"""Targets of the default run of random walks, and how many instructions of each kind."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("target", WALKS)
def test_random_walks_of_modifiers(target: str, kernels: bool) -> None:
    """Many are legal with ignored or repeated modifiers, many lack one that another requires."""
    needs(target)
    found = legality_campaign.disagreements(walked(target, WALKS[target], kernels=kernels), target, kernels)
    assert not found, summary(found)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a", "sm_107a", "sm_120a"])
def test_long_random_walks_of_modifiers(target: str, kernels: bool) -> None:
    """Five thousand instructions: half a minute each."""
    needs(target)
    found = legality_campaign.disagreements(walked("long", 5000, kernels=kernels), target, kernels)
    assert not found, summary(found)


def test_walks_meet_legal_and_illegal_instructions_both_ways() -> None:
    needs("sm_90a")
    lines = [*walked("both", 300), *walked("both", 300, kernels=True)]
    legal = [words is None for words in errors_of_ptxas(lines, "sm_90a")]
    assert 60 < sum(legal) < 540
    assert len({line.split(".")[0] for line in lines}) > 60


RULES = {
    "add.b8x16.s32 %b32_0, %b32_1, %b32_2;": True,
    "add.b6x16_p32.b8x16.s32 %b32_0, %b32_1, %b32_2;": True,
    "mul.b8x16.lo.s32 %b32_0, %b32_1, %b32_2;": False,
    "shfl.sync.sync.bfly.b32 %b32_0, %b32_1, 1, 31, -1;": True,
    "ld.relaxed.global.b32 %b32_0, [%b64_7];": False,
    "ld.gpu.global.b32 %b32_0, [%b64_7];": False,
    "ld.b32.relaxed.global.gpu %b32_0, [%b64_7];": True,
    "st.weak.cta.global.b32 [%b64_7], %b32_0;": False,
    "st.release.gpu.local.b32 [%b64_7], %b32_0;": False,
    "ld.nc.b32 %b32_0, [%b64_7];": False,
    "ld.b32.v2.shared {%b32_0, %b32_1}, [%b64_7];": True,
    "st.const.b32 [%b64_7], %b32_0;": False,
    "red.acquire.gpu.global.add.u32 [%b64_7], %b32_1;": False,
    "atom.acquire.global.add.u32 %b32_0, [%b64_7], %b32_1;": True,
    "mbarrier.shared.arrive.b64 %b64_0, [%b64_7];": False,
    "cvta.to.u64.shared %b64_0, %b64_1;": True,
    "cvta.u64.to.shared %b64_0, %b64_1;": False,
    "fence.proxy.global.async;": True,
    "fence.global.proxy.async;": False,
    "mbarrier.arrive.release.shared.b64 %b64_0, [%b64_7];": False,
    "mbarrier.init.shared::cluster.b64 [%b64_7], 1;": False,
    "mbarrier.arrive.shared::cluster.b64 %b64_0, [%b64_7];": False,
    "mbarrier.arrive.shared::cluster.b64 _, [%b64_7];": True,
    "cp.async.cg.global.shared [%b64_6], [%b64_7], 16;": False,
    "cp.async.wait_all 1;": False,
    "bar.sync.cta 0;": False,
    "barrier.aligned.sync 0;": True,
    "bar.u32.red.popc %b32_0, 0, %pred_1;": False,
    "bar.red.u32.popc %b32_0, 0, %pred_1;": True,
    "fence.async.proxy;": False,
    "cvta.global.to.u64 %b64_0, %b64_1;": False,
    "createpolicy.L2::evict_last.fractional.b64 %b64_0;": False,
    "ld.local.L2::128B.b32 %b32_0, [%b64_7];": False,
    "st.global.L2::cache_hint.b32 [%b64_7], %b32_0, %b32_6;": False,
}
"""Lines of each class of disagreement that walks found, and whether ptxas accepts them."""


def test_what_random_walks_found() -> None:
    needs("sm_90a")
    lines = list(RULES)
    assert [words is None for words in errors_of_ptxas(lines, "sm_90a")] == list(RULES.values())
    assert [error_of_emulate(line, "sm_90a", False) is None for line in lines] == list(RULES.values())


@pytest.mark.parametrize(
    "line",
    ["ld.shared::cluster.b32 %b32_0, [%b64_7];", "ld.relaxed.cluster.global.b32 %b32_0, [%b64_7];",
     "fence.acq_rel.cluster;", "fence.proxy.async;", "cvta.shared::cluster.u64 %b64_0, %b64_1;"],
)  # fmt: skip
def test_clusters_and_proxies_begin_with_sm_90(line: str) -> None:
    for target in ("sm_80", "sm_90"):
        needs(target)
        assert [words is None for words in errors_of_ptxas([line], target)] == [target == "sm_90"]
        assert (error_of_emulate(line, target, False) is None) == (target == "sm_90")


def test_both_sides_accept_and_refuse_known_lines() -> None:
    needs("sm_90a")
    lines = [
        "add.f32 %f32_0, %f32_1, %f32_2;",
        "add.rn.sat.ftz.f32 %b32_0, %b32_1, %f32_2;",
        "add.f32 %f32_0, %u32_1, 1;",
    ]
    lines += ["cvt.rn.satfinite.e2m1x2.f32 %b8_0, %f32_1, %f32_2;", "add.foo.f32 %f32_0, %f32_1, %f32_2;", "nop2;"]
    assert [t is None for t in errors_of_ptxas(lines, "sm_90a")] == [True, True, False, False, False, False]
    assert [error_of_emulate(line, "sm_90a") is None for line in lines] == [True, True, False, False, False, False]
    assert disagreements(lines, "sm_90a") == []


def test_an_error_in_one_line_hides_no_other_error() -> None:
    """Syntax errors, semantic errors and errors of the target in one batch: each line gets its own error."""
    needs("sm_80")
    bad = ["add.f32 %f32_0, ;", "add.f32 %f32_0, %u32_1, %f32_2;", "cvt.rn.bf16.u8 %b16_0, %b8_1;"]
    good = "add.f32 %f32_0, %f32_1, %f32_2;"
    lines = [line for line in bad for line in (line, good)]
    errors = errors_of_ptxas(lines, "sm_80")
    assert [t is None for t in errors] == [False, True] * 3
    assert all(a != b for a, b in pairwise(t for t in errors if t))


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_feature_that_a_target_lacks_is_refused_alone_too(target: str) -> None:
    """Errors of lines with only registers are right in a batch; `errors_of_ptxas` relies on that."""
    needs(target)
    lines = sample(needless(), 1000, target)
    errors = dict(zip(lines, errors_of_ptxas(lines, target), strict=True))
    lacking = sample([line for line, words in errors.items() if words and words.startswith("Feature")], 25, target)
    assert len(lacking) == 25
    assert [line for line in lacking if errors_of_ptxas([line], target) != [errors[line]]] == []


def test_a_line_that_crashes_ptxas_when_its_result_is_used_is_refused() -> None:
    """ptxas accepts a scale without `.scaled` as long as the result is not used."""
    needs("sm_107a")
    line = "cvt.rn.ue5m3x2.f16x2 %b16_0, %b32_1, %b8_2;"
    assert errors_of_ptxas([line], "sm_107a") == [None]
    good = ["cvt.rn.ue5m3x2.f16x2 %b16_0, %b32_1;", "add.f32 %f32_0, %f32_1, %f32_2;"]
    errors = refused_in_use([good[0], line, good[1]], "sm_107a")
    assert list(errors) == [line]
    assert "Internal compiler error" in errors[line]
    assert disagreements([line], "sm_107a") == []


def test_a_planted_mistake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """First a form claims too many targets, then too few."""
    needs("sm_89")
    from ptxdiff.emulator.isa.forms import find
    from ptxdiff.emulator.targets import Requirement

    form = find("cvt", ("rn", "satfinite", "e4m3x2", "f32"))[0].form
    for requirement, target in ((Requirement(minimum=75), "sm_80"), (Requirement(minimum=90), "sm_89")):
        monkeypatch.setattr(form, "requires", requirement)
        assert len(disagreements(spelled([form]), target)) > 0
