"""`emulate` has the meaning that `tl.inline_asm_elementwise` has on tensors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxdiff.emulator import analyse, emulate, refusal, trace
from ptxdiff.emulator.asm_block import CHUNK
from ptxdiff.emulator.errors import (
    BindingError,
    ExecutionError,
    NotElementwise,
    OperandError,
    PtxError,
    UndefinedBits,
    UnknownInstruction,
    UnsupportedOnTarget,
)
from tests.support import documented

COPY = "mov.b32 $0, $1;"


def test_broadcasting_and_scalars() -> None:
    column = np.float32([[1], [2]])
    got = emulate("add.f32 $0, $1, $2;", "=r,r,r", [column, np.float32([10, 20, 30])], "float32")
    np.testing.assert_array_equal(got, [[11, 21, 31], [12, 22, 32]])
    assert emulate("add.s32 $0, $1, $2;", "=r,r,r", [np.int32([1, 2]), 5], "int32").tolist() == [6, 7]
    assert emulate("add.f32 $0, $1, $2;", "=r,r,r", [1.5, 2], "float32") != 3.5, "an int keeps its bits"
    with pytest.raises(BindingError, match="do not broadcast"):
        emulate("add.f32 $0, $1, $2;", "=r,r,r", [np.ones(2, "f4"), np.ones(3, "f4")], "float32")


def test_an_empty_array_and_no_arguments() -> None:
    empty = emulate(COPY, "=r,r", [np.zeros((0, 3), np.float32)], "float32")
    assert empty.shape == (0, 3)
    scalar = emulate("mov.u32 $0, 7;", "=r", [], "int32")
    assert scalar.shape == ()
    assert scalar == 7
    with pytest.raises(UnknownInstruction, match=r"unknown instruction 'frob\.b32'"):
        emulate("frob.b32 $0, $1;", "=r,r", [np.zeros(0, np.float32)], "float32")


def test_a_sequence_of_dtypes_gives_a_tuple() -> None:
    (one,) = emulate(COPY, "=r,r", [np.float32([1])], ("float32",))
    assert one.dtype == np.float32
    asm = "mov.b32 $0, $2; mov.b32 $1, $2;"
    both = emulate(asm, "=r,=r,r", [np.float32([1])], ["int32", "float32"])
    assert [b.dtype for b in both] == [np.dtype("int32"), np.dtype("float32")]
    with pytest.raises(BindingError, match="at least one"):
        emulate("", "", [], [])


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float8_e4m3fn", "uint8", "int16", ml_dtypes.bfloat16, "bf16"]
)
def test_bits_pass_unchanged(dtype: object) -> None:
    names = {"bf16": ml_dtypes.bfloat16, "bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn}
    kind = np.dtype(names.get(str(dtype), dtype))  # type: ignore[call-overload]
    bits = np.arange(256, dtype=np.uint8).view(kind)
    pack = 4 // kind.itemsize
    got = emulate(COPY, "=r,r", [bits], dtype, pack=pack)
    assert got.dtype == kind
    assert got.tobytes() == bits.tobytes()


def test_nan_payloads_and_64_bits_pass() -> None:
    signalling = np.array([0x7F800001, 0xFFC12345], np.uint32).view(np.float32)
    assert emulate(COPY, "=r,r", [signalling], "float32").tobytes() == signalling.tobytes()
    wide = np.array([2**63 + 1, 7], np.uint64)
    assert emulate("mov.b64 $0, $1;", "=l,l", [wide], "uint64").tolist() == wide.tolist()


@pytest.mark.parametrize("elements", [1, 3, 4, 5, 1023, CHUNK * 4 + 1, CHUNK * 12 - 1])
@pytest.mark.parametrize("order", [None, 1])
def test_the_documented_example(elements: int, order: int | None) -> None:
    a = np.arange(elements).astype(np.uint8)
    b = np.linspace(-5, 300, elements).astype(np.float32)
    c, d = emulate(documented.U8_MAX, documented.CONSTRAINTS, [a, b], ("int32", "float32"), pack=4, order=order)
    np.testing.assert_array_equal(c, a.astype(np.int32))
    np.testing.assert_array_equal(d, np.maximum(a.astype(np.float32), b))


def test_sharing_registers_shows_the_missing_early_clobber() -> None:
    a, b = np.arange(4, dtype=np.uint8), np.full(4, 9, np.float32)
    args = (documented.U8_MAX, documented.CONSTRAINTS, [a, b], ("int32", "float32"))
    sharing = {4 + i: 9 + i for i in range(4)}
    _, d = emulate(*args, pack=4, share=sharing)
    assert d.tolist() == [0, 1, 2, 3], "the running maximum is overwritten before it is read"
    early = documented.CONSTRAINTS.replace("=r", "=&r")
    with pytest.raises(BindingError, match="early clobber"):
        emulate(documented.U8_MAX, early, *args[2:], pack=4, share=sharing)
    with pytest.raises(BindingError, match="must map an output"):
        emulate(*args, pack=4, share={9: 4})


def test_order_moves_elements_between_packs() -> None:
    asm = "{.reg .b16 a, b; mov.b32 {a, b}, $1; mov.b32 $0, {b, a};}"
    x = np.arange(64, dtype=np.int16)
    straight = emulate(asm, "=r,r", [x], "int16", pack=2)
    np.testing.assert_array_equal(straight, x.reshape(-1, 2)[:, ::-1].reshape(-1))
    shuffled = emulate(asm, "=r,r", [x], "int16", pack=2, order=3)
    assert not np.array_equal(straight, shuffled), "asm that mixes neighbours depends on the order"
    np.testing.assert_array_equal(emulate(COPY, "=r,r", [x], "int16", pack=2, order=3), x)


class TestUndefinedBits:
    def test_padding_may_flow(self) -> None:
        x = np.float16([1, 2, 3])
        got = emulate("add.f16x2 $0, $1, $1;", "=r,r", [x], "float16", pack=2)
        np.testing.assert_array_equal(got, [2, 4, 6])

    def test_padding_in_an_element_is_reported(self) -> None:
        swap = "{.reg .b16 a, b; mov.b32 {a, b}, $1; mov.b32 $0, {b, a};}"
        with pytest.raises(UndefinedBits, match="element 2 of output 0"):
            emulate(swap, "=r,r", [np.int16([1, 2, 3])], "int16", pack=2)
        assert emulate(swap, "=r,r", [np.int16([1, 2, 3])], "int16", pack=2, padding=1).shape == (3,)

    def test_unused_part_of_a_register(self) -> None:
        x = np.uint8([1, 2])
        with pytest.raises(UndefinedBits, match="mask 0xffffff00"):
            emulate(COPY, "=r,r", [x], "int32")
        assert emulate("and.b32 $0, $1, 255;", "=r,r", [x], "int32").tolist() == [1, 2]
        assert emulate("{.reg .b32 t; shl.b32 t, $1, 24; shr.u32 $0, t, 24;}", "=r,r", [x], "int32").tolist() == [1, 2]
        assert emulate("prmt.b32 $0, $1, 0, 0x4440;", "=r,r", [x], "int32").tolist() == [1, 2]
        assert emulate("cvt.u32.u8 $0, $1;", "=r,r", [x], "int32").tolist() == [1, 2]

    def test_noise_in_place_of_undefined_bits(self) -> None:
        x = np.zeros(100, np.uint8)
        noisy = [emulate(COPY, "=r,r", [x], "uint32", padding=seed) for seed in (1, 2, 1)]
        assert not (noisy[0] & 0xFF).any()
        assert not np.array_equal(noisy[0], noisy[1])
        np.testing.assert_array_equal(noisy[0], noisy[2])

    def test_registers_never_written(self) -> None:
        with pytest.raises(UndefinedBits, match="never written"):
            emulate("", "=r,r", [np.float32([1])], "float32")
        with pytest.raises(UndefinedBits, match="depends on undefined bits"):
            emulate("{.reg .b32 t; add.u32 $0, $1, t;}", "=r,r", [1], "int32")

    @pytest.mark.parametrize(
        ("asm", "line", "source", "words"),
        [
            ("{ .reg .b32 t;\n add.u32 $0, $1, 1;\n add.u32 $0, $1, t;\n}", 3, "add.u32 $0, $1, t;", "reads t, which"),
            (
                "{ .reg .b32 t;\n .reg .pred p;\n setp.ne.u32 p, $1, 5;\n @p add.u32 t, $1, 1;\n mov.b32 $0, t; }",
                5, "mov.b32 $0, t; }", "line 4 would write t, but its predicate is false",
            ),
            (
                "{ .reg .pred p;\n setp.ne.u32 p, $1, 5;\n @p add.u32 $0, $1, 1;\n}",
                3, "@p add.u32 $0, $1, 1;", "this instruction would write $0, but its predicate is false",
            ),
        ],
    )  # fmt: skip
    def test_the_error_names_the_line_that_reads_undefined_bits(
        self, asm: str, line: int, source: str, words: str
    ) -> None:
        first = 40000 if "pred" in asm else 0
        with pytest.raises(UndefinedBits, match=f"element {first} of output 0") as caught:
            emulate(asm, "=&r,r", [np.where(np.arange(50000) < 40000, 7, 5).astype(np.uint32)], "uint32")
        assert (caught.value.line, caught.value.source.strip()) == (line, source)
        assert words in str(caught.value)
        assert (caught.value.element, caught.value.output) == (first, 0)

    def test_written_under_a_predicate_only(self) -> None:
        asm = "{.reg .pred p; setp.gt.s32 p, $1, 5; @p mov.b32 $0, 1;}"
        with pytest.raises(UndefinedBits, match="element 1 "):
            emulate(asm, "=r,r", [np.int32([9, 2, 7])], "int32")

    def test_a_branch(self) -> None:
        asm = "{.reg .pred p; setp.gt.s32 p, $1, 5; @p bra L; L: mov.b32 $0, 1;}"
        with pytest.raises(UndefinedBits, match="branch"):
            emulate(asm, "=r,r", [np.int16([1])], "int32")


class TestControlFlow:
    def test_divergent_loop(self) -> None:
        asm = """{
            .reg .pred p;
            .reg .b32 n;
            mov.b32 n, $1;
            mov.b32 $0, 0;
        L:  setp.eq.u32 p, n, 0;
            @p bra DONE;
            and.b32 $0, $0, -1;
            add.u32 $0, $0, n;
            sub.u32 n, n, 1;
            bra L;
        DONE:
        }"""
        n = np.arange(50, dtype=np.int32)
        np.testing.assert_array_equal(emulate(asm, "=&r,r", [n], "int32"), n * (n + 1) // 2)

    def test_if_else_reconverges(self) -> None:
        asm = """{
            .reg .pred p;
            setp.lt.s32 p, $1, 0;
            @p bra NEGATIVE;
            add.s32 $0, $1, 100;
            bra.uni END;
        NEGATIVE:
            sub.s32 $0, 0, $1;
        END:
            add.s32 $0, $0, 1;
        }"""
        x = np.int32([-3, 4, -5, 6])
        assert emulate(asm, "=&r,r", [x], "int32").tolist() == [4, 105, 6, 107]

    def test_endless_loop_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ptxdiff.emulator.machine.lockstep.STEP_LIMIT", 1000)
        with pytest.raises(ExecutionError, match="endless loop"):
            emulate("L: bra L;", "=r,r", [1], "int32")

    def test_predicates_and_return(self) -> None:
        asm = "{.reg .pred p; setp.ge.s32 p, $1, 2; mov.b32 $0, 0; @p ret; mov.b32 $0, 1;}"
        assert emulate(asm, "=&r,r", [np.int32([1, 2, 3])], "int32").tolist() == [1, 0, 0]


class TestRefusals:
    @pytest.mark.parametrize(
        ("asm", "kind", "words"),
        [
            ("rcp.aprox.f32 $0, $1;", UnknownInstruction, r"no modifier \.aprox \(near it: \.approx"),
            ("rpc.rn.f32 $0, $1;", UnknownInstruction, "near it there is rcp"),
            ("ld.global.b32 $0, [$1];", NotElementwise, "a memory access"),
            ("bar.sync 0;", NotElementwise, "a barrier"),
            ("cvta.to.global.u64 $0, $1;", NotElementwise, "a conversion of an address"),
            ("stacksave.u32 $0;", NotElementwise, "a memory access"),
            ("spdecompress.b8.b2.sp::2:4.x1 {$0}, {$1}, {$1};", NotElementwise, "a sparse matrix"),
            ("min.xorsign.abs.f32 $0, $1, $1;", UnsupportedOnTarget, "needs sm_86"),
            ("max.f32 $0, $1, $1, $1;", UnsupportedOnTarget, "max.f32 of 4 operands needs sm_100"),
            ("max.f32 $0, $1, $1, $1, $1;", OperandError, "takes 3 operands"),
        ],
    )
    def test_a_refusal_has_a_reason_and_a_place(self, asm: str, kind: type[PtxError], words: str) -> None:
        with pytest.raises(kind, match=words) as caught:
            emulate(f"\n  {asm}", "=r,r", [np.float32([1])], "float32", target="sm_80")
        assert (caught.value.line, caught.value.column) == (2, 3)

    def test_target(self) -> None:
        asm = "{.reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $2, $1; cvt.u32.u8 $0, t;}"
        for target in ("sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a", "sm_100f", "sm_120f"):
            assert refusal(asm, "=r,r,r", target) is None
        for target in ("sm_75", "sm_90a", "sm_100", "sm_120"):
            assert "e2m1x2" in (refusal(asm, "=r,r,r", target) or "")
        with pytest.raises(PtxError, match="no target"):
            emulate(COPY, "=r,r", [1], "int32", target="hopper")


def test_contraction_is_found_and_evaluated_both_ways() -> None:
    x = np.float32([1 + 2**-12])
    asm = "mul.f32 $0, $1, $1; sub.f32 $0, $0, $2;"
    rounded = np.float32(x * x)
    split = emulate(asm, "=&r,r,r", [x, rounded], "float32")
    together = emulate(asm, "=&r,r,r", [x, rounded], "float32", fuse=True)
    assert split == 0
    assert together == float(x[0]) ** 2 - float(rounded[0])
    assert analyse(asm, "=&r,r,r").contraction_open
    assert not analyse(asm.replace("mul.f32", "mul.rn.f32"), "=&r,r,r").contraction_open
    reversed_ = emulate("mul.f32 $0, $1, $1; sub.f32 $0, $2, $0;", "=&r,r,r", [x, rounded], "float32", fuse=True)
    assert reversed_ == -together


def test_analysis_names_forms_and_models() -> None:
    found = analyse("{.reg .b32 t; rcp.ftz.approx.f32 t, $1; mul.rn.f32 $0, t, t;}", "=r,r")
    assert found.forms == ("rcp.approx.ftz.f32", "mul.rn.f32")
    assert found.approximate == ("rcp.approx.ftz.f32",)


def test_trace_shows_every_instruction() -> None:
    asm = "{.reg .pred p; setp.gt.f32 p, $1, 2.0;\n @p add.f32 $0, $1, 1.0;\n @!p mov.b32 $0, 0;}"
    seen = trace(asm, "=r,r", [2.5], "float32")
    assert seen.lines[1].text == "@p add.f32 $0, $1, 1.0;"
    assert seen.lines[1].line == 2
    assert seen.lines[0].writes == {"p": 1}
    assert seen.lines[1].writes == {"$0": 0x40600000}
    assert not seen.lines[2].executed
    assert seen.outputs[0] == 3.5


@settings(max_examples=60, deadline=None)
@given(
    x=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40),
    pack=st.sampled_from([1, 2, 4]),
    order=st.none() | st.integers(0, 5),
)
def test_packs_and_orders_change_nothing(x: list[int], pack: int, order: int | None) -> None:
    array = np.array(x, np.uint32)
    asm = "".join(f"xor.b32 ${i}, ${pack + i}, 0x5a5a;" for i in range(pack))
    constraints = ",".join(["=&r"] * pack + ["r"] * pack)
    got = emulate(asm, constraints, [array], "uint32", pack=pack, order=order)
    np.testing.assert_array_equal(got, array ^ 0x5A5A)


@pytest.mark.parametrize(("kind", "upper"), [("s", 0xFFFFFFFF), ("u", 0)])
def test_conversion_into_128_bits(kind: str, upper: int) -> None:
    """ptxas accepts a wider register for a conversion's result, even one of 128 bits."""
    asm = (
        f"{{ .reg .b128 wide; .reg .b64 lo, hi; .reg .pred p; setp.ne.u32 p, $1, 0; cvt.{kind}64.{kind}32 wide, $1;"
        f" @p cvt.{kind}32.{kind}16 wide, $1; mov.b128 {{lo, hi}}, wide; cvt.u32.u64 $0, hi; }}"
    )
    got = emulate(asm, "=r,r", [np.array([0x8000, 0x7000, 0], np.uint32)], "uint32")
    assert got.tolist() == [upper, 0, 0]


def test_a_conversion_reads_a_special_register() -> None:
    """ptxas allows it for conversions between integers."""
    asm = "{ .reg .u64 wide; cvt.u64.u32 wide, %tid.x; cvt.u32.u64 $0, wide; }"
    named = {"%tid.x": np.arange(4)}
    assert emulate(asm, "=r,r", [np.zeros(4, np.uint32)], "uint32", special=named).tolist() == [0, 1, 2, 3]


def test_approximate_instructions_give_hopper_s_results_or_rounded_ones() -> None:
    """For this input the unit's result is two ulp below the rounded one, on every target."""
    x = np.array([0xBDA01000], np.uint32)
    asm = ("ex2.approx.ftz.f32 $0, $1;", "=r,r", [x], "uint32")
    assert emulate(*asm) == emulate(*asm, approximate="hopper") == emulate(*asm, target="sm_80") == 0x3F728025
    assert emulate(*asm, approximate="rounded") == emulate(*asm, approximate="rounded", target="sm_80") == 0x3F728027
    assert trace(*asm, approximate="rounded").outputs[0] == 0x3F728027
    for wrong in ("exact", "Hopper", "ampere", None, 1, ["hopper"]):
        with pytest.raises(BindingError, match=r"approximate=.* is none of 'hopper', 'rounded'"):
            emulate(*asm, approximate=wrong)
