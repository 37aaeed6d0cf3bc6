"""One mistake is one block of pytest's output, on however many targets it shows; two mistakes are two."""

import pytest

CASES = '''"""Two mistakes, and a variant that is right."""
from ptxdiff import Case, asm
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32

case = Case(
    inputs={"x": F32, "y": F32}, outputs={"z": F32}, source="PTX ISA",
    reference=lambda x, y: arithmetic.mul(arithmetic.sub(x, y, fmt=F32), y, fmt=F32),
    variants={
        "right": asm("sub.f32 $0, $1, $2; mul.f32 $0, $0, $2;", constraints="=&f,f,f", pack=1),
        "clobber": asm("sub.f32 $0, $1, $2; mul.f32 $0, $0, $2;", constraints="=f,f,f", pack=1),
        "sign": asm("sub.f32 $0, $2, $1; mul.f32 $0, $0, $2;", constraints="=&f,f,f", pack=1),
        "none": asm("addd.f32 $0, $1, $2;", constraints="=f,f,f", pack=1),
    },
)
'''
TARGETS = ("sm_75", "sm_90a", "sm_120a")
OPTIONS = [f"--ptx-target={t}" for t in TARGETS]


@pytest.fixture
def run(run_cases, monkeypatch):
    """Run the case on three targets, as CI does: then pytest shortens nothing."""
    monkeypatch.setenv("CI", "true")
    return lambda *options, text=CASES: run_cases(*OPTIONS, *options, planted=text)


@pytest.mark.parametrize(
    "options",
    [pytest.param((), id="here"), pytest.param(("-n1", "-p", "xdist"), id="workers", marks=pytest.mark.slow)],
)
def test_a_mistake_on_three_targets_is_one_block_with_the_cause_first(run, options):
    result = run(*options)
    text = result.stdout.str()
    summary = [line for line in result.outlines if line.startswith("FAILED")]
    assert len(summary) == 3
    result.assert_outcomes(passed=3, failed=9)
    assert text.count("  repeat    pytest") == 3
    assert text.count("the same on 2 more targets: sm_90a, sm_120a (emulator)") == 3
    assert "planted::clobber[sm_75-emulator]: missing early clobber: make the constraint of $0 '=&f'; " in text
    assert "9 failed items have 3 causes; -vv prints each item" in text
    assert all(line.endswith("; the same on 2 more targets") for line in summary)


@pytest.mark.slow
def test_vv_prints_every_item(run):
    result = run("-vv")
    assert len([line for line in result.outlines if line.startswith("FAILED")]) == 9
    assert "the same on" not in result.stdout.str()
