"""Which forms are believed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ptxdiff.conformance import taught, teaching
from ptxdiff.emulator.isa.approximate_half import ex2_half
from ptxdiff.emulator.isa.compare import ordered
from ptxdiff.emulator.isa.convert_float import cvt_bf16_f32, cvt_bf16x2_f32, cvt_f16_f32, cvt_f16x2_f32, cvt_tf32_f32
from ptxdiff.emulator.isa.convert_integer import cvt_f32_integer
from ptxdiff.emulator.isa.convert_integral import cvt_integer_f32
from ptxdiff.emulator.isa.convert_narrow import (
    cvt_bf16x2_narrow_scaled,
    cvt_f16x2_ue5m3x2,
    cvt_narrow_bf16x2,
    cvt_narrow_bf16x2_scaled,
    cvt_narrow_f16x2,
    cvt_narrow_f16x2_scaled,
    cvt_narrow_f32,
    cvt_narrow_f32_scaled,
)
from ptxdiff.emulator.isa.convert_pack import cvt_pack_onto
from ptxdiff.emulator.isa.convert_scale import (
    cvt_s2f6x2_bf16x2_scaled,
    cvt_s2f6x2_f32_scaled,
    cvt_ue5m3x2_bf16x2,
    cvt_ue5m3x2_bf16x2_scaled,
    cvt_ue5m3x2_f16x2,
    cvt_ue5m3x2_f16x2_scaled,
    cvt_ue5m3x2_f32,
    cvt_ue5m3x2_f32_scaled,
    cvt_ue8m0x2_bf16x2,
)
from ptxdiff.emulator.isa.convert_stochastic import cvt_bf16x2_f32_rs
from ptxdiff.emulator.isa.float32 import add_f32, add_f32x2, mul_f32, mul_f32x2
from ptxdiff.emulator.isa.float_extremes import max_halves
from ptxdiff.emulator.isa.float_mixed import add_cut, add_mixed_pair, fma_mixed_pair, sub_cut
from ptxdiff.emulator.isa.half import mul_halves
from ptxdiff.emulator.isa.logic import by_table
from ptxdiff.emulator.isa.modifiers import RN, RZ
from ptxdiff.emulator.numeric.bits import below64, clz64, shl64, shr64, sign_extend, wrap64
from ptxdiff.emulator.text.types import NARROW
from ptxdiff.sass import machine, rows
from ptxdiff.triton.targets import assembler, probe, tool
from ptxdiff.triton.unread import unread
from tests.support.sass.assembly import plant, plant_definition

TARGET = "sm_90a"
CODES = {n.name: n.code for n in NARROW if n.code is not None}


def _ledger(tmp_path, monkeypatch, **changes):
    entry = {"target": TARGET, "form": "IADD3", "agreed": 2, "differed": 0, "digest": taught.digest("IADD3")} | changes
    path = tmp_path / "taught.jsonl"
    path.write_text(json.dumps(entry) + "\n")
    monkeypatch.setattr(taught, "PATH", path)
    return taught.unsettled(["IADD3"], TARGET)


@pytest.mark.parametrize(
    "changes",
    [{"agreed": 1}, {"differed": 1}, {"digest": "00000000"}, {"digest": ""}, {"target": "sm_80"}, {"form": "IADD"}],
)
def test_a_form_is_believed_only_with_contexts_agreement_and_its_digest(tmp_path, monkeypatch, changes) -> None:
    assert _ledger(tmp_path, monkeypatch) == []
    other = tmp_path / "other"
    other.mkdir()
    assert _ledger(other, monkeypatch, **changes) == ["IADD3"]


def test_a_form_that_no_row_has_is_never_believed() -> None:
    assert taught.unsettled(["FOO"], TARGET) == ["FOO"]


def test_the_ledger_is_of_this_table() -> None:
    entries = [json.loads(line) for line in taught.PATH.read_text().splitlines()]
    assert len(entries) > 1000
    stale = [e["form"] for e in entries if e["digest"] != taught.digest(e["form"])]
    assert stale == [], "teach these forms again"
    assert not [e for e in entries if e["differed"]]


def _teach(names: list[str], target: str = TARGET) -> tuple[dict[str, teaching.Lesson], dict[str, str]]:
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    if reason := unread(target):
        pytest.skip(reason)
    lessons: dict[str, teaching.Lesson] = {}
    version = probe()[target].ptx_version
    complaints = teaching.teach(names, target, assembler(target).path, str(tool("nvdisasm")), version, lessons)
    return lessons, complaints


def test_ptxas_teaches_forms() -> None:
    lessons, complaints = _teach(["mul.lo.s32", "fma.rn.f32"])
    assert complaints == {}
    assert len(lessons["FFMA{.FTZ}{.rnd}{.SAT} ftz=0,rnd=0,sat=0"].agreed) == 4


def test_a_planted_wrong_row_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = [
        rows.InstructionRow(r.name, r.opcodes, r.fixed, r.flags, r.choices, r.shapes, _twice_rounded)
        for r in rows.ROWS["FFMA"]
    ]
    plant(monkeypatch, "FFMA", planted)
    lessons, complaints = _teach(["fma.rn.f32"])
    assert any("differ" in words for words in complaints.values())
    assert lessons["FFMA{.FTZ}{.rnd}{.SAT} ftz=0,rnd=0,sat=0"].differed


BLACKWELL = {
    "cvt.rs.satfinite.e4m3x4.f32": "F2FP.SATFINITE{.RELU}.form.F32.PACK_AB_MERGE_C.RS",
    "cvt.rs.satfinite.e2m1x4.f32": "F2FP.SATFINITE{.RELU}.form.F32.PACK_AB_MERGE_C.RS",
    "cvt.rn.scaled::n2::ue8m0.bf16x2.e2m1x2": "F2FP{.SATFINITE}{.RELU}.BF16.E2M1.UNPACK_B",
    "fma.rn.f32.f16": "FHFMA{.type}{.rnd}{.SAT}",
    "dp2a.hi.s32.u32": "IDP.2A.part.first.second",
    "ex2.approx.f16x2": "MUFU.EX2.type",
    "add.sat.s32": "PLOP3.LUT",
    "cvt.rn.f16.s8": "I2F.F16.byte{.rnd}",
}
"""Forms of PTX, and a row that they teach on a Blackwell target."""


@pytest.mark.slow(reason="compiles the definitions of many forms")
def test_forms_of_blackwell_are_taught_by_ptxas() -> None:
    lessons, complaints = _teach(list(BLACKWELL), "sm_100a")
    assert complaints == {}
    taught_rows = {form.split(" ")[0] for form, lesson in lessons.items() if len(lesson.agreed) >= taught.CONTEXTS}
    assert set(BLACKWELL.values()) <= taught_rows


@pytest.mark.slow(reason="compiles definitions")
@pytest.mark.parametrize(("name", "opcode"), [("cvt.rs.satfinite.e2m1x4.f32", "F2FP"), ("add.sat.s32", "PLOP3")])
def test_a_planted_mistake_in_one_of_them_differs(name: str, opcode: str, monkeypatch) -> None:
    planted = [
        rows.InstructionRow(r.name, r.opcodes, r.fixed, r.flags, r.choices, r.shapes, _other_operand(r.definition))
        for r in rows.ROWS[opcode]
        if r.name == BLACKWELL[name]
    ]
    others = [r for r in rows.ROWS[opcode] if r.name != BLACKWELL[name]]
    plant(monkeypatch, opcode, [*others, *planted])
    lessons, complaints = _teach([name], "sm_100a")
    assert any("differ" in words for words in complaints.values())
    assert any(lesson.differed for form, lesson in lessons.items() if form.startswith(BLACKWELL[name]))


def _other_operand(right):
    """A definition that takes its operands from wrong places."""
    return _plop3_of_two if right.__name__ == "plop3" else _narrow_as_halves


def _plop3_of_two(a: int, b: int, c: int, lut: int, lut2: int, result: int) -> int:
    return by_table(c, b, c, lut if result == 0 else lut2) & 1


def _narrow_as_halves(a: int, b: int, c: int, relu: int, form: int) -> int:
    return cvt_bf16x2_f32_rs(a, b, c, relu, 0)


WIDE_SUMS = {
    "IMAD.WIDE.X": "mul.wide.s32 and add with carry u64",
    "IMAD.WIDE.X~c": "mul.wide.s32 and sub with carry u32",
    "IMAD.WIDE.U32.X~c": "mul.wide.u32 and sub with carry u64",
}
"""Rows for products, sums and carries, and a sequence that teaches each."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("row", WIDE_SUMS)
def test_a_planted_mistake_in_a_wide_sum_with_a_carry_differs(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lessons, complaints = _teach([WIDE_SUMS[row]])
    assert complaints == {}
    assert lessons[row].agreed
    (right,) = (r.definition for r in rows.ROWS["IMAD"] if r.name == row)
    for mistake in (_without_carry, _of_the_other_sign):
        plant_definition(monkeypatch, "IMAD", row, mistake(right))
        lessons, _ = _teach([WIDE_SUMS[row]])
        assert lessons[row].differed, mistake


CARRIES_OUT = {
    "IMAD.WIDE-c+carry": "carry of mul.wide.s32 and sub",
    "IMAD.WIDE.X+carry": "carries of mul.wide.s32 and {}",
    "IMAD.WIDE.U32.X~c+carry": "carries of mul.wide.u32 and sub",
}
"""Rows for products with a carry out, and sequences that teach each."""


@pytest.mark.parametrize("row", CARRIES_OUT)
def test_a_planted_mistake_in_the_carry_of_a_wide_product_differs(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(dict.fromkeys(CARRIES_OUT[row].format(operation) for operation in ("add", "sub")))
    names += [f"last carry{n[7:]}" for n in names if n.startswith("carries")]
    lessons, complaints = _teach(names)
    assert complaints == {}
    assert len(lessons[row].agreed) >= taught.CONTEXTS
    plant_definition(monkeypatch, "IMAD", row, _sum_and_sign if "X" in row else _difference_and_sign)
    lessons, _ = _teach(names)
    assert lessons[row].differed


def _sum_and_sign(a: int, b: int, c: int, d: int, result: int) -> int:
    total = wrap64(wrap64(a * b) + c + d)
    return total if result == 0 else (1 if total < 0 else 0)


def _difference_and_sign(a: int, b: int, c: int, result: int) -> int:
    total = wrap64(a * b + c)
    return total if result == 0 else (1 if total < 0 else 0)


def _without_carry(right):
    return _signed_sum if right.__name__ == "imad_wide_signed_x" else _unsigned_sum


def _signed_sum(a: int, b: int, c: int, d: int) -> int:
    return wrap64(a * b + c)


def _unsigned_sum(a: int, b: int, c: int, d: int) -> int:
    return wrap64(wrap64(a * b) + c)


def _of_the_other_sign(right):
    return _unsigned_of_signed if right.__name__ == "imad_wide_signed_x" else _signed_of_unsigned


def _unsigned_of_signed(a: int, b: int, c: int, d: int) -> int:
    return wrap64(wrap64((a & 0xFFFFFFFF) * (b & 0xFFFFFFFF)) + c + d)


def _signed_of_unsigned(a: int, b: int, c: int, d: int) -> int:
    return wrap64(sign_extend(a, 32) * sign_extend(b, 32) + c + d)


def test_a_planted_mistake_in_a_packed_conversion_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    name, sequence = "F2IP.kind.F32{.rnd}.NTZ", ["cvt.rzi and cvt.pack s8"]
    lessons, complaints = _teach(sequence)
    assert complaints == {}
    assert any(form.startswith(name) and lesson.agreed for form, lesson in lessons.items())
    for mistake in (_exchanged_bytes, _unsigned_bytes, _without_the_third):
        plant_definition(monkeypatch, "F2IP", name, mistake)
        lessons, _ = _teach(sequence)
        assert any(form.startswith(name) and lesson.differed for form, lesson in lessons.items()), mistake


def _exchanged_bytes(a: int, b: int, c: int, kind: int, rnd: int) -> int:
    upper, lower = cvt_integer_f32(b, rnd, 0, 8, kind), cvt_integer_f32(a, rnd, 0, 8, kind)
    return c << 16 | (upper & 0xFF) << 8 | lower & 0xFF


def _unsigned_bytes(a: int, b: int, c: int, kind: int, rnd: int) -> int:
    upper, lower = cvt_integer_f32(a, rnd, 0, 8, 1 - kind), cvt_integer_f32(b, rnd, 0, 8, 1 - kind)
    return c << 16 | (upper & 0xFF) << 8 | lower & 0xFF


def _without_the_third(a: int, b: int, c: int, kind: int, rnd: int) -> int:
    upper, lower = cvt_integer_f32(a, rnd, 0, 8, kind), cvt_integer_f32(b, rnd, 0, 8, kind)
    return (upper & 0xFF) << 8 | lower & 0xFF


def test_a_few_forms_bring_each_machine_instruction_into_some_kernels() -> None:
    if not probe()[TARGET].available:
        pytest.skip(f"no ptxas for {TARGET}")
    names = ["add.u32", "add.s32", "fma.rn.f32", "fma.rn.ftz.f32"]
    assert teaching.few(names, TARGET, 1) == ["add.u32", "fma.rn.f32", "fma.rn.ftz.f32"]


@pytest.mark.slow
def test_what_is_before_each_kernel_of_sm_87_teaches_nothing() -> None:
    """Its comparison decides no bit. The one of `setp` is another, and does."""
    lessons: dict[str, teaching.Lesson] = {}
    tools = assembler("sm_87").path, str(tool("nvdisasm"))
    given = "sm_87", *tools, probe()["sm_87"].ptx_version, lessons
    assert teaching.teach(["popc.b32"], *given) == {}
    assert "POPC" in lessons
    assert not any(form.startswith("ISETP") for form in lessons)
    assert teaching.teach(["set.ne.u32.u32"], *given) == {}
    assert "ISETP.cmp.U32.bool bool=0,cmp=1" in lessons


def test_lines_that_hold_stay_where_some_forms_teach_again(monkeypatch) -> None:
    if not probe()[TARGET].available:
        pytest.skip(f"no ptxas for {TARGET}")
    form = "FFMA{.FTZ}{.rnd}{.SAT} ftz=0,rnd=0,sat=0"
    entry = {"target": TARGET, "form": form, "agreed": 99, "differed": 0, "digest": taught.digest(form)}
    other = entry | {"form": "IADD3", "agreed": 7, "digest": taught.digest("IADD3")}
    old = entry | {"form": "BREV", "digest": "00000000"}
    before = "".join(f"{json.dumps(e)}\n" for e in (entry, other, old))
    found = {e["form"]: e for e in _again(before)}
    assert (found[form], found["IADD3"]) == (entry, other)
    assert "BREV" not in found  # its definition is another one now
    plant(monkeypatch, "FFMA", [
        rows.InstructionRow(r.name, r.opcodes, r.fixed, r.flags, r.choices, r.shapes, _twice_rounded)
        for r in rows.ROWS["FFMA"]
    ])  # fmt: skip
    assert {e["form"]: e for e in _again(before)}[form]["differed"]


def _again(before: str) -> list[dict[str, object]]:
    text = teaching.taught_again("forms", TARGET, before, lambda words: None, None, ["fma.rn.f32"])
    return [json.loads(line) for line in text.splitlines()]


def _twice_rounded(a: int, b: int, c: int, rnd: int, ftz: int, sat: int) -> int:
    return add_f32(mul_f32(a, b, rnd, ftz, sat), c, rnd, ftz, sat)


def test_an_ignored_modifier_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that took .FTZ and did nothing with it."""
    planted = [
        rows.InstructionRow(r.name, r.opcodes, r.fixed, r.flags, r.choices, r.shapes, _without_flush)
        for r in rows.ROWS["FADD"]
    ]
    plant(monkeypatch, "FADD", planted)
    lessons, _ = _teach(["add.ftz.f32"])
    assert lessons["FADD{.FTZ}{.rnd}{.SAT} ftz=1,rnd=0,sat=0"].differed


def _without_flush(a: int, b: int, rnd: int, ftz: int, sat: int) -> int:
    return add_f32(a, b, rnd, 0, sat)


def test_inputs_have_edges_and_drawn_values() -> None:
    task = next(teaching.tasks(["add.f32"], "registers", TARGET))
    assert len(task.columns[0]) == teaching.EDGES + teaching.DRAWN
    assert (task.columns[0] == 0x7F800000).any()
    assert len(np.unique(task.columns[0])) > 50


class _Device:
    """A stand-in for a GPU, whose kernels leave `words` in each output."""

    def __init__(self, words: int) -> None:
        self.words, self.memory = words, {}

    def load(self, cubin: bytes) -> bytes:
        return cubin

    def kernel(self, module: bytes, name: str) -> str:
        return name

    def allocate(self, size: int) -> int:
        self.memory[len(self.memory)] = np.zeros(size, np.uint8)
        return len(self.memory) - 1

    def upload(self, pointer: int, array: np.ndarray) -> None:
        self.memory[pointer] = np.array(array)

    def start(self, kernel: str, arguments: list[int], blocks: int, threads: int) -> None:
        output, *inputs = (self.memory[a] for a in arguments)
        output[:] = inputs[0] + inputs[1] + self.words

    def download(self, array: np.ndarray, pointer: int) -> None:
        array[:] = self.memory[pointer]

    def free(self, pointer: int) -> None:
        pass


@pytest.mark.parametrize(("words", "confirmed"), [(0, True), (1, False)])
def test_a_device_confirms_a_form_or_refutes_it(words: int, confirmed: bool, tmp_path, monkeypatch) -> None:
    if not probe()[TARGET].available:
        pytest.skip(f"no ptxas for {TARGET}")
    lessons: dict[str, teaching.Lesson] = {}
    tools = assembler(TARGET).path, str(tool("nvdisasm")), probe()[TARGET].ptx_version
    complaints = teaching.teach(["add.u32"], TARGET, *tools, lessons, _Device(words))
    path = tmp_path / "taught.jsonl"
    path.write_text("\n".join(teaching.lines(lessons, TARGET, "forms")))
    monkeypatch.setattr(taught, "PATH", path)
    assert all(bool(lesson.confirmed) == confirmed for lesson in lessons.values())
    several = [form for form, lesson in lessons.items() if len(lesson.agreed) >= taught.CONTEXTS]
    assert several
    assert taught.unsettled(several, TARGET) == ([] if confirmed else sorted(several))
    assert any("the device gives other words" in said for said in complaints.values()) != confirmed


def test_sequences_teach_what_ptxas_makes_of_several_instructions() -> None:
    lessons, complaints = _teach(["address u64.u32 2", "max max u32", "two e4m3x2"])
    assert complaints == {}
    assert "LEA.HI.X" in lessons


@pytest.mark.slow
def test_min_and_max_of_float64_are_taught_whatever_is_chosen_of_equal_numbers() -> None:
    lessons, complaints = _teach(["min.f64", "max.f64"])
    assert complaints == {}
    assert all(len(lessons[f"DSETP.which.AND which={k}"].agreed) >= taught.CONTEXTS for k in (0, 1))


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("target", "sequence", "opcode", "name", "mistake"),
    [
        (TARGET, "upper half of mul.hi.u64", "IMAD", "IMAD.HI.U32.X", "_carry_to_the_high_word"),
        (TARGET, "max of three NaN.bf16x2", "VHMNMX", "VHMNMX{.type}{.NAN}", "_numbers_before_nans"),
        (TARGET, "borrow of w-$2, w shl 4", "LEA", "LEA-b", "_carry_where_it_borrows"),
        (TARGET, "sub of shl 12 with carries", "LEA", "LEA.X~b", "_shift_without_carry"),
        (TARGET, "borrow of shr u32 16", "LEA", "LEA.HI-b+carry", "_shifted_carry_where_it_borrows"),
        (TARGET, "sum and carry of shr u32 16", "LEA", "LEA.HI", "_high_word_without_carry"),
        (TARGET, "difference and borrow of shl b32 16", "LEA", "LEA-b", "_difference_of_no_shift"),
        ("sm_120a", "sub of three u64 and their carries", "IADD", "IADD.64.X+carry", "_sum_that_only_gives_a_carry"),
        (TARGET, "max.s16x2 with predicates", "VIMNMX", "VIMNMX.kind+predicates", "_predicates_of_the_second"),
        (TARGET, "min.u16x2 with predicates", "VIMNMX", "VIMNMX.kind+predicates", "_exchanged_predicates"),
        ("sm_100a", "four e2m1x2 from f32 as 3120", "F2FP", "F2FP.SATFINITE{.RELU}.E2M1{.F32}.PACK_AB_MERGE_C",
         "_codes_in_halves"),
        ("sm_100a", "two scaled s2f6x2 from f32", "F2FP", "F2FP.SATFINITE{.RELU}.S2_6.F32.PACK_AB_MERGE_C",
         "_nothing_merged"),
        ("sm_100a", "two scaled s2f6x2 from bf16x2", "F2FP", "F2FP.SATFINITE{.RELU}.S2_6.BF16.UNPACK_B_MERGE_C",
         "_exchanged_scales"),
        ("sm_103a", "ex2.approx.f16x2", "MUFU", "MUFU.EX2.x2", "_exchanged_halves"),
        ("sm_120a", "sub.sat.s8x4", "VIADD", "VIADD.S8x4.ISAT-difference", "_bytes_negated_before"),
        ("sm_120a", "sub.sat.u8x4 of 0x80808080", "UVIADD", "UVIADD.kind", "_carry_between_bytes"),
        ("sm_120a", "add.sat.u16x2", "VIADD", "VIADD.16x2.ISAT", "_one_word"),
        ("sm_120a", "max.relu.s8x4", "VIMNMX", "VIMNMX.S8x4.RELU", "_negative_bytes"),
        ("sm_80", "cvt.rn.satfinite.f16x2.f32", "F2FP", "F2FP.SATFINITE{.RELU}.PACK_AB{.rnd}", "_with_infinities"),
        (TARGET, "max.s16x2 with the lower predicate", "VIMNMX", "VIMNMX.kind+predicate", "_upper_predicate"),
        ("sm_100a", "min.u16x2 with the lower predicate", "VIMNMX", "VIMNMX.kind+predicate", "_upper_predicate"),
        ("sm_100a", "add.rn.f32x2 of another exchanged", "FADD2", "FADD2.exchanged{.FTZ}{.rnd}", "_exchanged_sums"),
        ("sm_100a", "mul.rn.f32x2 of w, c, c 0xC0490FDB3F8CCCCD", "FMUL2", "FMUL2.one_negated{.FTZ}{.rnd}",
         "_upper_sign_kept"),
        ("sm_100a", "mul.rn.f32x2 exchanged of w, c, c 0x3FB504F3BF317218", "FMUL2",
         "FMUL2.exchanged_and_negated{.FTZ}{.rnd}", "_upper_sign_kept"),
        ("sm_100a", "add.rz.f32x2 exchanged of w, c, c 0x3FB504F3BF317218", "FADD2",
         "FADD2.exchanged.one_negated{.FTZ}{.rnd}", "_exchanged_sums"),
        ("sm_90a", "e4m3x2 of f16x2 0xC2F77B81", "F2FP", "F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C#",
         "_other_code"),
        ("sm_100a", "e5m2x2 of bf16x2 0xC2F77B81 and another", "F2FP",
         "F2FP.SATFINITE.form{.RELU}.BF16.UNPACK_B_MERGE_C#", "_merged_below"),
        ("sm_100a", "ue8m0x2 by rz of bf16x2 0xC2F77B81", "F2FP", "F2FP{.SATFINITE}.E8.BF16.UNPACK_B_MERGE_C.rnd#",
         "_exchanged_codes"),
        (TARGET, "upper word of mul.wide.s32 and sub", "IMAD", "IMAD.HI-c", "_high_words_apart"),
        (TARGET, "upper word of mul.wide.u32 and sub of a word", "IMAD", "IMAD.HI.U32-c", "_high_words_apart"),
        ("sm_121a", "upper word of mul.wide.u32 and sub", "IMAD", "IMAD.HI.U32-c", "_high_word_of_signed"),
        ("sm_121a", "cvt.pack s8 of $2 onto c from 0x0", "I2IP", "I2IP.kind.S32.SAT.H1", "_exchanged_of_upper"),
        ("sm_90a", "cvt.pack u8 of n onto n from 0x12345678", "I2IP", "I2IP.kind.S32.SAT.H1", "_nothing_above"),
        ("sm_121a", "vabsdiff4.u32 of 0 and 0x80FF0001", "UVIMNMX", "UVIMNMX.U8x4", "_other_extreme"),
        ("sm_120a", "vabsdiff4.u32 of 0 and 0x80FF0001", "UVIMNMX", "UVIMNMX.U8x4", "_signed_extreme"),
        ("sm_107a", "set.gt.u32.u32", "VISET", "VISET.BM.cmp.U32", "_one"),
        ("sm_107a", "set.lt.s16x2", "VISET", "VISET.BM.cmp.kind", "_mask_of_words"),
        ("sm_107a", "cvt.rz.satfinite.pzo.e4m3x2.f32", "F2FP",
         "F2FP.SATFINITE{.RELU}.form.F32.PACK_AB_MERGE_C{.rnd}.PZO", "_to_nearest"),
        ("sm_107a", "cvt.rn.satfinite.pzo.e5m2x2.f16x2", "F2FP",
         "F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C{.rnd}.PZO", "_with_negative_zeros"),
        ("sm_107a", "cvt.rz.satfinite.e2m3x2.bf16x2", "F2FP", "F2FP.SATFINITE{.RELU}.form.BF16.UNPACK_B_MERGE_C.RZ",
         "_with_negative_zeros"),
        ("sm_107a", "cvt.rp.ue5m3x2.f32", "F2FP", "F2FP{.SATFINITE}.UE5M3.F32.PACK_AB_MERGE_C{.rnd}",
         "_exchanged_ue5m3"),
        ("sm_107a", "cvt.rz.satfinite.pzo.f16x2.f32", "F2FP", "F2FP{.SATFINITE}{.RELU}.F16.F32.PACK_AB{.rnd}.PZO",
         "_f16_with_negative_zeros"),
        ("sm_107a", "cvt.rn.satfinite.pzo.bf16x2.f32", "F2FP", "F2FP{.SATFINITE}{.RELU}.BF16.F32.PACK_AB{.rnd}.PZO",
         "_bf16_with_negative_zeros"),
        ("sm_107a", "cvt.rn.pzo.f16.f32", "F2FP", "F2FP{.SATFINITE}{.RELU}.F16.F32.MERGE_C{.rnd}.PZO",
         "_one_f16_with_a_negative_zero"),
        ("sm_107a", "cvt.rz.pzo.bf16.f32", "F2FP", "F2FP{.SATFINITE}{.RELU}.BF16.F32.MERGE_C{.rnd}.PZO",
         "_one_bf16_with_a_negative_zero"),
        ("sm_107a", "cvt.rz.satfinite.pzo.tf32.f32", "F2FP", "F2FP{.SATFINITE}{.RELU}.TF32.F32.PACK_B{.rnd}.PZO",
         "_tf32_with_a_negative_zero"),
        ("sm_107a", "cvt.rz.satfinite.scaled::n2::ue8m0.s2f6x2.f32", "F2FP",
         "F2FP.SATFINITE{.RELU}.S2_6.F32.PACK_AB_MERGE_C.RZ", "_exchanged_scales_of_two"),
        ("sm_107a", "cvt.rz.satfinite.s2f6x2.f32", "F2FP", "F2FP.SATFINITE{.RELU}.S2_6.F32.PACK_AB_MERGE_C.RZ",
         "_s2f6_to_nearest"),
        ("sm_107a", "cvt.rz.satfinite.scaled::n2::ue8m0.s2f6x2.bf16x2", "F2FP",
         "F2FP.SATFINITE{.RELU}.S2_6.BF16.UNPACK_B_MERGE_C.RZ", "_exchanged_scales"),
        ("sm_107a", "cvt.rz.satfinite.ue5m3x2.f16x2", "F2FP", "F2FP{.SATFINITE}.UE5M3.F16.UNPACK_B_MERGE_C{.rnd}",
         "_ue5m3_of_exchanged_f16"),
        ("sm_107a", "cvt.rp.ue5m3x2.bf16x2", "F2FP", "F2FP{.SATFINITE}.UE5M3.BF16.UNPACK_B_MERGE_C{.rnd}",
         "_ue5m3_to_nearest"),
        ("sm_107a", "cvt.rn.f16x2.ue5m3x2", "F2FP", "F2FP.F16.UE5M3.UNPACK_B", "_exchanged_f16"),
        ("sm_107a", "cvt.rn.satfinite.scaled::n2::ue8m0.bf16x2.ue5m3x2", "F2FP",
         "F2FP{.SATFINITE}.BF16.UE5M3.UNPACK_B", "_exchanged_scales_of_ue5m3"),
        ("sm_107a", "mad.hi.cc.s32", "IMAD", "IMAD.HI-c+carry", "_borrow_in_the_place_of_the_carry"),
        ("sm_107a", "cvt.rz.satfinite.scaled::n1::ue8m0.e4m3x2.f32", "F2FP",
         "F2FP.SATFINITE{.RELU}.form.F32.PACK_AB_MERGE_C.SCALE_BY_C{.rnd}{.PZO}", "_f32_by_one"),
        ("sm_107a", "cvt.rn.satfinite.scaled::n1::ue8m0.e2m1x2.f32", "F2FP",
         "F2FP.SATFINITE{.RELU}.E2M1.F32.PACK_AB_MERGE_C.SCALE_BY_C{.rnd}{.PZO}", "_f32_by_one"),
        ("sm_107a", "cvt.rn.satfinite.pzo.scaled::n1::ue8m0.e2m3x2.f16x2", "F2FP",
         "F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C.SCALE_BY_C{.rnd}{.PZO}", "_exchanged_by_a_scale"),
        ("sm_107a", "cvt.rz.satfinite.scaled::n1::ue8m0.e2m1x2.f16x2", "F2FP",
         "F2FP.SATFINITE{.RELU}.E2M1.F16.UNPACK_B_MERGE_C.SCALE_BY_C{.rnd}{.PZO}", "_exchanged_by_a_scale"),
        ("sm_107a", "cvt.rz.satfinite.relu.scaled::n1::ue8m0.e5m2x2.bf16x2", "F2FP",
         "F2FP.SATFINITE{.RELU}.form.BF16.UNPACK_B_MERGE_C.SCALE_BY_C{.rnd}{.PZO}", "_by_a_scale_to_nearest"),
        ("sm_107a", "cvt.rz.satfinite.scaled::n1::ue8m0.e2m1x2.bf16x2", "F2FP",
         "F2FP.SATFINITE{.RELU}.E2M1.BF16.UNPACK_B_MERGE_C.SCALE_BY_C{.rnd}{.PZO}", "_by_a_scale_to_nearest"),
        ("sm_107a", "cvt.rn.scaled::n1::ue8m0.ue5m3x2.f32", "F2FP",
         "F2FP{.SATFINITE}.UE5M3.F32.PACK_AB_MERGE_C.SCALE_BY_C{.rnd}", "_ue5m3_of_f32_by_one"),
        ("sm_107a", "cvt.rz.satfinite.scaled::n1::ue8m0.ue5m3x2.f16x2", "F2FP",
         "F2FP{.SATFINITE}.UE5M3.F16.UNPACK_B_MERGE_C.SCALE_BY_C{.rnd}", "_ue5m3_of_f16_by_one"),
        ("sm_107a", "cvt.rz.scaled::n1::ue8m0.ue5m3x2.bf16x2", "F2FP",
         "F2FP{.SATFINITE}.UE5M3.BF16.UNPACK_B_MERGE_C.SCALE_BY_C{.rnd}", "_ue5m3_of_bf16_by_one"),
        ("sm_107a", "sub.rm.f32x2.f16x2.f32x2", "FHADD2", "FHADD2.F32x2.F16x2.F32x2{.rnd}", "_sums_of_others"),
        ("sm_107a", "add.f32x2.bf16x2.f32x2", "FHADD2", "FHADD2.F32x2.BF16x2.F32x2{.rnd}", "_sums_of_others"),
        ("sm_107a", "fma.rp.f32x2.f16x2.f32x2.f32x2", "FHFMA2", "FHFMA2.F32x2.F16x2.F32x2.F32x2{.rnd}",
         "_addend_first"),
        ("sm_107a", "fma.rn.f32x2.bf16x2.f32x2.f32x2", "FHFMA2", "FHFMA2.F32x2.BF16x2.F32x2.F32x2{.rnd}",
         "_addend_first"),
        ("sm_107a", "add.rz.ftz.f16x2.f32x2.f32x2", "FHADD2", "FHADD2.F16x2.F32x2.F32x2.FTZ.RZ", "_differences"),
        ("sm_107a", "sub.rz.bf16x2.f32x2.f32x2", "FHADD2", "FHADD2.BF16x2.F32x2.F32x2.RZ", "_differences"),
        ("sm_107a", "mul.rz.ftz.f16x2.f32x2.f32x2", "FHMUL2", "FHMUL2.F16x2.F32x2.F32x2.FTZ.RZ", "_sums_instead"),
        ("sm_107a", "mul.rz.bf16x2.f32x2.f32x2", "FHMUL2", "FHMUL2.BF16x2.F32x2.F32x2.RZ", "_sums_instead"),
        ("sm_107a", "mul.rz.ftz.f16x2.f32x2.f32x2", "FHMUL2", "FHMUL2.F16x2.F32x2.F32x2.FTZ.RZ.one_negated",
         "_sums_instead"),
        ("sm_107a", "sub.rz.bf16x2.f32x2.f32x2", "FHADD2", "FHADD2.BF16x2.F32x2.F32x2.RZ.one_negated",
         "_differences"),
        ("sm_107a", "add.rm.f32x2.f16x2.f32x2", "FHADD2", "FHADD2.F32x2.F16x2.F32x2{.rnd}.one_negated",
         "_sums_of_others"),
        ("sm_107a", "fma.rz.f32x2.f16x2.f32x2.f32x2", "FHFMA2",
         "FHFMA2.F32x2.F16x2.F32x2.F32x2{.rnd}.one_negated", "_addend_first"),
        ("sm_107a", "mul.f16x2.f16x2.bf16x2", "HMUL2", "HMUL2.F16x2.F16x2.BF16x2", "_of_one_format"),
        ("sm_107a", "mul.bf16x2.bf16x2.f16x2", "HMUL2", "HMUL2.BF16x2.BF16x2.F16x2", "_of_one_format"),
        ("sm_75", "add.f16", "HADD2", "HADD2.constant", "_of_the_upper_part"),
    ],
)  # fmt: skip
def test_a_sequence_settles_where_a_row_puts_its_bits(
    target: str, sequence: str, opcode: str, name: str, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row agrees, and the same row with another place differs."""
    lessons, complaints = _teach([sequence], target)
    assert complaints == {}
    assert any(form.split(" ")[0] == name for form in lessons)
    plant_definition(monkeypatch, opcode, name, globals()[mistake])
    again, _ = _teach([sequence], target)
    assert any(lesson.differed for form, lesson in again.items() if form.split(" ")[0] == name)


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", [TARGET, "sm_121a"])
def test_the_lower_half_in_the_place_of_the_upper_one_differs(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ptxas has something else in the lower half."""
    name, sequence = "I2IP.kind.S32.SAT.H1", ["cvt.pack u8 of c onto c from 0x12345678"]
    lessons, complaints = _teach(sequence, target)
    assert complaints == {}
    assert any(form.startswith(name) and lesson.agreed for form, lesson in lessons.items())
    right = machine.SourceFetch._signed
    monkeypatch.setattr(machine.SourceFetch, "_signed", lambda self, x: right(self, x << 16 if self.kind == "K" else x))
    lessons, _ = _teach(sequence, target)
    assert any(form.startswith(name) and lesson.differed for form, lesson in lessons.items())


def test_halves_that_are_alike_teach_nothing() -> None:
    """On sm_80 ptxas puts the same into both halves, so neither of them would be shown as the wrong one."""
    lessons, complaints = _teach(["cvt.pack u8 of c onto c from 0x12345678"], "sm_80")
    assert (lessons, complaints) == ({}, {})


def test_a_sum_with_a_product_and_a_carry_needs_the_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a product of unsigned numbers: ptxas writes it below sm_90, for parameters."""
    name, sequences = "IMAD.X{.U32}", ["carry of add to a word times 4", "carry of sub to a word times 4"]
    lessons, complaints = _teach(sequences, "sm_80")
    assert complaints == {}
    assert len(lessons[f"{name} u32=1"].agreed) >= taught.CONTEXTS
    for mistake in (_without_the_carry, _complement_kept):
        plant_definition(monkeypatch, "IMAD", name, mistake)
        lessons, _ = _teach(sequences, "sm_80")
        assert lessons[f"{name} u32=1"].differed, mistake


def _without_the_carry(a: int, b: int, c: int, d: int) -> int:
    return wrap64(wrap64(a * b) + c)


def _complement_kept(a: int, b: int, c: int, d: int) -> int:
    return wrap64(wrap64(a * b) - c + d)


def _high_words_apart(a: int, b: int, c: int) -> int:
    return shr64(wrap64(a * b), 32) + shr64(c, 32)


def _high_word_of_signed(a: int, b: int, c: int) -> int:
    return shr64(wrap64(sign_extend(a, 32) * sign_extend(b, 32) + c), 32)


def _exchanged_of_upper(a: int, b: int, c: int, kind: int) -> int:
    return cvt_pack_onto(b, a, c, 8, 1 if kind < 0 else 0)


def _nothing_above(a: int, b: int, c: int, kind: int) -> int:
    return cvt_pack_onto(a, b, 0, 8, 1 if kind < 0 else 0)


def _other_extreme(b: int, c: int) -> int:
    return b if c else 0


def _signed_extreme(b: int, c: int) -> int:
    return min(0, sign_extend(b, 32)) if c else max(0, sign_extend(b, 32))


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
def test_a_form_of_which_ptxas_drops_a_modifier_teaches_nothing(rounding: str) -> None:
    """cvt.ftz.pzo.bf16.f32 keeps -0 in the machine code of ptxas 13.4 and 13.5: they write no .PZO."""
    form = f"cvt.{rounding}.ftz.pzo.bf16.f32"
    assert form in teaching.FAULTY
    assert list(teaching.tasks([form], "registers", "sm_107a")) == []
    assert list(teaching.tasks([form.replace(".ftz.pzo", ".ftz")], "registers", "sm_107a"))


def _one(a: int, b: int, cmp: int) -> int:
    return 1 if ordered(cmp, a < b, a == b) else 0


def _mask_of_words(a: int, b: int, cmp: int, kind: int) -> int:
    return 0xFFFFFFFF if ordered(cmp, sign_extend(a, 32) < sign_extend(b, 32), a == b) else 0


def _to_nearest(a: int, b: int, rnd: int, relu: int, pzo: int, form: int) -> int:
    return cvt_narrow_f32(a, b, RN, relu, pzo, form) & 0xFFFF


def _with_negative_zeros(a: int, rnd: int, relu: int, pzo: int, form: int) -> int:
    return cvt_narrow_f16x2(a, rnd, relu, 0, form) & 0xFFFF


def _exchanged_ue5m3(a: int, b: int, rnd: int, satfinite: int) -> int:
    return cvt_ue5m3x2_f32(b, a, rnd, satfinite)


def _f16_with_negative_zeros(a: int, b: int, rnd: int, satfinite: int, relu: int) -> int:
    return cvt_f16x2_f32(a, b, rnd, relu, satfinite, 0)


def _bf16_with_negative_zeros(a: int, b: int, rnd: int, satfinite: int, relu: int) -> int:
    return cvt_bf16x2_f32(a, b, rnd, relu, satfinite, 0)


def _one_f16_with_a_negative_zero(a: int, rnd: int, satfinite: int, relu: int) -> int:
    return cvt_f16_f32(a, rnd, 0, relu, satfinite, 0) & 0xFFFF


def _one_bf16_with_a_negative_zero(a: int, rnd: int, satfinite: int, relu: int) -> int:
    return cvt_bf16_f32(a, rnd, 0, relu, satfinite, 0) & 0xFFFF


def _tf32_with_a_negative_zero(a: int, rnd: int, satfinite: int, relu: int) -> int:
    return cvt_tf32_f32(a, rnd, satfinite, relu, 0)


def _f32_by_one(a: int, b: int, c: int, rnd: int, relu: int, pzo: int, form: int = CODES["e2m1"]) -> int:
    return cvt_narrow_f32_scaled(a, b, 127, rnd, relu, pzo, form)


def _exchanged_by_a_scale(a: int, c: int, rnd: int, relu: int, pzo: int, form: int = CODES["e2m1"]) -> int:
    return cvt_narrow_f16x2_scaled((a & 0xFFFF) << 16 | a >> 16, c >> 24, rnd, relu, pzo, form)


def _by_a_scale_to_nearest(a: int, c: int, rnd: int, relu: int, pzo: int, form: int = CODES["e2m1"]) -> int:
    return cvt_narrow_bf16x2_scaled(a, c >> 24, RN, relu, pzo, form)


def _ue5m3_of_f32_by_one(a: int, b: int, c: int, rnd: int, satfinite: int) -> int:
    return cvt_ue5m3x2_f32_scaled(a, b, 127, rnd, satfinite)


def _ue5m3_of_f16_by_one(a: int, c: int, rnd: int, satfinite: int) -> int:
    return cvt_ue5m3x2_f16x2_scaled(a, 127, rnd, satfinite)


def _ue5m3_of_bf16_by_one(a: int, c: int, rnd: int, satfinite: int) -> int:
    return cvt_ue5m3x2_bf16x2_scaled(a, 127, rnd, satfinite)


def _sums_of_others(a: int, b: int, rnd: int, type: int) -> int:
    return add_mixed_pair((a & 0xFFFF) << 16 | a >> 16, b, rnd, type)


def _addend_first(a: int, b: int, c: int, rnd: int, type: int) -> int:
    return fma_mixed_pair(a, c, b, rnd, type)


def _differences(a: int, b: int, type: int) -> int:
    return sub_cut(a, b, type)


def _sums_instead(a: int, b: int, type: int) -> int:
    return add_cut(a, b, type)


def _of_one_format(a: int, b: int, type: int) -> int:
    return mul_halves(a, b, type, 0, 0)


def _of_the_upper_part(a: int) -> int:
    return a >> 16


def _exchanged_scales_of_two(a: int, b: int, c: int, relu: int) -> int:
    return cvt_s2f6x2_f32_scaled(a, b, (c >> 16 & 0xFF) << 8 | c >> 24, RZ, relu)


def _s2f6_to_nearest(a: int, b: int, c: int, relu: int) -> int:
    return cvt_s2f6x2_f32_scaled(a, b, c >> 16, RN, relu)


def _ue5m3_of_exchanged_f16(a: int, rnd: int, satfinite: int) -> int:
    return cvt_ue5m3x2_f16x2(a >> 16 | (a & 0xFFFF) << 16, rnd, satfinite)


def _ue5m3_to_nearest(a: int, rnd: int, satfinite: int) -> int:
    return cvt_ue5m3x2_bf16x2(a, RN, satfinite)


def _exchanged_f16(a: int) -> int:
    return cvt_f16x2_ue5m3x2(a >> 8 | (a & 0xFF) << 8)


def _exchanged_scales_of_ue5m3(a: int, b: int, satfinite: int, form: int = CODES["ue5m3"]) -> int:
    return cvt_bf16x2_narrow_scaled(a, b >> 8 | (b & 0xFF) << 8, form, satfinite, 0)


def _borrow_in_the_place_of_the_carry(a: int, b: int, c: int, result: int) -> int:
    total = wrap64(a * b + c)
    return shr64(total, 32) if result == 0 else (0 if c == 0 or below64(total, c) else 1)


def _upper_predicate(a: int, b: int, c: int, kind: int, result: int) -> int:
    x, y = (sign_extend(a, 16), sign_extend(b, 16)) if kind else (a & 0xFFFF, b & 0xFFFF)
    z, w = (sign_extend(a >> 16, 16), sign_extend(b >> 16, 16)) if kind else (a >> 16, b >> 16)
    if result == 1:
        return (1 if z <= w else 0) if c else (1 if z >= w else 0)
    return ((min(z, w) if c else max(z, w)) & 0xFFFF) << 16 | (min(x, y) if c else max(x, y)) & 0xFFFF


def _exchanged_sums(a: int, b: int, rnd: int, ftz: int) -> int:
    total = add_f32x2(a, b, rnd, ftz)
    return shl64(total, 32) | shr64(total, 32)


def _upper_sign_kept(a: int, b: int, rnd: int, ftz: int) -> int:
    return mul_f32x2(a ^ shl64(1, 63), b, rnd, ftz)


def _merged_below(a: int, c: int, relu: int, form: int) -> int:
    return (cvt_narrow_bf16x2(a, RN, relu, 0, form) & 0xFFFF) << 16 | c & 0xFFFF


def _exchanged_codes(a: int, rnd: int, satfinite: int) -> int:
    codes = cvt_ue8m0x2_bf16x2(a, rnd, satfinite)
    return (codes & 0xFF) << 8 | codes >> 8 & 0xFF


def _carry_to_the_high_word(a: int, b: int, c: int, d: int) -> int:
    return shr64(wrap64(wrap64(a * b) + c), 32) + d


def _numbers_before_nans(a: int, b: int, c: int, d: int, type: int, nan: int) -> int:
    return max_halves(max_halves(a, b, type, 0, 0), c, type, 0, 0)


def _carry_where_it_borrows(a: int, b: int, n: int, result: int) -> int:
    total = (a << n & 0xFFFFFFFF) + b
    return total if result == 0 else (total >> 32 & 1) ^ 1


def _shift_without_carry(a: int, b: int, d: int, n: int, result: int) -> int:
    total = (a << n & 0xFFFFFFFF) + b
    return total if result == 0 else total >> 32 & 1


def _shifted_carry_where_it_borrows(a: int, b: int, n: int, result: int) -> int:
    total = (a >> 32 - n) + b
    return total if result == 0 else (total >> 32 & 1) ^ 1


def _predicates_of_the_second(a: int, b: int, c: int, kind: int, result: int) -> int:
    at = 16 if result == 2 else 0
    x, y = (a >> at & 0xFFFF, b >> at & 0xFFFF) if kind == 0 else (sign_extend(a >> at, 16), sign_extend(b >> at, 16))
    if result:
        return (1 if y <= x else 0) if c else (1 if y >= x else 0)
    low, high = max(x, y), max(sign_extend(a >> 16, 16), sign_extend(b >> 16, 16))
    return (high & 0xFFFF) << 16 | low & 0xFFFF


def _exchanged_predicates(a: int, b: int, c: int, kind: int, result: int) -> int:
    at = 16 if result == 1 else 0
    x, y = a >> at & 0xFFFF, b >> at & 0xFFFF
    if result:
        return (1 if x <= y else 0) if c else (1 if x >= y else 0)
    return min(a >> 16, b >> 16) << 16 | min(a & 0xFFFF, b & 0xFFFF)


def _codes_in_halves(a: int, b: int, c: int, relu: int, form: int = CODES["e2m1"]) -> int:
    return (cvt_narrow_f32(a, b, RN, relu, 0, form) & 0xFF) | (c & 0x00FF00FF) << 8


def _nothing_merged(a: int, b: int, c: int, relu: int) -> int:
    return cvt_s2f6x2_f32_scaled(a, b, c >> 16, RN, relu)


def _exchanged_scales(a: int, c: int, relu: int) -> int:
    return cvt_s2f6x2_bf16x2_scaled(a, (c >> 16 & 0xFF) << 8 | c >> 24, RN, relu)


def _exchanged_halves(a: int, type: int) -> int:
    return ex2_half(a & 0xFFFF, type) << 16 | ex2_half(a >> 16, type)


def _bytes_negated_before(a: int, b: int) -> int:
    total, subtracted = 0, -b & 0xFFFFFFFF
    for number in range(4):
        one = sign_extend(a >> 8 * number, 8) + sign_extend(-(subtracted >> 8 * number), 8)
        total |= (max(min(one, 0x7F), -0x80) & 0xFF) << 8 * number
    return total


def _carry_between_bytes(a: int, b: int, kind: int) -> int:
    return a + b + 1


def _one_word(a: int, b: int) -> int:
    return min(a + b, 0xFFFFFFFF)


def _negative_bytes(a: int, b: int, c: int) -> int:
    total = 0
    for number in range(4):
        x, y = sign_extend(a >> 8 * number, 8), sign_extend(b >> 8 * number, 8)
        total |= ((min(x, y) if c else max(x, y)) & 0xFF) << 8 * number
    return total


def _with_infinities(a: int, b: int, rnd: int, relu: int) -> int:
    return cvt_f16x2_f32(a, b, rnd, relu, 0, 0)


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("name", "opcode", "row", "mistake"),
    [
        ("bfind.shiftamt.s32 and saturated f32 between others", "UFLO", "FLO.SH", "_unsigned_place"),
        ("add.sat.s32 and saturated f32 between others", "UVIADD", "VIADD.S32.ISAT", "_wrapping_sum"),
        ("vmax.s32.s32.s32.add", "UIMNMX", "IMNMX.S64", "_smaller"),
        ("cvt.rp.sat.f32.u16", "UI2F", "I2F.U16{.rnd}", "_signed_half"),
        ("mad.hi.s64", "UIMAD", "IMAD.WIDE.U32.X", "_unsigned_sum"),
        ("vsub.u32.u32.u32.sat.min", "UIADD3", "UIADD3.64-b", "_sum_of_words"),
        ("carry of mul.lo.u64 and add to mul.hi.u64", "UIADD3", "UIADD3.64", "_sum_without_carry"),
        ("carry of mul.lo.u64 and add to mul.hi.u64", "UIADD3", "UIADD3.64", "_carry_of_the_low_word"),
        ("carry of mul.lo.u64 and add to mul.hi.u64", "UIADD3", "UIADD3.64.X", "_sum_that_takes_no_carry"),
        ("carry of mul.lo.u64 and sub to mul.hi.u64", "UIADD3", "UIADD3.64-b", "_sum_without_carry"),
        ("carry of mul.lo.u64 and sub to mul.hi.u64", "UIADD3", "UIADD3.64.X", "_sum_that_takes_no_carry"),
        ("carry of mul.lo.u64 and sub of bits to mul.hi.u64", "UIADD3", "UIADD3.64-b", "_borrow_of_zero"),
        ("two e5m2x2 from f16x2", "UF2FP", "F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C", "_other_code"),
    ],
)
def test_parameters_teach_instructions_on_uniform_registers(
    name: str, opcode: str, row: str, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ptxas for sm_120a computes with parameters in uniform registers; a mistake there alone is seen."""
    monkeypatch.setattr(teaching, "GIVEN", ("parameters",))
    lessons, complaints = _teach([name], "sm_120a")
    assert complaints == {}
    assert any(form.split(" ")[0] == row and one.agreed for form, one in lessons.items())
    plant_definition(monkeypatch, opcode, row, globals()[mistake])
    again, _ = _teach([name], "sm_120a")
    assert any(one.differed for form, one in again.items() if form.split(" ")[0] == row)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["max.f16x2", "fma.rn.bf16x2", "set.eq.and.ftz.f16.f16", "add.sat.s32", "cvt.f32.f16"])
def test_operands_of_halves_in_constant_banks_teach(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvdisasm writes a space in `c[0x0] [0x168]` there."""
    monkeypatch.setattr(teaching, "GIVEN", ("parameters",))
    lessons, complaints = _teach([name], "sm_80")
    assert complaints == {}
    assert any(f"{name} parameters -O3" in one.agreed for one in lessons.values())


def _high_word_without_carry(a: int, b: int, c: int, n: int, result: int) -> int:
    return (a >> 32 - n | c << n) + b if result == 0 else 0


def _difference_of_no_shift(a: int, b: int, n: int, result: int) -> int:
    return a + b if result == 0 else (1 if b == 0 else (a << n & 0xFFFFFFFF) + b >> 32 & 1)


def _sum_that_only_gives_a_carry(a: int, b: int, c: int, result: int) -> int:
    total = wrap64(a + b + c)
    return wrap64(a + b) if result == 0 else (1 if below64(total, a) or (c == 1 and total == wrap64(a)) else 0)


def _sum_without_carry(a: int, b: int, result: int) -> int:
    return wrap64(a + b) if result == 0 else 0


def _carry_of_the_low_word(a: int, b: int, result: int) -> int:
    return wrap64(a + b) if result == 0 else ((a & 0xFFFFFFFF) + (b & 0xFFFFFFFF)) >> 32


def _sum_that_takes_no_carry(a: int, b: int, c: int) -> int:
    return wrap64(a + b)


def _borrow_of_zero(a: int, b: int, result: int) -> int:
    total = wrap64(a + b)
    return total if result == 0 else (1 if below64(total, a) else 0)


def _unsigned_place(a: int) -> int:
    return clz64(a) - 32 if a else -1


def _wrapping_sum(a: int, b: int) -> int:
    return a + b


def _smaller(a: int, b: int, c: int) -> int:
    return min(a, b)


def _signed_half(a: int, rnd: int) -> int:
    return cvt_f32_integer(sign_extend(a, 16), rnd, 0, 16, 1)


def _sum_of_words(a: int, b: int, result: int) -> int:
    return a + b & 0xFFFFFFFF


def _other_code(a: int, relu: int, form: int) -> int:
    return cvt_narrow_f16x2(a, RZ, relu, 0, form) & 0xFFFF


def test_each_source_of_lessons_keeps_its_own_lines() -> None:
    before = '{"target": "sm_90a", "form": "IADD3", "agreed": 5, "differed": 0, "digest": ""}\n'
    text = teaching.taught_again("sequences", TARGET, before, print, names=["max max u32"])
    assert text.startswith(before)
    assert teaching.taught_again("sequences", TARGET, text, print, names=["max max u32"]) == text
