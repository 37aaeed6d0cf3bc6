"""Deliberate idioms of public code, and former false findings in it; each with a wrong version."""

import pytest

from ptxdiff.lint.extract import extract
from ptxdiff.lint.files import lint_text

MLIR = "llvm.inline_asm({results}, {arguments}, {asm}, {constraints}, has_side_effects={effects})"


def rules(text, path="file.py", **options):
    return [f.rule for f in lint_text(path, text.encode(), **options).findings]


def mlir(asm, constraints, arguments="[a]", results="T.i32()", effects="False"):
    return MLIR.format(
        results=results, arguments=arguments, asm=repr(asm), constraints=repr(constraints), effects=effects
    )


# ways through Python ---------------------------------------------------------------------------------------------

OFFSET = """
def load(address, offset=0):
    if offset:
        text = f"ld.shared.u32 $0, [$1+{offset}];"
    else:
        text = "ld.shared.u32 $0, [$1];"
    return llvm.inline_asm(T.i32(), [address], text, "=r,r", has_side_effects=True)
"""


def test_a_name_assumed_true_is_not_the_constant_true():
    extracted = extract("file.py", OFFSET.replace("=0", "").encode())
    assert [s.asm for s in extracted.snippets] == ["ld.shared.u32 $0, [$1];"]
    assert rules(OFFSET) == []


def test_a_flag_assumed_true_decides_the_purity():
    text = """
def run(a, pure):
    if pure:
        return tl.inline_asm_elementwise("neg.s32 $0, $1;", "=r,r", [a], tl.int32, pure, 1)
    return tl.inline_asm_elementwise("neg.s32 $0, $1;", "=r,r", [a], tl.int32, pure, 1)
"""
    assert [s.pure for s in extract("file.py", text.encode()).snippets] == [True, False]


OPCODE = """
def convert(a, kind):
    opcode = ""
    if kind == "e4m3":
        opcode = "cvt.rn.satfinite.e4m3x2.f32"
    elif kind == "e5m2":
        opcode = "cvt.rn.satfinite.e5m2x2.f32"
    return llvm.inline_asm(T.i16(), [a, b], f"{opcode} $0, $2, $1;", "=h,f,f", has_side_effects=False)
"""


def test_a_path_without_an_opcode_is_skipped_and_noted():
    extracted = extract("file.py", OPCODE.encode())
    assert len(extracted.snippets) == 2
    assert any("leaves out an opcode" in note.words for note in extracted.notes)
    assert rules(OPCODE) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('opcode = "cvt.rn.satfinite.e5m2x2.f32"', 'opcode = "cvt.rn.satfinit.e5m2x2.f32"'),
        ('opcode = ""', 'opcode = "cvt"'),
        ('"{opcode} $0, $2, $1;"', '"{opcode} $0 $2, $1;"'),
    ],
)
def test_a_mistake_on_one_path_is_found(before, after):
    assert rules(OPCODE.replace(before, after))


def test_a_missing_semicolon_on_one_path_is_found():
    text = """
def run(a, flag):
    text = "neg.s32 $0, $1;"
    if flag:
        text = "neg.s32 $0, $1"
    return llvm.inline_asm(T.i32(), [a], text, "=r,r", has_side_effects=False)
"""
    assert rules(text) == ["missing-semicolon"]


LONG = "def run(a):\n" + "    a = a + 1\n" * 5500


def test_a_call_in_a_function_too_long_to_follow_is_read_alone():
    text = f"W = 'neg.s32 $0, $1;'\n{LONG}    C = '=r,r'\n    y = llvm.inline_asm(T.i32(), [a], W, C)\n"
    (snippet,) = extract("file.py", text.encode()).snippets
    assert (snippet.asm, snippet.constraints, snippet.function) == ("neg.s32 $0, $1;", "=r,r", "run")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "local", ["    W = W + ';'\n    W = 'x'\n", "    for W in a:\n        pass\n", "    W = a.text()\n"]
)
def test_a_local_name_is_not_confused_with_the_modules(local):
    text = f"W = 'neg.s32 $0, $1;'\n{LONG}{local}    y = llvm.inline_asm(T.i32(), [a], W, '=r,r')\n"
    extracted = extract("file.py", text.encode())
    assert extracted.snippets == []
    assert any("not resolved" in note.words for note in extracted.notes)


# blocks ----------------------------------------------------------------------------------------------------------

QUIET = {
    "two destinations": (
        "tcgen05.ld.red.sync.aligned.32x32b.x2.max.f32 {%0, %1}, %2, [%3];", '"=f"(a), "=f"(b), "=f"(m) : "r"(t)',
    ),
    "a number for each copy": (
        "{ .reg .pred p; WAIT%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra.uni WAIT%=; }",
        ': "r"(a), "r"(b)',
    ),
    "a value that there is only then": (
        "{ .reg .pred p; .reg .b128 r; ld.shared.b128 r, [%1]; "
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r; "
        "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, r; }",
        '"=r"(y) : "r"(a)',
    ),
    "one load of two": (
        "{ .reg .pred p; setp.ne.u32 p, %2, 0; @!p mov.u32 %0, 0; @p ld.shared.u32 %0, [%1]; }",
        '"=r"(y) : "r"(a), "r"(b)',
    ),
    "loads of one instruction": ("ld.shared.v2.u32 {%0, %1}, [%2];", '"=r"(x), "=r"(y) : "r"(a)'),
    "an address of another size": ("ld.global.u32 %0, [%2]; ld.global.u32 %1, [%2+4];", '"=r"(x), "=r"(y) : "l"(a)'),
    "an output that is read back": ("ld.shared.u32 %0, [%1]; add.u32 %0, %0, 1;", '"=r"(x) : "r"(a)'),
}  # fmt: skip


@pytest.mark.parametrize(("asm", "operands"), QUIET.values(), ids=QUIET)
def test_a_spelling_of_public_cuda_is_quiet(asm, operands):
    assert rules(f'asm volatile("{asm}" : {operands} : "memory");', "file.cu") == []


EARLY = {
    "two loads": ("ld.shared.u32 %0, [%2]; ld.shared.u32 %1, [%2+4];", '"=r"(x), "=r"(y) : "r"(a)'),
    "an atomic before a load": ("atom.shared.or.b32 %0, [%2], 1; ld.shared.u32 %1, [%2];", '"=r"(x), "=r"(y) : "r"(a)'),
    "a default before a load": (
        "{ .reg .pred p; setp.ne.u32 p, %2, 0; mov.u32 %0, 0; @p ld.shared.u32 %0, [%1]; }",
        '"=r"(y) : "r"(a), "r"(b)',
    ),
    "a predicate that is set again": (
        "{ .reg .pred p; setp.ne.u32 p, %2, 0; @!p mov.u32 %0, 0; setp.ne.u32 p, %2, 1; @p ld.shared.u32 %0, [%1]; }",
        '"=r"(y) : "r"(a), "r"(b)',
    ),
    "the same predicate": (
        "{ .reg .pred p; setp.ne.u32 p, %2, 0; mov.u32 %0, 0; @p mov.u32 %0, 1; @p ld.shared.u32 %0, [%1]; }",
        '"=r"(y) : "r"(a), "r"(b)',
    ),
    "another thread": ("shfl.sync.bfly.b32 %0, %2, 1, 31, -1; add.u32 %1, %0, %2;", '"=r"(x), "=r"(y) : "r"(a)'),
}  # fmt: skip


@pytest.mark.parametrize(("asm", "operands"), EARLY.values(), ids=EARLY)
def test_an_output_written_before_a_later_read_is_found_without_a_run(asm, operands):
    text = f'asm volatile("{asm}" : {operands} : "memory");'
    (finding,) = lint_text("file.cu", text.encode()).findings
    assert finding.rule == "missing-early-clobber"
    assert "found from the order of the instructions" in finding.message
    assert rules(text.replace('"=r"', '"=&r"'), "file.cu") == []


NAMES = """
__device__ float cvt_bf16x2_e4m3x2(unsigned short x) {{
  unsigned h; float f; unsigned y;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(x));
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)h));
  {}
  return f;
}}
"""


def test_a_function_that_converts_through_another_format_is_named_rightly():
    assert rules(NAMES.format('asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(y) : "f"(f));'), "file.cu") == []
    assert set(rules(NAMES.format(""), "file.cu")) == {"name-mismatch"}


CHOSEN = """
if os.environ.get("IO") == "fp16":
    CVT = "cvt.f32.f16"
else:
    CVT = "cvt.f32.bf16"

def unpack_bf16(a):
    return llvm.inline_asm(T.f32(), [a], {}, "=f,h", has_side_effects=False)
"""


def test_a_format_that_the_module_chooses_is_no_mismatch():
    assert rules(CHOSEN.format('CVT + " $0, $1;"')) == []
    assert rules(CHOSEN.format('"cvt.f32.f16 $0, $1;"')) == ["name-mismatch"]
    assert rules(CHOSEN.replace('"cvt.f32.f16"', '"cvt.f32.f16 $0, $1;"').format("CVT")) == ["name-mismatch"]


def test_an_empty_default_is_no_block():
    text = """
def run(x, asm="", constraints=""):
    return llvm.inline_asm(T.i32(), [x], asm, constraints, has_side_effects=False)
"""
    extracted = extract("file.py", text.encode())
    assert extracted.snippets == []
    assert "the asm is empty" in extracted.notes[0].words


def test_notes_come_once_a_file():
    each = 'asm volatile("neg.f32 %0, %1;" : "=f"(y) : "f"(a));\n'
    (finding,) = lint_text("file.cu", (each * 5).encode()).findings
    assert (finding.rule, finding.line) == ("impure-arithmetic", 1)
    assert "4 more in this file" in finding.message


def test_a_tied_output_shares_no_register_of_another_kind():
    floats = "add.f32 $0, $0, 0f3F800000; { .reg .f32 t; cvt.rn.f32.u32 t, $4; add.f32 $1, $1, t; }"
    words = "add.u32 $0, $0, 1; add.u32 $1, $1, $4;"
    assert rules(mlir(floats, "=f,=f,0,1,r", "[a, b, c]", "struct")) == []
    assert rules(mlir(words, "=r,=r,0,1,r", "[a, b, c]", "struct")) == ["missing-early-clobber"]


def test_asm_of_an_amd_gpu_without_operands_is_ignored():
    extracted = extract("file.py", mlir("s_barrier", "~{memory}", "[]", "None").encode())
    assert (extracted.snippets, extracted.notes) == ([], [])
    assert [n.words for n in extracted.skipped] == ["asm of an AMD GPU"]


def test_stochastic_rounding_takes_one_word_of_several():
    text = 'y = tl.inline_asm_elementwise("{}", "=r,r,r,r,r", [a, r], dtype=tl.float16, is_pure=True, pack=2)'
    assert rules(text.format("cvt.rs.f16x2.f32 $0, $2, $1, $3;")) == []
    assert "operand-unused" in rules(text.format("cvt.rn.f16x2.f32 $0, $2, $1; and.b32 $0, $0, $3;"))


# orders of packing -----------------------------------------------------------------------------------------------

PACK = "{{ .reg .b16 lo, hi; cvt.rn.satfinite.e4m3x2.f32 lo, {}, {}; cvt.rn.satfinite.e4m3x2.f32 hi, {}, {}; "
PACK += "mov.b32 $0, {{lo, hi}}; }}"


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ("$2 $1 $4 $3", False),
        ("$3 $4 $1 $2", False),
        ("$2 $1 $3 $4", True),
        ("$1 $2 $3 $4", True),
        ("$4 $3 $2 $1", True),
    ],
)
def test_arguments_are_packed_in_one_order(order, found):
    text = mlir(PACK.format(*order.split()), "=r,f,f,f,f", "[a, b, c, d]")
    assert rules(text) == (["packing-order"] if found else [])


def test_results_of_two_registers_are_one_row_of_bits():
    two = "cvt.rn.bf16x2.f32 $0, {}, {}; cvt.rn.bf16x2.f32 $1, {}, {};"
    arguments = "[a, b, c, d]"
    assert rules(mlir(two.format("$3", "$2", "$5", "$4"), "=&r,=r,f,f,f,f", arguments, "struct")) == []
    assert rules(mlir(two.format("$3", "$2", "$4", "$5"), "=&r,=r,f,f,f,f", arguments, "struct")) == ["packing-order"]


def test_two_arguments_may_have_either_order():
    for operands in ("$1, $2", "$2, $1"):
        assert rules(mlir(f"cvt.rn.bf16x2.f32 $0, {operands};", "=r,f,f", "[a, b]")) == []
