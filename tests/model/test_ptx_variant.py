"""Kernels in PTX as variants: how they are declared, compiled, emulated and identified."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from ptxdiff import Case, ptx
from ptxdiff.backends.assembler import AssemblerBackend
from ptxdiff.backends.driver import DriverError, checked
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.cli.list import instructions
from ptxdiff.jobs import Job, Setup
from ptxdiff.model.identity.definition import definition
from ptxdiff.model.variants import CaseError, PtxVariant, Variant
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32
from ptxdiff.triton.from_ptx import packed

FOLDER = Path(__file__).parents[2] / "cases"
TEXT = (FOLDER / "cuda_fma.ptx").read_text()
LAUNCH = {"grid": lambda sizes: -(-sizes["n"] // 128), "block": 128, "parameters": ["x", "y", "z", "d", "n"]}


def case(text=TEXT, **changes):
    return Case(
        inputs={"x": F32, "y": F32, "z": F32},
        outputs={"d": F32},
        reference=arithmetic.fma,
        variants={"cuda": ptx(text, **LAUNCH | changes)},
    )


def outcome(text=TEXT, backend=None, target="sm_90a", count=300, **changes):
    made = case(text, **changes)
    inputs = {n: np.random.default_rng(1).normal(size=count).astype(np.float32).view("u4") for n in made.inputs}
    setup = Setup(shape=(count,))
    job = Job(made, "case", Path(__file__), "cuda", made.variants["cuda"], target, setup, inputs)
    return (backend or EmulatorBackend()).run(job)


def test_it_runs_and_the_wrong_instruction_gives_other_bits():
    right = outcome()
    assert (right.status, right.findings) == ("ran", ())
    wrong = outcome(TEXT.replace("fma.rn.f32", "fma.rz.f32"))
    assert (right.outputs["d"] != wrong.outputs["d"]).any()
    assert right.identity != wrong.identity


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.replace("setp.ge.s32", "setp.gt.s32"), "out of bounds"),
        (TEXT.replace("%p1, %r1, %r2", "%p1, %r1, 299"), "never written"),
        (TEXT.replace("st.global.f32 	[%rd13]", "st.global.f32 	[%rd7]"), "x"),
    ],
)
def test_an_access_outside_the_tensors_is_a_finding(text, words):
    found = outcome(text)
    assert words in " ".join(found.findings)


def test_it_is_assembled_for_later_targets_and_not_for_earlier_ones():
    assert outcome(backend=AssemblerBackend("never")).status == "assembled"
    later = TEXT.replace("sm_75", "sm_90a")
    assert outcome(later).status == "ran"
    for backend in (EmulatorBackend(), AssemblerBackend("never")):
        refused = outcome(later, backend, target="sm_100a")
        assert (refused.status, refused.words) == ("unsupported", "the PTX is for sm_90a, which sm_100a does not run")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parameters": ["x", "y", "z", "d"]}, "has 5 parameters, but parameters= gives 4"),
        ({"entry": "other"}, "has no kernel 'other'; it has fused"),
        ({"text": "// nothing\n"}, "has no kernel"),
        ({"text": TEXT + TEXT[TEXT.index(".visible") :].replace("fused", "two")}, "2 kernels, fused, two"),
        ({"text": TEXT.replace("\n{", "\n.reqntid 64\n{", 1)}, r"demands .reqntid 64, but block= is \(128, 1, 1\)"),
    ],
)
@pytest.mark.parametrize("backend", [EmulatorBackend(), AssemblerBackend("never")], ids=["emulator", "assembler"])
def test_a_variant_that_cannot_be_launched_is_an_error_of_every_backend(change, words, backend):
    change = dict(change)
    found = outcome(change.pop("text", TEXT), backend, **change)
    assert found.status == "error"
    assert re.search(words, found.words), found.words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parameters": ["x", "y", "z", "d", "m"]}, "'m'"),
        ({"parameters": ["x", "y", "d", "n"]}, "does not name 'z'"),
        ({"parameters": "x"}, "write a list"),
        ({"block": 100}, "whole warps"),
        ({"block": (1, 2, 3, 4)}, "one to three whole numbers"),
        ({"text": "missing.ptx"}, "missing.ptx cannot be read"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(change, words):
    change = dict(change)
    with pytest.raises(CaseError, match=words):
        case(change.pop("text", TEXT), **change)


def test_a_relative_path_starts_at_the_file_that_names_it(tmp_path):
    (tmp_path / "k.ptx").write_text(TEXT)
    source = "from ptxdiff import ptx\nv = ptx('k.ptx', grid=1, block=32, parameters=['x'])\n"
    (tmp_path / "k.py").write_text(source)
    names = {}
    exec(compile(source, str(tmp_path / "k.py"), "exec"), names)
    assert names["v"].text == TEXT


@pytest.mark.parametrize(
    "change",
    [{"block": 64}, {"grid": 1}, {"shared": 16}, {"text": TEXT.replace(".rn", ".rz")}, {"meta": {"m": 1}}],
    ids=["block", "grid", "shared", "text", "meta"],
)
def test_its_definition_changes_with_each_part(change):
    change = dict(change)
    one, other = case(), case(change.pop("text", TEXT), **change)
    parts = [definition(c, c.variants["cuda"]) for c in (one, other)]
    assert parts[0] != parts[1]


def test_its_instructions_are_found_by_name():
    made = case()
    assert {"fma.rn.f32", "setp.ge.s32"} <= instructions(made, made.variants["cuda"])


def test_parameters_are_packed_as_the_driver_expects_them():
    module = ".entry k(.param .u64 .ptr .global .align 1 a, .param .f32 b, .param .align 8 .b8 c[3], .param .u8 d) {}"
    assert packed(module, "k", [2**40, 1.5, b"abc", -1]) == (
        (2**40).to_bytes(8, "little"), b"\0\0\xc0\x3f", b"abc", b"\xff",
    )  # fmt: skip
    for values, words in (([0, 1.5, b"ab", 0], "c has 3 bytes, but 2"), ([0, 1.5, b"abc", 256], "d has 1 bytes; 256")):
        with pytest.raises(ValueError, match=words):
            packed(module, "k", values)


def test_a_status_of_the_driver_is_an_error_in_words():
    assert checked("cuLaunchKernel", (0, 7)) == [7]
    with pytest.raises(DriverError, match="cuLaunchKernel: 719"):
        checked("cuLaunchKernel", (719,))


def test_a_variant_has_no_field_that_its_definition_leaves_out():
    covered = {"text", "entry", "block", "shared", "parameters", "grid", "meta", "num_warps"}
    assert {f.name for f in dataclasses.fields(PtxVariant)} - {f.name for f in dataclasses.fields(Variant)} == covered
