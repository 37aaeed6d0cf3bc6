"""Elementwise Triton functions: right ones are proved for every thread, rare mistakes get a run that shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
pytest.importorskip("z3", reason="the extra `prove` is not installed")

from ptxdiff import Case, ptx
from ptxdiff.cli import main
from ptxdiff.model.load import LoadedCase
from ptxdiff.proving.elements import prove_elements
from ptxdiff.records import Proof, read
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32

CASES = """
import triton
import triton.language as tl

from ptxdiff import Case, plain
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F16, F32, U8, U32


@triton.jit
def widened(a, b):
    return a.to(tl.uint32) + (b << 3)


@triton.jit
def rarely_wrong(a, b):
    y = a.to(tl.uint32) + (b << 3)
    return tl.where((b == 0x9E3779F9) & (a == 7), y + 1, y)


@triton.jit
def both(a):
    return a ^ 1, a & 7


@triton.jit
def one_wrong(a):
    return a ^ 1, a & 3


@triton.jit
def square(a):
    return a * a


@triton.jit
def unfused(a):
    return a * a + a


@triton.jit
def guessed(a):
    return tl.exp2(a)


fusions = Case(
    inputs={"a": F32}, outputs={"y": F32}, reference=lambda a: arithmetic.add(arithmetic.mul(a, a), a),
    variants={"both": plain(unfused), "apart": plain(unfused, fusion=False)},
)
bytes_and_words = Case(
    inputs={"a": U8, "b": U32}, outputs={"y": U32}, reference=lambda a, b: (a + (b << 3)) & 0xFFFFFFFF,
    variants={"right": plain(widened), "rare": plain(rarely_wrong)},
)
outputs = Case(
    inputs={"a": U32}, outputs={"y": U32, "z": U32}, reference=lambda a: (a ^ 1, a & 7),
    variants={"right": plain(both), "wrong": plain(one_wrong)},
)
floats = Case(
    inputs={"a": F32}, outputs={"y": F32}, reference=lambda a: arithmetic.mul(a, a),
    variants={"right": plain(square), "guessed": plain(guessed)},
)
"""


def verdicts(folder: Path, *names: str) -> dict[str, Proof]:
    (folder / "some.py").write_text(CASES)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        main(["prove", *(f"some.py::{name}" for name in names), "--records", "out.jsonl", "--seconds", "30"])
    return {f"{p.case.rpartition('.')[2]}::{p.variant}": p for p in read(folder / "out.jsonl").proofs}


@pytest.fixture(scope="module")
def proofs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Proof]:
    return verdicts(tmp_path_factory.mktemp("elements"), "bytes_and_words")


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Proof]:
    return verdicts(tmp_path_factory.mktemp("more"), "outputs", "floats")


def test_a_right_function_is_proved(proofs: dict[str, Proof]) -> None:
    found = proofs["bytes_and_words::right"]
    assert (found.verdict, found.words, found.packs) == ("proved", "", (1,))
    assert found.program
    assert found.rules


def test_a_mistake_for_one_input_of_2_40_gets_a_run_that_shows_it(proofs: dict[str, Proof]) -> None:
    found = proofs["bytes_and_words::rare"]
    assert found.verdict == "counterexample"
    assert found.inputs == {"a": ("0x07",), "b": ("0x9e3779f9",)}


@pytest.mark.slow  # compiles four more kernels
def test_a_second_output_is_judged_too(more: dict[str, Proof]) -> None:
    assert more["outputs::right"].verdict == "proved"
    assert more["outputs::wrong"].verdict == "counterexample"
    assert more["outputs::wrong"].words.startswith("z: ")


@pytest.mark.slow  # compiles four more kernels
def test_approximate_instructions_are_never_proved_nor_accused(more: dict[str, Proof]) -> None:
    assert more["floats::right"].verdict == "proved"
    found = more["floats::guessed"]
    assert found.verdict == "not settled"
    assert found.words.startswith("approximate: ")


@pytest.mark.slow
def test_every_setting_of_fusion_is_proved(tmp_path: Path) -> None:
    """A run tries both; with Triton's default the sum is fused, and so is another one."""
    found = verdicts(tmp_path, "fusions")
    assert found["fusions::both"].verdict == "counterexample"
    assert found["fusions::apart"].verdict == "proved"


FMA = (Path(__file__).parents[2] / "cases" / "cuda_fma.ptx").read_text()
KERNELS = {
    "as it is": (FMA, "proved"),
    "another rounding": (FMA.replace("fma.rn.f32", "fma.rz.f32"), "counterexample"),
    "one element for all": (FMA.replace("add.s64 \t%rd9, %rd8, %rd6;", "add.s64 \t%rd9, %rd8, 0;"), "not settled"),
    "the next element": (FMA.replace("ld.global.f32 \t%f2, [%rd9];", "ld.global.f32 \t%f2, [%rd9+4];"), "not settled"),
    "another tensor": (FMA.replace("[%rd9]", "[%rd7]"), "not settled"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", KERNELS)
def test_an_elementwise_kernel_in_ptx(name: str) -> None:
    text, verdict = KERNELS[name]
    assert (text is FMA) or text != FMA
    case = Case(
        inputs={"x": F32, "y": F32, "z": F32}, outputs={"d": F32}, reference=arithmetic.fma,
        variants={"cuda": ptx(text, grid=lambda sizes: -(-sizes["n"] // 256), block=256,
                              parameters=["x", "y", "z", "d", "n"])},
    )  # fmt: skip
    found = prove_elements(LoadedCase(case, "case", "case", Path("case.py"), ""), "cuda", "sm_90a", seconds=20)
    assert found.verdict == verdict, found
