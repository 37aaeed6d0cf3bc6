"""For any text the emulator ends soon, in bounded memory, with an error of its own that names a place."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator import PtxError, analyse, dataflow, emulate
from ptxdiff.emulator.asm_block import assemble
from ptxdiff.emulator.binding import contraction
from ptxdiff.emulator.dataflow import approximate_results
from ptxdiff.emulator.errors import (
    BindingError,
    ExecutionError,
    InternalError,
    MemoryFault,
    OperandError,
    ParseError,
    TooLarge,
    UndefinedBits,
)
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.emulator.limits import INSTRUCTIONS, TOKENS, Limit
from tests.support.emulator.module_text import launch, module

X = np.arange(5, dtype=np.uint32)


@pytest.mark.parametrize("elements", ["{lo, hi}", "{hi, lo}"])
def test_an_undefined_part_of_a_word_is_reported(elements: str) -> None:
    asm = f"{{ .reg .b16 lo, hi; cvt.u16.u32 hi, $1; mov.b32 $0, {elements}; }}"
    with pytest.raises(UndefinedBits, match="undefined bits"):
        emulate(asm, "=r,r", [X], "uint32")


def test_an_undefined_part_may_be_shifted_out() -> None:
    asm = "{ .reg .b16 lo, hi; .reg .b32 t; cvt.u16.u32 hi, $1; mov.b32 t, {lo, hi}; shr.u32 $0, t, 16; }"
    np.testing.assert_array_equal(emulate(asm, "=r,r", [X], "uint32"), X)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (".reg .b32 a<18446744073709551616999>;", "overflows 64 bits"),
        (".reg .b32 a<4294967295>;", "4,294,967,295 registers in one program"),
        (".reg .align 99999999999999999999999 .b32 a;", "overflows 64 bits"),
        ("mov.b32 $0, 99999999999999999999999;", "overflows 64 bits"),
        (".loc 99999999999999999999999 1 1", "overflows 64 bits"),
    ],
)
def test_constants_beyond_64_bits_are_refused(text: str, said: str) -> None:
    with pytest.raises(PtxError, match=said) as caught:
        emulate(text, "=r,r", [X], "uint32")
    assert caught.value.line == 1


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (module("", parameters=".reg .u64 p"), OperandError, r"parameter p of a kernel is \.param, not \.reg"),
        (module("{ .param .texref a; st.param.b32 [a], %r1; }"), ParseError, r"no type \.texref"),
        (module("ld.param.b32 %r1, [nowhere];"), OperandError, "no parameter of this kernel has this name"),
        (module("{ .param .b32 a; call vprintf, (a, %r1); }"), OperandError, r"vprintf takes 2 \.param variables"),
        (module("ld.param.v2.b64 {%rd1, %rd2}, [p];"), OperandError, "16 bytes lie outside parameter p"),
        (module("mov.u16 %h1, g;", before=".global .b8 g[4];"), OperandError, "mov.u16 cannot hold an address"),
        (module("", before=".global .b8 g[1] = {1, 2};"), OperandError, "1 elements and 2 initial values"),
        (module("{ .local .b8 l[1099511627776]; st.local.b8 [l], %r1; }"), TooLarge, r"bytes of \.local memory"),
        (module("{ .local .b8 l[524289]; st.local.b8 [l], %r1; }"), TooLarge, "524,289 bytes"),
        (module("{ .shared .b8 l[1099511627776]; st.shared.b8 [l], %r1; }"), TooLarge, r"bytes of \.shared variables"),
        (module("", before=".global .b8 g[1099511627776];"), TooLarge, r"bytes of \.global and \.const variables"),
        (module("", before=".global .b8 g[4294967296][4294967296];"), ParseError, "2\\^63 elements or more"),
        (module("", parameters=".param .b8 p[32765]"), TooLarge, "32,765 bytes of parameters"),
        (module("", heads=".reqntid 1, 1, 128"), TooLarge, "at most 1024 threads"),
    ],
)  # fmt: skip
def test_impossible_declarations_and_operands_of_modules_are_refused(
    text: str, kind: type[PtxError], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        load_kernel(text)
    assert caught.value.line
    assert not isinstance(caught.value, InternalError)


def test_the_largest_local_memory_runs() -> None:
    text = module("{ .local .b8 l[524288]; st.local.b8 [l+524287], 7; ld.local.u8 %r1, [l+524287]; }")
    assert launch(text).threads == 32


def doubling(depth: int) -> str:
    """Functions that each call the next one twice."""
    functions = [f".func f{depth}() {{ ret; }}"]
    functions += [f".func f{n}() {{ call f{n + 1}; call f{n + 1}; ret; }}" for n in reversed(range(depth))]
    return module("call f0;", before="\n".join(functions))


def chain(depth: int) -> str:
    functions = [f".func f{depth}() {{ ret; }}"]
    functions += [f".func f{n}() {{ call f{n + 1}; ret; }}" for n in reversed(range(depth))]
    return module("call f0;", before="\n".join(functions))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("doing", "said"),
    [
        (lambda: emulate("mov.b32 $0, $1;", "=r" + ",r" * 100_000, [X], "uint32"), "100,001 constraints"),
        (lambda: emulate("mov.b32 $0, $1;", "=r,r", [X] * 100_000, "uint32"), "100,000 arguments"),
        (lambda: emulate("mov.b32 $0, $1;", "=r,r", [X], "uint32", pack=2**40), "1,099,511,627,776 elements"),
        (lambda: emulate("add.u32 $0, $1, $1;\n" * 500_000, "=r,r", [X], "uint32"), "characters in one text"),
        (lambda: emulate("ret;" * 100_000, "=r,r", [X], "uint32"), "60,001 statements"),
        pytest.param(
            lambda: emulate(";" * 2_100_000, "=r,r", [X], "uint32"), "2,000,001 words and signs", marks=pytest.mark.slow
        ),
        (lambda: emulate("add" + ".sat" * 100_000 + " $0;", "=r,r", [X], "uint32"), "100,000 modifiers"),
        (lambda: emulate("mov.b32 $0, {" + "$1," * 100_000 + "$1};", "=r,r", [X], "uint32"), "operands in one list"),
        (lambda: emulate("a" * 1_000_000 + ";", "=r,r", [X], "uint32"), "characters in one name"),
        (lambda: emulate(".reg .b32 a<199999>; .reg .b32 b<2>;", "=r,r", [X], "uint32"), "200,00[0-9] registers"),
        (lambda: emulate("mov.b32 $0, $1;", "=r,r", [X], "uint32", limit=0), "no number of seconds"),
        (lambda: emulate("ret;", "=r,r,r", [np.zeros((2**20, 1)), np.zeros(2**20)], "uint32"), "elements in one call"),
        pytest.param(lambda: load_kernel(doubling(40)), "60,001 statements", marks=pytest.mark.slow),
        (lambda: load_kernel(chain(1000)), "151 nested blocks, calls"),
        (lambda: load_kernel(module("mov.b32 %r1, " + "(1+" * 3000 + "1" + ")" * 3000 + ";")), "nested too deeply"),
        (lambda: load_kernel("// begin inline asm\n" * 300_000), "has: none"),
        (lambda: load_kernel(".section " + "{" * 1_000_000), "directive"),
    ],
)  # fmt: skip
def test_texts_and_arguments_beyond_a_limit_are_refused_at_once(doing: Any, said: str) -> None:
    started = time.monotonic()
    with pytest.raises(PtxError, match=said):
        doing()
    assert time.monotonic() - started < 60, "seconds on an idle machine"


@pytest.mark.parametrize(
    ("limit", "doing", "said"),
    [
        (TOKENS, lambda: emulate(";" * 2_000, "=r,r", [X], "uint32"), "1,001 words and signs"),
        (INSTRUCTIONS, lambda: load_kernel(doubling(40)), "1,001 statements"),
    ],
)
def test_a_lower_limit_ends_the_work_sooner(limit: Limit, doing: Any, said: str) -> None:
    """The two limits that take longest to reach. The slow rows above reach them."""
    most = limit.most
    object.__setattr__(limit, "most", 1_000)
    try:
        with pytest.raises(TooLarge, match=said):
            doing()
    finally:
        object.__setattr__(limit, "most", most)


def test_analysis_of_many_moves_takes_no_cubic_time() -> None:
    """The search once took cubic time to follow a product through moves."""
    moves = "".join(f"mov.b32 a{n + 1}, a{n};" for n in range(3000))
    asm = f".reg .f32 a<3001>; mul.f32 a0, $1, $1; {moves} add.f32 $0, a3000, $1;"
    assert analyse(asm, "=f,f").contraction_open


class Counted(list[Any]):
    """A list that counts how often its elements are read."""

    reads = 0

    def __getitem__(self, at: Any) -> Any:
        Counted.reads += 1
        return super().__getitem__(at)

    def __iter__(self) -> Any:
        for element in super().__iter__():
            Counted.reads += 1
            yield element


def reads_of(asm: str, search: Callable[[Any], object]) -> int:
    """How often a search reads the steps of a block's program."""
    program = assemble(asm, "=&f,f", None).program
    Counted.reads = 0
    search(replace(program, steps=Counted(program.steps)))
    return Counted.reads


def test_dependence_on_an_approximation_is_found_in_one_pass() -> None:
    """The search once needed one pass for each move if the moves are in reverse order."""
    moves = "".join(f"mov.b32 a{n}, a{n - 1};" for n in reversed(range(1, 2000)))
    asm = f".reg .f32 a<2000>; {moves} rcp.approx.f32 a0, $1; mov.b32 $0, a1999;"
    assert approximate_results(asm, "=&f,f") == (("rcp.approx.f32",), ())
    assert reads_of(asm, dataflow._by_slot) < 3 * 2001


def test_products_in_one_register_are_followed_once() -> None:
    """With n products in a register and n moves from it, the search once followed each move for each product."""
    asm = ".reg .f32 a; " + "mul.f32 a, $1, $1; mov.b32 $0, a;" * 5_000 + "add.rn.f32 $0, a, $1;"
    program = assemble(asm, "=&f,f", None).program
    followed = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal followed
        followed += event == "line"
        assert followed < 250_000
        return trace if frame.f_code.co_filename == contraction.__file__ else None

    sys.settrace(trace)
    try:
        assert not contraction.contraction_open(program)
    finally:
        sys.settrace(None)


def test_an_error_in_a_long_line_shows_the_part_around_it() -> None:
    with pytest.raises(ParseError) as caught:
        emulate("ret;" * 1000 + "!" + "ret;" * 1000, "=r,r", [X], "uint32")
    assert caught.value.column == 4001
    assert len(caught.value.source) <= 400


@pytest.mark.parametrize(
    "arguments",
    [
        {"args": X},
        {"args": [{}]},
        {"args": [[[1], [2, 3]]]},
        {"args": [Ellipsis]},
        {"args": [None]},
        {"dtype": None},
        {"dtype": "V4"},
        {"dtype": ("f4", 2)},
        {"pack": "2"},
        {"pack": True},
        {"order": -1},
        {"padding": "a"},
        {"share": [(0, 1)]},
        {"target": None},
        {"constraints": 5},
        {"asm": b"mov"},
        {"limit": "a"},
        {"limit": float("nan")},
        {"special": 7},
        {"special": {1: 2}},
        {"special": {"%laneid": [[1], [2, 3]]}},
    ],
    ids=str,
)
def test_arguments_of_a_wrong_type_are_refused(arguments: dict[str, Any]) -> None:
    call = {"asm": "mov.b32 $0, $1;", "constraints": "=r,r", "args": [X], "dtype": "uint32"} | arguments
    with pytest.raises(PtxError) as caught:
        emulate(**call)
    assert not isinstance(caught.value, InternalError)


def test_a_fault_of_the_emulator_has_its_own_class_and_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> Any:
        raise KeyError("a fault")

    monkeypatch.setattr("ptxdiff.emulator.machine.lockstep._scalar", broken)
    with pytest.raises(InternalError, match=r"line 2, column 1: .*KeyError.*please report") as caught:
        emulate("\nadd.u32 $0, $1, $1;", "=r,r", [X], "uint32")
    assert isinstance(caught.value.__cause__, KeyError)


class TestLimitsOfCuda:
    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ({"grid": (2**31,)}, "at most 2,147,483,647 blocks along x"),
            ({"grid": (1, 65536)}, "at most 65,535 blocks along y"),
            ({"grid": (1, 1, 65536)}, "at most 65,535 blocks along z"),
            ({"grid": (1.5,)}, "each an integer"),
            ({"grid": (-1,)}, "one to three sizes"),
            ({"threads": 2048}, "blocks of whole warps, 32 to 1024 threads"),
            ({"shared_bytes": 232_449}, "needs 232,449 bytes of shared memory a block; sm_90a has 232,448"),
            ({"shared_bytes": -1}, "shared memory"),
        ],
    )
    def test_launches(self, more: dict[str, Any], said: str) -> None:
        with pytest.raises(PtxError, match=said):
            launch(module(""), **more)

    @pytest.mark.parametrize(("target", "most"), [("sm_75", 65_536), ("sm_86", 101_376), ("sm_120a", 101_376)])
    def test_shared_memory_of_each_target(self, target: str, most: int) -> None:
        text = module("").replace("sm_90a", target)
        assert launch(text, shared_bytes=most).threads == 32
        with pytest.raises(TooLarge, match=f"{target} has {most:,}"):
            launch(text, shared_bytes=most + 1)

    def test_blocks_of_several_dimensions(self) -> None:
        body = (
            "ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x;"
            "mad.lo.u32 %r4, %r2, %r3, %r1; mul.wide.u32 %rd2, %r4, 4; add.u64 %rd1, %rd1, %rd2;"
            "mad.lo.u32 %r5, %r2, 100, %r1; st.global.u32 [%rd1], %r5;"
        )
        out = np.zeros(64, np.uint32)
        run_kernel(module(body, heads=".reqntid 16, 4"), [Buffer(out)], (1,))
        np.testing.assert_array_equal(out, [100 * y + x for y in range(4) for x in range(16)])


@pytest.mark.parametrize("store", ["st.global.u32 [%rd1], %r1;", "red.global.add.u32 [%rd1], 1;"])
def test_a_store_to_a_read_only_array_is_refused(store: str) -> None:
    out = np.zeros(4, np.uint32)
    out.flags.writeable = False
    text = module(f"ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1]; {store}")
    with pytest.raises(MemoryFault, match=r"stores to y, whose array is read-only"):
        launch(text, Buffer(out, "y"))
    launch(text.replace(store, ""), Buffer(out, "y"))


class TestConstants:
    @pytest.mark.parametrize("letter", ["n", "i"])
    def test_a_python_integer_is_a_constant_of_the_text(self, letter: str) -> None:
        got = emulate("lop3.b32 $0, $1, $1, $1, $2;", f"=r,r,{letter}", [X, 0x0F], "uint32")
        np.testing.assert_array_equal(got, ~X)
        assert emulate("add.s32 $0, $1, $2;", f"=r,r,{letter}", [X, -1], "int32").tolist() == [-1, 0, 1, 2, 3]

    def test_a_constant_for_each_element_of_a_pack(self) -> None:
        asm = "add.s32 $0, $2, $4; add.s32 $1, $3, $5;"
        np.testing.assert_array_equal(emulate(asm, "=&r,=&r,r,r,n,n", [X, 3], "uint32", pack=2), X + 3)

    @pytest.mark.parametrize("value", [X, 1.5, True, np.float32(2), None])
    def test_other_values_are_refused_as_constants(self, value: Any) -> None:
        words = "takes a compile-time constant" if value is not None else "argument None is no array of numbers"
        with pytest.raises(BindingError, match=words):
            emulate("add.s32 $0, $1, $2;", "=r,r,n", [X, value], "int32")

    def test_analysis_without_arguments_refuses_constants(self) -> None:
        with pytest.raises(BindingError, match="a tensor never is one"):
            analyse("add.s32 $0, $1, $2;", "=r,r,n")


@pytest.mark.parametrize(
    ("asm", "elements"),
    [
        ("mov.v4.b32 v, 0;", [0, 0, 0, 0]),
        ("mov.v4.b32 v, 7;", [7, 0, 0, 0]),
        ("mov.v4.b32 v, -7;", [0xF9, 0xFF, 0xFF, 0xFF]),
        ("mov.v4.s32 v, 0x12345678;", [0x78, 0x56, 0x34, 0x12]),
        ("mov.v4.b32 v, 0f3F800000;", [0, 0, 0x80, 0x3F]),
        ("mov.v4.b32 v, $4;", [0x44, 0x33, 0x22, 0x11]),
        ("mov.v4.b32 {v.x, _, v.z, v.w}, $4; mov.b32 v.y, 5;", [0x44, 5, 0x22, 0x11]),
    ],
)
def test_a_scalar_moved_to_a_vector_does_what_the_code_of_ptxas_does(asm: str, elements: list[int]) -> None:
    """In code of ptxas 12.9 and 13.4 (nvdisasm) the elements are parts of the value's bits, not copies of the value."""
    asm = f"{{ .reg .v4 .b32 v; {asm} mov.b32 $0, v.x; mov.b32 $1, v.y; mov.b32 $2, v.z; mov.b32 $3, v.w; }}"
    got = emulate(asm, "=&r,=&r,=&r,=&r,r", [0x11223344], ["uint32"] * 4)
    assert [int(g) for g in got] == elements


def test_two_halves_of_a_scalar_moved_to_a_vector() -> None:
    asm = "{ .reg .v2 .b32 v; mov.v2.b32 v, $2; mov.b32 $0, v.x; mov.b32 $1, v.y; }"
    got = emulate(asm, "=&r,=&r,r", [0x11223344], ["uint32"] * 2)
    assert [int(g) for g in got] == [0x3344, 0x1122]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("float8e4nv", "float8_e4m3fn"), ("float8e5", "float8_e5m2"), ("float8e4b8", "float8_e4m3fnuz"),
     ("float8e5b16", "float8_e5m2fnuz"), ("fp8e5b16", "float8_e5m2fnuz")],
)  # fmt: skip
def test_triton_s_names_of_types_are_accepted(name: str, dtype: str) -> None:
    bits = np.arange(4, dtype=np.uint8)
    assert emulate("mov.b32 $0, $1;", "=r,r", [bits], name, pack=4).dtype.name == dtype


def test_a_type_of_triton_that_numpy_lacks_is_refused() -> None:
    with pytest.raises(BindingError, match=r"float8e4b15.*its bits are 'uint8'"):
        emulate("mov.b32 $0, $1;", "=r,r", [X], "float8e4b15")


@pytest.mark.parametrize(
    ("asm", "word"),
    [
        ("createpolicy.fractional.L2::evict_first.b64 $0, 1.0;", "a cache policy for memory accesses"),
        ("cp.async.ca.shared.global [$0], [$1], 4;", "is an asynchronous copy; an"),
    ],
)
def test_refusals_describe_the_instruction(asm: str, word: str) -> None:
    with pytest.raises(PtxError, match=word):
        emulate(asm, "=l,l", [np.zeros(2, np.uint64)], "uint64")


def test_a_failed_assertion_is_an_execution_error() -> None:
    before = (
        ".global .b8 m[4] = {98, 97, 100};\n.global .b8 f[5] = {97, 46, 112, 121};\n.extern .func __assertfail(\n"
        ".param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);"
    )
    body = (
        "{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;"
        "mov.b64 %rd1, m; st.param.b64 [a], %rd1; mov.b64 %rd2, f; st.param.b64 [b], %rd2; st.param.b32 [c], 12;"
        "st.param.b64 [d], %rd1; st.param.b64 [e], 1; call __assertfail, (a, b, c, d, e); }"
    )
    with pytest.raises(ExecutionError, match=r"failed in thread 0 of block \(0, 0, 0\): bad \(a.py:12, in bad\)"):
        launch(module(body, before=before))
