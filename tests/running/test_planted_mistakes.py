"""Mistakes that people make, planted in the real cases: each makes its variant fail, with a message that names it.

A mistake is a replacement in the text of the case file, or of a module that it imports, so that it follows the cases.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptxdiff.backends import create
from ptxdiff.jobs import Backend
from ptxdiff.model import load as loader
from ptxdiff.running.item import Item, ItemResults
from ptxdiff.running.run import run_item
from tests.support.planting import planted
from tests.support.sampling import mixed
from tests.support.tritons import since


@pytest.fixture(scope="module")
def backend() -> Backend:
    return create("emulator")


def run_planted(
    tmp_path: Path, backend: Backend, file: str, variant: str, old: str, new: str, shows: str = ""
) -> ItemResults:
    """The variant's results after each match of the pattern `old`, from the variant's name on, is replaced by `new`.

    shows: the plan ends at the first failure if that has this class.
    """
    start = "" if variant == "triton-integers" else f'"{variant}":'
    times = 0 if variant == "cvt-pack4" else 1
    path = planted(tmp_path, file, lambda text: re.subn(old, new, text, count=times), start)
    (loaded,) = (case for case in loader.load(path) if case.attribute == "case")
    item = Item(loaded, variant, "sm_100a", backend.name)
    if shows:
        found = run_item(item, backend, "quick", stop=True)
        if any(shows in r.classes for r in found.results):
            return found
    return run_item(item, backend, "quick")


BOTH = r"(cvt\.rn\.satfinite\.e2m1x2\.f32 tmp\d), (\$\d), (\$\d);"

# case, variant, the text to replace, its replacement, the class that the message names.
IN_ASM = {
    "sources swapped": ("cvt_e2m1x2", "cvt-pack4", BOTH, r"\1, \3, \2;", "positional"),
    "sources swapped, one instruction": ("cvt_e2m1x2", "cvt", r"\$2, \$1", "$1, $2", "positional"),
    "registers exchanged": ("cvt_e2m1x2", "cvt-pack4", r"tmp2, \$7, \$3", "tmp2, $3, $7", "positional"),
    "bytes exchanged": ("cvt_e2m1x2", "cvt-pack4", r"\{tmp0, tmp1, ", "{tmp1, tmp0, ", "positional"),
    "last bytes exchanged": ("cvt_e2m1x2", "cvt-pack4", r"tmp2, tmp3\}", "tmp3, tmp2}", "positional"),
    "relu added": ("cvt_e2m1x2", "cvt", r"satfinite\.", "satfinite.relu.", "sign of zero"),
    "relu added to one of four": ("cvt_e2m1x2", "cvt-pack4", r"satfinite(\.e2m1x2\.f32 tmp2)", r"satfinite.relu\1",
                                  "larger than 1 ulp"),
    "ftz dropped": ("rcp", "rcp.approx.ftz", r"approx\.ftz\.f32 ", "approx.f32 ", "flush to zero"),
    "ftz added": ("rcp", "rcp.rn", r"rn\.f32 ", "rn.ftz.f32 ", "flush to zero"),
    "rz for rn": ("rcp", "rcp.rn", r"rn\.f32 ", "rz.f32 ", "1 ulp"),
    "approximate": ("rcp", "rcp.rn", r"rn\.f32 \$0, \$1;", "rn.f32 $0, $1; add.u32 $0, $0, 1;", "1 ulp"),
    "infinity lost": ("rcp", "rcp.rn", r"rn\.f32 \$0, \$1;", "rn.f32 $0, $1; min.f32 $0, $0, 0f7F7FFFFF;", "infinity"),
    "NaN lost": ("rcp", "rcp.rn", r"rn\.f32 \$0, \$1;", "rn.f32 $0, $1; min.f32 $0, $0, 0f7F800000;", "NaN"),
    "sign of zero lost": ("rcp", "rcp.rn", r"rn\.f32 \$0, \$1;", "rn.f32 $0, $1; add.f32 $0, $0, 0f00000000;",
                          "sign of zero"),
    "halves swapped": ("f16x2_fma_clamp", "f16x2", r"(three, one;|\$3, one;)", r"\1 prmt.b32 $0, $0, $0, 0x1032;",
                       "positional"),
    "NaN propagated by max": ("f16x2_fma_clamp", "f16x2", r"max\.f16x2", "max.NaN.f16x2", "larger than 1 ulp"),
    "NaN propagated": ("f16x2_fma_clamp", "f16x2", r"max(\.f16x2.*\n\s*)min\.f16x2", r"max.NaN\1min.NaN.f16x2", "NaN"),
    "relu for max": ("f16x2_fma_clamp", "f16x2", r"fma\.rn(\.f16x2.*\n)\s*max.*\n", r"fma.rn.relu\1",
                     "larger than 1 ulp"),
    "wrong constant in one half": ("f16x2_fma_clamp", "f16x2", "0x3C003C00", "0x3C013C00", "1 ulp"),
    "wrong upper bound": ("f16x2_fma_clamp", "f16x2", "0x46004600", "0x46014601", "1 ulp"),
    "satfinite dropped": ("nvfp4_dequantize", "mul.e4m3x4", r"rn\.satfinite", "rn", "NaN"),
    "another format's scale": ("nvfp4_dequantize", "mul.e4m3x4", r"e4m3x4 \$0", "e5m2x4 $0", "larger than 1 ulp"),
    "padding read": ("nvfp4_dequantize", "over-f16", r"and\.b32 x0, \$1, 0x0f0f0f0f", "mov.b32 x0, $1", "sign"),
    "wrong lower bound": ("f16x2_fma_clamp", "f16x2", "0x00000000", "0x00010001", "flush to zero"),
}  # fmt: skip


SIDES = {"NaN": ("NaN for a number", "a number for NaN"), "flush to zero": ("flush to zero", "a number for zero")}
"""Classes whose first line says which side is special."""

NEWER = since(3, 9, "the variant is written in a version of the PTX ISA that it does not state")


@pytest.mark.parametrize(
    "mistake", [pytest.param(n, marks=NEWER if m[1] == "mul.e4m3x4" else ()) for n, m in IN_ASM.items()]
)
def test_a_mistake_in_asm_fails_and_is_named(tmp_path, monkeypatch, backend, mistake):
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")
    file, variant, old, new, difference = IN_ASM[mistake]
    found = run_planted(tmp_path, backend, file, variant, old, new, difference)
    assert found.verdict == "fail", [r.words for r in found.results if r.verdict == "error"]
    named = [r for r in found.results if difference in r.classes]
    assert named
    words = "|".join(SIDES.get(difference, (difference,)))
    counts = re.findall(rf"(?<!larger than )(?:{words}) (\d+)", named[0].message.splitlines()[0])
    assert sum(map(int, counts)) == named[0].classes[difference]
    assert "--ptx-replay=" in named[0].message


IN_TRITON = {
    "off by one": (r"0x3E800000", "0x3E800001"),
    "a tie to the odd code": (r">= 0x3F400000", "> 0x3F400000"),
    "the last tie": (r"> 0x40A00000", ">= 0x40A00000"),
    "nibbles exchanged": (r"nibble\(lo\) \| \(nibble\(hi\)", "nibble(hi) | (nibble(lo)"),
}


@pytest.mark.parametrize("mistake", IN_TRITON)
def test_a_mistake_in_triton_code_fails_and_is_named(tmp_path, backend, mistake):
    """The whole compiled kernel runs, as Triton compiles the wrong function."""
    old, new = IN_TRITON[mistake]
    difference = {"nibbles exchanged": "positional", "off by one": "flush to zero"}.get(mistake, "1 ulp")
    found = run_planted(tmp_path, backend, "cvt_e2m1x2", "triton-integers", old, new, difference)
    assert found.verdict == "fail"
    assert any(difference in r.classes and difference in r.message.splitlines()[0] for r in found.results)


MISSPELT = (
    ("cvt_e2m1x2", "cvt", "e2m1x2", "e2m1x3"),
    ("cvt_e2m1x2", "cvt", r"satfinite\.", "satfinit."),
    ("rcp", "rcp.rn", r"rcp\.rn\.f32 ", "rpc.rn.f32 "),
)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("mistake", "name", "target"), mixed(MISSPELT, ("emulator", "assembler"), ("sm_90a", "sm_100a"), of=2)
)
def test_a_misspelt_instruction_is_an_error_never_a_skip(tmp_path, mistake, name, target):
    """It is an error also on a target that lacks the right instruction."""
    file, variant, old, new = mistake
    path = planted(tmp_path, file, lambda text: re.subn(old, new, text, count=1), f'"{variant}": asm("')
    loaded = loader.load(path)[0]
    found = run_item(Item(loaded, variant, target, name), create(name), "quick")
    assert found.verdict == "error"
    assert re.search(new.strip().replace(".", r"\.?"), found.results[0].words)
    assert "\n" not in found.results[0].words


@pytest.mark.slow
def test_an_edit_without_effect_passes(tmp_path, monkeypatch, backend):
    """The control: the tests above fail because of the mistake, not because the file was edited."""
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")
    for variant, old, new in (("f16x2", r"fma\.rn\.", "fma.rn.relu."), ("f16x2", r"max\.f16x2 ", "max.f16x2  ")):
        assert run_planted(tmp_path, backend, "f16x2_fma_clamp", variant, old, new).verdict == "pass"
        tmp_path = tmp_path / "next"
        tmp_path.mkdir()
