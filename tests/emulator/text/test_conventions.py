"""One block in the spellings of Triton, LLVM and CUDA C++: the same bits, and clear errors for text without a
meaning."""

import numpy as np
import pytest

from ptxdiff import emulate
from ptxdiff.emulator.asm_block import trace
from ptxdiff.emulator.binding.packed import in_tritons_form
from ptxdiff.emulator.errors import BindingError, PtxError
from ptxdiff.emulator.text.conventions import spelled

UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def patterns(width, count=64, seed=0):
    return np.random.default_rng(seed).integers(0, 2**width, count, UNSIGNED[width], endpoint=False)


F32 = tuple(np.random.default_rng(seed).normal(size=64).astype(np.float32) for seed in (0, 1))
HALVES = patterns(16), patterns(16, seed=1)


def test_one_block_in_three_spellings_gives_the_same_bits():
    of = {
        "triton": ("{ .reg .f32 t; add.f32 t, $1, $2; mul.f32 $0, t, $1; }", "=r,r,r"),
        "llvm": ("{ .reg .f32 t; add.f32 t, $1, $2; mul.f32 $0, t, $1; }", "=f,f,f"),
        "cuda": ("{ .reg .f32 t; add.f32 t, %1, %2; mul.f32 %0, t, %1; }", '"=f"(y) : "f"(a), "f"(b)'),
    }
    found = {c: emulate(*block, list(F32), "float32", convention=c).tobytes() for c, block in of.items()}
    assert len(set(found.values())) == 1
    assert found["triton"] == ((F32[0] + F32[1]) * F32[0]).tobytes()


@pytest.mark.parametrize(
    ("asm", "constraints", "pack"),
    [
        ("add.u16 $0, $1, $2;", "=h,h,h", 1),  # one element, in a register of its size
        ("add.u32 $0, $1, $2;", "=r,r,r", 1),  # one element in the low half
        ("add.u16x2 $0, $1, $2;", "=r,r,r", 2),  # two elements fill the register
        ("add.u16 $0, $2, $4; add.u16 $1, $3, $5;", "=&h,=h,h,h,h,h", 2),  # one element in each operand
        ("add.u32 $0, $2, $4; add.u32 $1, $3, $5;", "=&r,=r,r,r,r,r", 2),
        ("add.u16x2 $0, $2, $4; add.u16x2 $1, $3, $5;", "=&r,=r,r,r,r,r", 4),  # four elements, two each
    ],
)
def test_the_number_of_operands_decides_how_many_elements_each_holds(asm, constraints, pack):
    for convention, text in (("llvm", asm), ("cuda", asm.replace("$", "%"))):
        got = emulate(text, constraints, list(HALVES), "uint16", pack=pack, convention=convention)
        np.testing.assert_array_equal(got, HALVES[0] + HALVES[1])


def test_triton_gives_one_register_two_elements_where_llvm_gives_two_operands():
    with pytest.raises(BindingError, match="declare 2 output operands, but pack=2 needs 1"):
        emulate("add.u16 $0, $2, 1; add.u16 $1, $3, 1;", "=h,=h,h,h", [HALVES[0]], "uint16", pack=2)
    got = emulate(
        "add.u16 $0, $2, 1; add.u16 $1, $3, 1;", "=&h,=h,h,h", [HALVES[0]], "uint16", pack=2, convention="llvm"
    )
    np.testing.assert_array_equal(got, HALVES[0] + 1)


LAYOUTS = [
    ("add.f16 $0, $2, $4; add.f16 $1, $3, $5;", "=h,=h,h,h,h,h", [16, 16], [16], 2),
    ("add.f16 $0, $0, $2; add.f16 $1, $1, $3;", "=&h,=&h,h,h,0,1", [16, 16], [16], 2),
    ("add.rn.f32x2 $0, $1, $2;", "=l,l,l", [32, 32], [32], 2),
    ("cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", "=h,f,f", [32], [8], 2),
    ("cvt.rn.satfinite.e4m3x2.f32 $0, $3, $2; cvt.rn.satfinite.e4m3x2.f32 $1, $5, $4;", "=&h,=h,f,f,f,f", [32], [8], 4),
    ("add.u16 $0, $2, 1; add.u16 $1, $3, 1;", "=&h,=h,h,h", [8], [8], 2),
    ("add.u32 $0, $2, 1; add.u32 $1, $3, 1;", "=&r,=r,r,r", [8], [8], 2),
    ("add.u64 $0, $1, $2;", "=l,l,l", [64, 64], [64], 1),
    ("mov.b64 $0, $1;", "=l,l", [16], [16], 4),
    ("{ .reg .b16 t; mov.b16 t, $2; mov.b16 $0, $1; mov.b16 $1, t; }", "=&h,=&h,h,1", [16, 16], [16, 16], 1),
    ("mov.b32 ${0}, ${1:r};// $$", "=r,r,~{memory}", [16], [16], 2),
]


@pytest.mark.parametrize(("asm", "constraints", "inputs", "outputs", "pack"), LAYOUTS)
def test_the_text_for_triton_computes_the_same_bits(asm, constraints, inputs, outputs, pack):
    arguments = [patterns(width, seed=n) for n, width in enumerate(inputs)]
    dtypes = [UNSIGNED[width] for width in outputs]
    own = emulate(asm, constraints, arguments, dtypes, pack=pack, target="sm_100a", convention="llvm")
    text, words = in_tritons_form(asm, constraints, inputs, outputs, pack)
    tritons = emulate(text, words, arguments, dtypes, pack=pack, target="sm_100a")
    assert [a.tobytes() for a in own] == [b.tobytes() for b in tritons]


def test_text_in_tritons_form_stays_as_it_is():
    same = "add.f16x2 $0, $1, $2;", "=r,r,r"
    assert in_tritons_form(*same, [16, 16], [16], 2) == same


def test_bits_that_no_element_fills_stay_undefined():
    text, words = in_tritons_form("shr.u32 $0, $2, 8; shr.u32 $1, $3, 8;", "=&r,=r,r,r", [8], [8], 2)
    with pytest.raises(PtxError, match="undefined bits"):
        emulate(text, words, [patterns(8)], "uint8", pack=2)
    with pytest.raises(PtxError, match="undefined bits"):
        emulate(
            "shr.u32 $0, $2, 8; shr.u32 $1, $3, 8;", "=&r,=r,r,r", [patterns(8)], "uint8", pack=2, convention="llvm"
        )


def test_registers_of_the_block_do_not_collide_with_those_of_the_moves():
    block = "{ .reg .b16 ptxdiff_0; mov.b16 ptxdiff_0, $2; mov.b16 $0, $3; mov.b16 $1, ptxdiff_0; }"
    text, words = in_tritons_form(block, "=&h,=h,h,h", [16], [16], 2)
    got = emulate(text, words, [HALVES[0]], "uint16", pack=2)
    np.testing.assert_array_equal(got.reshape(-1, 2), HALVES[0].reshape(-1, 2)[:, ::-1])


def test_an_output_that_shares_its_register_overwrites_the_input_in_every_spelling():
    for convention, asm in (
        ("llvm", "neg.f32 $0, $1; sub.f32 $0, $0, $2;"),
        ("cuda", "neg.f32 %0, %1; sub.f32 %0, %0, %2;"),
    ):
        plain, shared = (
            emulate(asm, "=f,f,f", list(F32), "float32", convention=convention, share=s) for s in (None, {0: 2})
        )
        assert plain.tobytes() != shared.tobytes()


# CUDA C++ ----------------------------------------------------------------------------------------------------


def test_a_read_write_operand_is_an_output_and_an_input_after_all_others():
    found = spelled("fma.rn.f32 %0, %1, %2, %0;", '"+f"(acc) : "f"(a), "f"(b) : "memory"', "cuda")
    assert found.text == "fma.rn.f32 $0, $1, $2, $0;"
    assert found.constraints == "=f,f,f,0,~{memory}"
    assert found.expressions == ("acc", "a", "b", "acc")
    got = emulate(
        "add.f32 %0, %0, %1;",
        '"+f"(y) : "f"(a)',
        [np.float32([1, 2]), np.float32([10, 20])],
        "float32",
        convention="cuda",
    )
    np.testing.assert_array_equal(got, np.float32([11, 22]))


def test_a_constant_with_a_value_is_written_into_the_text():
    found = spelled("shl.b32 %0, %2, %1; add.u32 %0, %0, %3;", '"=r"(y) : "n"(0x10), "r"(a), "r"(b)', "cuda")
    assert (found.text, found.constraints) == ("shl.b32 $0, $1, 16; add.u32 $0, $0, $2;", "=r,r,r")


def test_a_constant_without_a_value_is_an_argument():
    got = emulate(
        "shl.b32 %0, %1, %2;", '"=r"(y) : "r"(a), "n"(W)', [np.uint32([1, 3]), 4], "uint32", convention="cuda"
    )
    np.testing.assert_array_equal(got, np.uint32([16, 48]))


def test_percent_signs_dollars_braces_and_names():
    text = "{ .reg .b32 %%t$x; mov.u32 %%t$x, %[in]; add.u32 %[out], %%t$x, 1; }"
    found = spelled(text, '[out] "=r"(y) : [in] "r"(x)', "cuda")
    assert found.text == "{ .reg .b32 %t$$x; mov.u32 %t$$x, $1; add.u32 $0, %t$$x, 1; }"
    got = emulate(text, '[out] "=r"(y) : [in] "r"(x)', [np.uint32([7])], "uint32", convention="cuda")
    assert got == 8


def test_expressions_with_commas_colons_and_strings():
    found = spelled("mov.b32 %0, %1;", '"=r"(y[f(1, 2)]) : "r"(std::bit_cast<int>(c ? "a,:" : b))', "cuda")
    assert found.constraints == "=r,r"
    assert found.expressions == ("y[f(1, 2)]", 'std::bit_cast<int>(c ? "a,:" : b)')


def test_no_operands_before_the_first_colon():
    assert spelled("prefetch.global.L1 [%0];", ': "l"(p)', "cuda").constraints == "l"
    assert spelled("bar.sync 0;", '::: "memory"', "cuda").constraints == "~{memory}"


@pytest.mark.parametrize(
    ("asm", "constraints", "words"),
    [
        ("mov.u32 %0, %r1;", '"=r"(y)', "line 1, column 13: in a CUDA statement %r1 is written %%r1"),
        ("mov.u32 %0, %_x;", '"=r"(y)', "line 1, column 13: in a CUDA statement %_x is written %%_x"),
        ("mov.u32 %0, %3;", '"=r"(y) : "r"(x)', "operand %3 does not exist: the statement has 2 operands, %0 to %1"),
        ("mov.u32 %0, %[x];", '"=r"(y) : "r"(x)', "no operand is named"),
        ("mov.u32 %0, %1;", '"r"(x)', "an output is written"),
        ("mov.u32 %0, %1;", '"=r"(y) : "=r"(x)', "an output stands before the first colon"),
        ("mov.u32 %0, %1;", '"=r"(y) : "r"(x) : "memory" : goto', "4 parts between colons"),
        ("mov.u32 %0, %1;", '"=r"(y) : r(x)', "is written"),
        ("mov.u32 %0, %1;", "r,=r", "outputs come before inputs"),
        ("mov.u32 $0, $1;", '"=r"(y) : "r"(x)', r"in a CUDA statement operand \$0 is written %0"),
    ],
)
def test_wrong_cuda_is_refused_with_its_place(asm, constraints, words):
    with pytest.raises(PtxError, match=words):
        emulate(asm, constraints, [np.uint32([1])], "uint32", convention="cuda")


@pytest.mark.parametrize("convention", ["triton", "llvm", "cuda"])
@pytest.mark.parametrize("begin", ["asm volatile(", "asm(", "__asm__ __volatile__ (", "\n  asm\tvolatile ("])
def test_a_whole_statement_of_cplusplus_is_told_from_its_text(convention, begin):
    statement = begin + '"mov.u32 %0, %1;" : "=r"(y) : "r"(x));'
    with pytest.raises(BindingError, match=r"the text is a C\+\+ statement.*between its quotation marks"):
        emulate(statement, '"=r"(y) : "r"(x)', [np.uint32([1])], "uint32", convention=convention)


def test_cuda_in_tritons_convention_names_the_right_convention():
    with pytest.raises(BindingError, match="convention='cuda'"):
        emulate("mov.u32 $0, $1;", '"=r"(y) : "r"(x)', [np.uint32([1])], "uint32")


def test_an_unknown_convention_is_refused():
    with pytest.raises(BindingError, match="convention='gcc' is none of triton"):
        emulate("mov.u32 $0, $1;", "=r,r", [np.uint32([1])], "uint32", convention="gcc")


def test_operands_that_fit_in_several_ways_are_refused():
    with pytest.raises(BindingError, match="in several ways"):
        emulate("", "=r,=r,r,r,r,r,r,r", [HALVES[0], HALVES[1]], "uint16", pack=4, convention="llvm")


def test_operands_that_fit_in_no_way_are_refused():
    with pytest.raises(BindingError, match="declare 3 input operands"):
        emulate("", "=r,r,r,r", [F32[0], F32[1]], "float32", convention="llvm")


def test_an_element_without_a_counterpart_in_triton_is_refused():
    with pytest.raises(BindingError, match="has no counterpart in Triton"):
        in_tritons_form("mov.b64 $0, $2; mov.b64 $1, $3;", "=l,=l,l,l", [8], [8], 2)


def test_trace_takes_a_convention():
    found = trace("add.u32 %0, %1, 1;", '"=r"(y) : "r"(x)', [np.uint32([4])], "uint32", convention="cuda")
    assert found.outputs[0] == 5


# spellings that look alike -----------------------------------------------------------------------------------

ONE, TWELVE = np.uint32([5]), [np.uint32([100 + n]) for n in range(12)]


def run(asm, constraints, args, convention):
    return int(emulate(asm, constraints, args, "uint32", convention=convention)[0])


MANY = "add.u32 {0}0, {0}1, {0}12;", "=r" + ",r" * 12


@pytest.mark.parametrize(("convention", "sign"), [("triton", "$"), ("llvm", "$"), ("cuda", "%")])
def test_operands_from_ten_on_have_two_digits(convention, sign):
    asm, constraints = MANY[0].format(sign), MANY[1]
    assert run(asm, constraints, TWELVE, convention) == 100 + 111
    with pytest.raises(PtxError, match="does not exist"):
        run(asm.replace("12;", "20;"), constraints, TWELVE, convention)


@pytest.mark.parametrize(
    ("asm", "convention", "value"),
    [
        ("mov.b32 ${0}, ${1};", "triton", 5),
        ("mov.b32 ${0}, ${1:r};", "llvm", 5),
        ("mov.b32 $0, $1; // $$7 %%tid %tid {|}", "triton", 5),
        ("mov.b32 %0, %1; // $7 %%tid {|}", "cuda", 5),
        ("{ .reg .b32 %t; mov.b32 %t, $1; mov.b32 $0, %t; }", "triton", 5),
        ("{ .reg .b32 %%t; mov.b32 %%t, %1; mov.b32 %0, %%t; }", "cuda", 5),
        ("{ .reg .b32 t$$; mov.b32 t$$, $1; mov.b32 $0, t$$; }", "llvm", 5),
        ("{ .reg .b32 t$; mov.b32 t$, %1; mov.b32 %0, t$; }", "cuda", 5),
        ("%{ .reg .pred p, q; setp.gt.u32 p%|q, %1, 3; selp.b32 %0, 1, 2, p; %}", "cuda", 1),
        ("{ .reg .pred p, q; setp.gt.u32 p|q, $1, 3; selp.b32 $0, 1, 2, q; }", "triton", 2),
        ("mov.b32 $0, $(1$|2$);", "llvm", 1),  # LLVM prints the first of the dialects
        ("{ L${:uid}: mov.b32 $0, $1; }", "triton", 5),
        ("{ L%=: mov.b32 %0, %1; }", "cuda", 5),
    ],
)
def test_escapes_and_dialect_braces(asm, convention, value):
    assert run(asm, "=r,r", [ONE], convention) == value


@pytest.mark.parametrize(
    ("asm", "constraints", "convention", "words"),
    [
        ("mov.b32 $0, $10;", "=r,r", "triton", r"\$10 does not exist"),  # not $1 and a zero
        ("mov.b32 $0, ${1}0;", "=r,r", "triton", "runs into the text"),
        ("mov.b32 %0, %10;", "=r,r", "cuda", "%10 does not exist"),
        (
            "mov.b32 %0, %1;",
            "=r,r",
            "triton",
            r"no register %1 is declared here; CUDA C\+\+ writes .* write \$1, or give",
        ),
        ("mov.b32 %0, %1;", "=r,r", "llvm", "no register %1"),
        ("mov.b32 $0, $1;", "=r,r", "cuda", r"\$0 is written %0"),
        ("mov.b32 $0, %%tid.x;", "=r,r", "triton", "%"),
        ("mov.b32 %0, %tid1;", "=r,r", "cuda", "no register %tid1"),
        ("mov.b32 %0, %x1;", "=r,r", "cuda", "%%x1"),  # GCC's operand modifiers
        ("add.u32 $0, $1, ${1:n};", "=r,r", "triton", "':n'"),  # LLVM's: the negative of a constant
        ("mov.b32 $0, ${1:h};", "=r,r", "llvm", "':h'"),
        ("mov.b32 $0, $1; // costs $5", "=r,r", "triton", r"\$5 does not exist"),  # comments are replaced as well
        ("mov.b32 %0, %1; // costs %5", "=r,r", "cuda", "%5 does not exist"),
        ("mov.b32 %0, %1; // 100%", "=r,r", "cuda", "single %"),
        ("mov.b32 $0, $1; // $", "=r,r", "llvm", "dollar sign"),
        ("add.u32 $0, $0, $1;", "+r,r", "triton", "no read-write operands"),
        ("add.u32 $0, $0, $1;", "+r,r", "llvm", "no read-write operands"),
        ("add.u32 %0, %0, %2;", "+r,r", "cuda", "%2 does not exist"),  # +r is one operand, not two
    ],
)
def test_spellings_of_another_convention_are_refused(asm, constraints, convention, words):
    with pytest.raises(PtxError, match=words):
        emulate(asm, constraints, [ONE, ONE] if "+" in constraints else [ONE], "uint32", convention=convention)


@pytest.mark.parametrize("percent", ["%%", "%"])
def test_a_single_percent_sign_before_a_word_stands_in_cuda(percent):
    """nvcc 13.0 gives `%v` where the statement has `%v` or `%%v`."""
    text = "{ .reg .b32 %v; add.u32 %v, %1, 1; mov.b32 %0, %v; }".replace("%v", f"{percent}v")
    assert run(text, "=r,r", [ONE], "cuda") == run("add.u32 $0, $1, 1;", "=r,r", [ONE], "triton")


def test_read_write_operands_count_once_in_the_text_and_their_values_come_last():
    asm, constraints = "sub.u32 %0, %0, %2; sub.u32 %1, %1, %3;", "+r,+r,r,r"
    found = spelled(asm, constraints, "cuda")
    assert found.text == "sub.u32 $0, $0, $2; sub.u32 $1, $1, $3;"
    assert found.constraints == "=r,=r,r,r,0,1"
    arguments = [np.uint32([n]) for n in (1, 2, 30, 40)]  # %2, %3, then the old values of %0 and %1
    first, second = emulate(asm, constraints, arguments, ["uint32", "uint32"], convention="cuda")
    assert (first[0], second[0]) == (29, 38)


def test_a_constant_with_a_value_counts_as_an_operand_of_the_text_but_takes_no_argument():
    asm = "add.u32 %0, %2, %1; shl.b32 %0, %0, %3;"
    got = emulate(asm, '"=r"(y) : "n"(7), "r"(x), "n"(2)', [ONE], "uint32", convention="cuda")
    assert got == (5 + 7) << 2


@pytest.mark.parametrize("text", ["%0", "$0"])
def test_operands_inside_strings_of_asm_are_replaced(text):
    """A compiler also replaces operands inside strings, such as that of a `.pragma`."""
    convention = "cuda" if "%" in text else "triton"
    asm = f'.pragma "{text}"; mov.b32 {text}, {text[0]}1;'
    with pytest.raises(PtxError):
        run(asm.replace("0", "9", 1), "=r,r", [ONE], convention)
