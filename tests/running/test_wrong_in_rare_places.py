"""Code that is wrong for one number, or only for equal neighbours: which input set shows it at quick effort."""

import pytest

from ptxdiff import Case, asm, plain
from ptxdiff.backends import create
from ptxdiff.model.load import LoadedCase
from ptxdiff.references import bits
from ptxdiff.references.formats import BF16, F16, F32, U8, U16, U32
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item
from tests.support.running.rare_kernels import counted_but_for_one, counted_but_for_one_of_its_own

pytest.importorskip("torch")

POPC = (
    "{{ .reg .pred p; .reg .b32 t; {special} setp.eq.u32 p, {left}, {right}; popc.b32 $0, $1; @p add.u32 $0, $0, 1; }}"
)
TEXTS = {
    "the constant itself": ("", "$1", "0x37c5e21b"),
    "its successor": ("add.u32 t, $1, -1;", "t", "0x37c5e21b"),
    "its negation": ("neg.s32 t, $1;", "t", "0x37c5e21b"),
    "its complement": ("not.b32 t, $1;", "t", "0x37c5e21b"),
    "a product of two constants": ("mov.b32 t, 0x10133; mul.lo.u32 t, t, 0x1d35;", "$1", "t"),
    "a sum of two constants": ("mov.b32 t, 0x1d350133; add.u32 t, t, 0x2e13f7;", "$1", "t"),
    "a shifted constant": ("mov.b32 t, 0x1d35f; shl.b32 t, t, 11;", "$1", "t"),
    "a product with the input": ("mul.lo.u32 t, $1, 0x9e3779b1;", "t", "0x37c5e21b"),
    "the bytes the other way round": ("prmt.b32 t, $1, 0, 0x0123;", "t", "0x37c5e21b"),
    "mixed with itself": ("shr.u32 t, $1, 15; xor.b32 t, t, $1;", "t", "0x37c5e21b"),
    "a byte repeated, not all bits alike": (
        "shf.l.wrap.b32 t, $1, $1, 8; setp.ne.u32 p, t, $1; popc.b32 t, t; @p mov.b32 t, 0;",
        "t",
        "12",
    ),
    "four bytes one by one": (
        "and.b32 t, $1, 255; setp.eq.u32 p, t, 0x5d; bfe.u32 t, $1, 8, 8; setp.eq.and.u32 p, t, 0x13, p;"
        "bfe.u32 t, $1, 16, 8; setp.eq.and.u32 p, t, 0xe2, p; shr.u32 t, $1, 24; selp.b32 t, t, 0, p;",
        "t",
        "0x9b",
    ),
    "lop3 with two constants": ("lop3.b32 t, $1, 0x1d350133, 0xc2e13f7a, 0x96;", "t", "0x37c5e21b"),
    "lop3 in its last operand": ("lop3.b32 t, 0x1d350133, 0xc2e13f7a, $1, 0xe8;", "t", "0xc2a1017b"),
    "a product of 64 bits": (
        "{ .reg .b64 w; mul.wide.u32 w, $1, 0x9e3779b1; setp.eq.u64 p, w, 2483796300428810155; selp.b32 t, 1, 0, p; }",
        "t",
        "1",
    ),
    "a negative product of 64 bits": (
        "{ .reg .b64 w; mul.wide.s32 w, $1, 7654321; setp.eq.s64 p, w, -7162265691798955; selp.b32 t, 1, 0, p; }",
        "t",
        "1",
    ),
}


def found(variant, formats, reference, path, *, effort="quick"):
    """The results of a variant on the emulator."""
    case = Case(inputs=formats, outputs={"y": U32}, reference=reference, variants={"v": variant}, source="a test")
    return run_item(
        Item(LoadedCase(case, "rare", "case", path, ""), "v", "sm_90a", "emulator"), create("emulator"), effort
    ).results


def failing(results):
    """The names of the input sets that show a fault."""
    assert {r.verdict for r in results} <= {"pass", "fail"}
    return {r.key.input_set.partition("+")[0] for r in results if r.verdict == "fail"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", TEXTS)
def test_constants_of_the_asm_are_inputs(name, tmp_path):
    special, left, right = TEXTS[name]
    variant = asm(POPC.format(special=special, left=left, right=right), constraints="=&r,r")
    sets = failing(found(variant, {"x": U32}, bits.popc, tmp_path / "c.py"))
    assert sets - {"constants-built/1"} == {"constants/3"}


def test_two_inputs_that_differ_by_a_constant(tmp_path):
    text = """{ .reg .pred p; .reg .b32 t; sub.u32 t, $1, $2; setp.eq.u32 p, t, 0x37c5e21b; add.u32 $0, $1, $2;
        @p xor.b32 $0, $0, 4; }"""
    results = found(
        asm(text, constraints="=&r,r,r"),
        {"a": U32, "b": U32},
        lambda a, b: (a + b) & 0xFFFFFFFF,
        tmp_path / "c.py",
    )
    assert "constants/3" in failing(results)


MADE_BY_TWO = {
    "product": "mul.lo.u32 t, $1, $2; setp.eq.u32 p, t, 0x37c5e21b;",
    "even product": "mul.lo.u32 t, $1, $2; setp.eq.u32 p, t, 0x37c5e218;",
    "upper half of the product": "mul.hi.u32 t, $1, $2; setp.eq.u32 p, t, 0x37c5e21b;",
    "product and no overflow": "{ .reg .b64 w; mul.wide.u32 w, $1, $2; setp.eq.u64 p, w, 1234567; }",
    "product that just overflows": "{ .reg .b64 w; mul.wide.u32 w, $1, $2; setp.eq.u64 p, w, 0x100000000; }",
    "product that overflows by little": "mul.lo.u32 t, $1, $2; mul.hi.u32 $0, $1, $2; setp.lt.u32 p, t, 77; "
    "setp.eq.and.u32 p, $0, 1, p;",
    "shift to the left": "shl.b32 t, $1, $2; setp.eq.u32 p, t, 0x37c5e200;",
    "shift to the right": "shr.u32 t, $1, $2; setp.eq.u32 p, t, 0x37c5e;",
    "shift of the second": "shl.b32 t, $2, $1; setp.eq.u32 p, t, 0x37c5e200;",
    "rotation": "shf.l.wrap.b32 t, $1, $1, $2; setp.eq.u32 p, t, 0x37c5e21b;",
    "common bits": "and.b32 t, $1, $2; setp.eq.u32 p, t, 0x37c5e21b;",
    "all bits": "or.b32 t, $1, $2; setp.eq.u32 p, t, 0x37c5e21b;",
    "quotient": "div.u32 t, $1, $2; setp.eq.u32 p, t, 0x37c5e;",
    "remainder": "rem.u32 t, $1, $2; setp.eq.u32 p, t, 0x37c5e;",
    "upper half of signed factors": "mul.hi.s32 t, $1, $2; setp.eq.s32 p, t, 0xc84d19e5;",
    "wide product of signed factors": "{ .reg .b64 w; mul.wide.s32 w, $1, $2; setp.eq.s64 p, w, -1234567890123; }",
    "signed quotient": "div.s32 t, $1, $2; setp.eq.s32 p, t, -123457;",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MADE_BY_TWO)
def test_what_two_inputs_make_together_is_a_constant(name, tmp_path):
    text = """{ .reg .pred p; .reg .b32 t; SPECIAL min.u32 t, $1, $2; setp.gt.and.u32 p, t, 2, p;
        xor.b32 $0, $1, $2; @p xor.b32 $0, $0, 4; }"""
    variant = asm(text.replace("SPECIAL", MADE_BY_TWO[name]), constraints="=&r,r,r")
    results = found(variant, {"a": U32, "b": U32}, lambda a, b: a ^ b, tmp_path / "c.py")
    assert "together/4" in failing(results)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("fmt", "type", "code"), [(F32, "f32", "0f42f6e979"), (F16, "f16", "0x3e3d"), (BF16, "bf16", "0x3fcb")],
    ids=["float32", "float16", "bfloat16"],
)  # fmt: skip
@pytest.mark.parametrize("step", ["add", "mul"])
def test_what_two_floats_make_together_is_a_constant(step, fmt, type, code, tmp_path):
    bits = fmt.code_bits
    mantissa = (1 << fmt.mantissa_bits) - 1
    text = f"""{{ .reg .pred p; .reg .b{bits} t, c; {step}.rn.{type} t, $1, $2; mov.b{bits} c, {code};
        setp.eq.{type} p, t, c; and.b{bits} t, $1, {mantissa}; setp.ne.and.s{bits} p, t, 0, p;
        and.b{bits} t, $2, {mantissa}; setp.ne.and.s{bits} p, t, 0, p; xor.b{bits} t, $1, $2; cvt.u32.u{bits} $0, t;
        @p xor.b32 $0, $0, 4; }}"""
    kind = "h" if bits == 16 else "r"
    variant = asm(text, constraints=f"=&r,{kind},{kind}")
    results = found(variant, {"a": fmt, "b": fmt}, lambda a, b: a ^ b, tmp_path / "c.py")
    assert "together/4" in failing(results)


@pytest.mark.parametrize("step", ["mul.lo.u32 t, $1, v;", "add.u32 t, $1, v;", "xor.b32 t, $1, v;"])
def test_what_two_widths_make_together_is_a_constant(step, tmp_path):
    text = f"""{{ .reg .pred p; .reg .b32 t, v; cvt.u32.u16 v, $2; {step} setp.eq.u32 p, t, 0x37c5e21b;
        setp.gt.and.u32 p, v, 2, p; xor.b32 $0, $1, v; @p xor.b32 $0, $0, 4; }}"""
    variant = asm(text, constraints="=&r,r,h")
    results = found(variant, {"a": U32, "b": U16}, lambda a, b: a ^ b, tmp_path / "c.py")
    assert "together/4" in failing(results)


@pytest.mark.parametrize("function", [counted_but_for_one, counted_but_for_one_of_its_own])
def test_constants_of_a_triton_function_are_inputs(function, tmp_path):
    pytest.importorskip("triton")
    assert failing(found(plain(function), {"x": U32}, bits.popc, tmp_path / "c.py")) == {"constants/3"}


ONE = "{ .reg .pred p; WRONG mov.b32 $0, $2; mov.b32 $1, $3; @p xor.b32 $1, $1, 1; }"
PAIRS = {"equal": "setp.eq.u32 p, $2, $3;", "nowhere": "setp.ne.u32 p, $2, $2;"}


SHOWN = {"neighbours/1", "words-2/1", "constants-2/2", "constants-pairs-2/2", "constants-relations-2/2"}
"""The sets with equal neighbours."""


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("fmt", [U32, F32], ids=["U32", "F32"])
def test_neighbours_that_are_equal(name, fmt, tmp_path):
    variant = asm(ONE.replace("WRONG", PAIRS[name]), constraints="=&r,=&r,r,r", pack=2)
    sets = failing(found(variant, {"x": fmt}, lambda x: x, tmp_path / "c.py"))
    # The edges show it only in a partial pack, which runs on some of a case's targets.
    assert sets - {"edges/1"} == (SHOWN if name == "equal" else set())


def test_two_pairs_of_equal_neighbours(tmp_path):
    """The first and the last of four are equal to each other, and so are the two between them, with another value."""
    text = """{ .reg .pred p; setp.eq.u32 p, $4, $7; setp.eq.and.u32 p, $5, $6, p; setp.ne.and.u32 p, $4, $5, p;
        mov.b32 $0, $4; mov.b32 $1, $5; mov.b32 $2, $6; mov.b32 $3, $7; @p xor.b32 $2, $2, 1; }"""
    variant = asm(text, constraints="=&r,=&r,=&r,=&r,r,r,r,r", pack=4)
    sets = failing(found(variant, {"x": U32}, lambda x: x, tmp_path / "c.py"))
    assert sets == {"neighbours/1", "words-4/1", "constants-pairs-4/2"}


def test_equal_neighbours_where_all_inputs_run(tmp_path):
    """All 256 inputs run, but neighbours always differ."""
    text = """{ .reg .pred p; .reg .b32 a, b; bfe.u32 a, $2, 0, 8; bfe.u32 b, $2, 8, 8; setp.eq.u32 p, a, b;
        mov.b32 $0, a; mov.b32 $1, b; @p add.u32 $1, $1, 1; }"""
    variant = asm(text, constraints="=&r,=&r,r", pack=2)
    results = found(variant, {"x": U8}, lambda x: x, tmp_path / "c.py")
    assert failing(results) == SHOWN
