"""The assembler backend: every target's machine code of a variant, without running it."""

import itertools
from pathlib import Path

import pytest

from ptxdiff.backends import create, gpu
from ptxdiff.backends.assembler import AssemblerBackend
from ptxdiff.jobs import Job, Setup
from tests.backends import backend_cases

PATH = Path(backend_cases.__file__)


@pytest.fixture(scope="module")
def backend():
    return create("assembler")


def job(case, variant, target="sm_90a", **setup):
    setup.setdefault("shape", () if "sizes" in setup else (1000,))
    found = getattr(backend_cases, case)
    return Job(found, case, PATH, variant, found.variants[variant], target, Setup(**setup))


SOUND = [
    ("addition", "asm", {"pack": 2}),
    ("addition", "plain", {}),
    ("addition", "scaled", {"shape": (7, 129), "alignment": 4}),
    ("maximum", "documented", {"pack": 4}),
    ("maximum", "plain", {"context": "loop", "steps": 4}),
    ("rows", "copy", {"sizes": {"M": 5, "N": 40}}),
]
TARGETS = ("sm_90a", "sm_80", "sm_100a", "sm_120a")


def everywhere():
    """Every setup on one target and another setup on each of the others; the slow tests have all of each."""
    for (k, setup), (n, target) in itertools.product(enumerate(SOUND), enumerate(TARGETS)):
        now = n == 0 or k == 2 * (n - 1)
        name = f"{setup[0]}-{setup[1]}-{k}-{target}"
        yield pytest.param(*setup, target, id=name, marks=() if now else pytest.mark.slow)


@pytest.mark.sample(6)
@pytest.mark.parametrize(("case", "variant", "setup", "target"), list(everywhere()))
def test_a_sound_variant_assembles_everywhere(backend, case, variant, setup, target):
    outcome = backend.run(job(case, variant, target, **setup))
    assert (outcome.status, outcome.words) == ("assembled", "")
    assert outcome.artifacts.resources["registers"] > 0
    assert f".target {target}" in outcome.artifacts.ptx
    assert outcome.evidence == "none"


def test_a_missing_feature_is_unsupported_and_illegal_code_an_error(backend):
    assert backend.run(job("conversion", "cvt", "sm_100a", pack=4)).status == "assembled"
    lacking = backend.run(job("conversion", "cvt", "sm_90a", pack=4))
    assert lacking.status == "unsupported"
    assert "not supported on .target 'sm_90a'" in lacking.words
    assert backend.run(job("addition", "wide", "sm_90a", pack=2)).status == "unsupported"
    assert backend.run(job("addition", "wide", "sm_100a", pack=2)).status == "assembled"
    for target in ("sm_80", "sm_120a"):
        wrong = backend.run(job("addition", "misspelt", target))
        assert wrong.status == "error"
        assert "'ad'" in wrong.words


@pytest.mark.parametrize(
    ("case", "variant", "setup", "words"),
    [
        ("addition", "one too few", {}, "takes 1 output and 2 inputs; the constraints list 1 and 1"),
        ("maximum", "documented", {"pack": 2}, "no asm for pack 2"),
        ("conversion", "cvt", {"pack": 4, "context": "loop"}, "carry="),
        ("rows", "no block", {"sizes": {"M": 5, "N": 40}}, "parameter 'BLOCK' is no input, output or size"),
        ("rows", "copy", {"sizes": {"M": 5}}, "no size given for N"),
    ],
)
def test_a_variant_that_cannot_be_launched_is_an_error_in_words(backend, case, variant, setup, words):
    outcome = backend.run(job(case, variant, **setup))
    assert outcome.status == "error"
    assert words in outcome.words


def test_sass_is_made_once_for_all_shapes_of_a_variant():
    backend = AssemblerBackend()
    first = backend.run(job("addition", "asm", "sm_90a", shape=(64,)))
    second = backend.run(job("addition", "asm", "sm_90a", shape=(65,)))
    assert first.artifacts.instructions["FADD"] >= 1
    assert "EXIT" in first.artifacts.sass
    assert second.artifacts.sass is None
    assert AssemblerBackend("never").run(job("addition", "asm")).artifacts.sass is None


def test_a_product_and_its_sum_may_contract_in_what_triton_compiles():
    def ptx(variant, fusion):
        return gpu.compiled(job("addition", variant, fusion=fusion)).compilation.ptx

    assert gpu.may_contract(ptx("product and sum", True))
    assert not gpu.may_contract(ptx("scaled", False))
    assert not gpu.may_contract(ptx("asm", True))


def test_a_target_that_triton_does_not_serve_has_a_reason(backend):
    assert backend.unavailable("sm_90a") is None
    assert "sm_70" in backend.unavailable("sm_70")


def test_a_function_that_executing_its_file_does_not_make_is_refused_in_words(backend):
    import triton

    from ptxdiff.model.case import Case
    from ptxdiff.model.variants import plain
    from ptxdiff.references.formats import F32

    @triton.jit
    def local(x):
        return x

    case = Case(inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x, variants={"local": plain(local)})
    outcome = backend.run(Job(case, "c", PATH, "local", case.variants["local"], "sm_90a", Setup(shape=(8,))))
    assert outcome.status == "error"
    assert "test_assembler.py has no function" in outcome.words
    assert "start the process again" in outcome.words
