"""Code that is wrong for what a whole pack holds: each variant fails at quick effort, on one target, whatever its name.

A variant copies its inputs, but for the words, or the lanes, that its condition names. Its twin has the same condition
and is right there, too.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from ptxdiff import Case, asm, emulate, plain
from ptxdiff.backends import create
from ptxdiff.inputs import word_sets
from ptxdiff.model.load import LoadedCase
from ptxdiff.references.formats import BF16, E2M1X2, F16, F32, U8, U16, Format
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item
from tests.support.sampling import paired

pytest.importorskip("torch")

NAMES = ("copy", "a_second_name", "cases.third", "z")

HEAD = "{ .reg .pred p, q; .reg .b32 t, u, v; .reg .b64 w; .reg .b16 h, l; "
HALVES = "mov.b32 {l, h}, $1; "
BYTES = "bfe.u32 t, $1, {}, 8; bfe.u32 u, $1, {}, 8; "
FOUR = "mov.b32 {{l, h}}, ${0}; "

# format, pack, condition: it sets p for the words that are copied wrong.
BYTES_OF_A_WORD = {
    "zero": "setp.eq.u32 p, $1, 0;",
    "all ones": "setp.eq.u32 p, $1, 0xffffffff;",
    "all ones, found by a complement": "not.b32 t, $1; setp.eq.u32 p, t, 0;",
    "the top bit of every lane": "setp.eq.u32 p, $1, 0x80808080;",
    "the top bit of every lane, computed": "mul.lo.u32 t, $1, 2; and.b32 t, t, 0xfefefefe; setp.eq.u32 p, t, 0;",
    "a one alone": "setp.eq.u32 p, $1, 1;",
    "a one alone, by a difference": "sub.u32 t, $1, 1; setp.eq.u32 p, t, 0;",
    "the top bit alone": "setp.eq.s32 p, $1, -2147483648;",
    "the largest integer": "setp.eq.u32 p, $1, 0x7fffffff;",
    "the low half zero": "and.b32 t, $1, 0xffff; setp.eq.u32 p, t, 0;",
    "the low half zero, the high half not": "shl.b32 t, $1, 16; setp.eq.u32 p, t, 0; setp.ne.and.u32 p, $1, 0, p;",
    "the high half zero": "shr.u32 t, $1, 16; setp.eq.u32 p, t, 0;",
    "the high half all ones": "shr.s32 t, $1, 16; setp.eq.s32 p, t, -1;",
    "the three upper lanes zero": "setp.lt.u32 p, $1, 256;",
    "the three lower lanes zero": "and.b32 t, $1, 0xffffff; setp.eq.u32 p, t, 0; setp.ne.and.u32 p, $1, 0, p;",
    "three lanes zero and one 0x80": "setp.eq.u32 p, $1, 0x8000;",
    "the outer lanes zero": "and.b32 t, $1, 0xff0000ff; setp.eq.u32 p, t, 0;",
    "the inner lanes all ones": "or.b32 t, $1, 0xff0000ff; setp.eq.u32 p, t, -1; setp.ne.and.u32 p, $1, -1, p;",
    "every second lane zero": "and.b32 t, $1, 0x00ff00ff; setp.eq.u32 p, t, 0; setp.ne.and.u32 p, $1, 0, p;",
    "all lanes equal": "mul.lo.u32 t, $1, 0x01010101; prmt.b32 u, $1, 0, 0; setp.eq.u32 p, u, $1;",
    "equal halves": "prmt.b32 t, $1, 0, 0x1032; setp.eq.u32 p, t, $1;",
    "a palindrome": "prmt.b32 t, $1, 0, 0x0123; setp.eq.u32 p, t, $1;",
    "runs of two": "prmt.b32 t, $1, 0, 0x2200; setp.eq.u32 p, t, $1; setp.ge.and.u32 p, $1, 0x10000, p;",
    "first and last equal": (BYTES.format(0, 24)) + "setp.eq.u32 p, t, u;",
    "first and last complements": BYTES.format(0, 24) + "xor.b32 t, t, u; setp.eq.u32 p, t, 0xff;",
    "the second lane follows the first": BYTES.format(0, 8) + "add.u32 t, t, 1; setp.eq.u32 p, t, u;",
    "ascending lanes": "sub.u32 t, $1, 0x03020100; prmt.b32 u, t, 0, 0; setp.eq.u32 p, t, u;",
    "a word of the asm": "setp.eq.u32 p, $1, 0x37c5e21b;",
    "two numbers of the asm by turns": "prmt.b32 t, $1, 0, 0x1032; setp.eq.u32 p, t, $1; bfe.u32 t, $1, 0, 8; "
    "setp.eq.and.u32 p, t, 0x35, p; bfe.u32 t, $1, 8, 8; setp.eq.and.u32 p, t, 0xca, p;",
    "two numbers of the asm in the outer lanes": BYTES.format(0, 24)
    + "setp.eq.u32 p, t, 0x35; setp.eq.and.u32 p, u, 0xca, p;",
    "a number of the asm beside all ones": BYTES.format(8, 16)
    + "setp.eq.u32 p, t, 0x35; setp.eq.and.u32 p, u, 255, p;",
    "a word of the asm after a product": "mul.lo.u32 t, $1, 0x9e3779b1; setp.eq.u32 p, t, 0x37c5e21b;",
    "a word of the asm under a mask": "and.b32 t, $1, 0x00ffff00; setp.eq.u32 p, t, 0x00c5e200;",
    "a field of the asm": "bfe.u32 t, $1, 6, 12; setp.eq.u32 p, t, 0x5a3;",
    "a carry out of the word": "add.cc.u32 t, $1, 0x01010101; addc.u32 t, 0, 0; setp.ne.u32 p, t, 0;",
    "one bit set": "popc.b32 t, $1; setp.eq.u32 p, t, 1;",
    "31 bits set": "popc.b32 t, $1; setp.eq.u32 p, t, 31;",
    "NaN as a float32": "setp.nan.f32 p, $1, $1;",
    "minus zero as a float32": "setp.eq.f32 p, $1, 0f00000000; setp.ne.and.u32 p, $1, 0, p;",
    "infinity as a float32": "setp.eq.f32 p, $1, 0f7f800000;",
}
STEPS = (
    "bfe.u32 t, $1, 0, 8; bfe.u32 u, $1, 8, 8; sub.u32 v, u, t; setp.eq.s32 p, v, {0}; "
    "bfe.u32 t, $1, 16, 8; sub.u32 v, t, u; setp.eq.and.s32 p, v, {0}, p; "
    "bfe.u32 u, $1, 24, 8; sub.u32 v, u, t; setp.eq.and.s32 p, v, {0}, p;"
)
OTHERS = {
    "two bytes zero": (U8, 2, "and.b32 t, $1, 0xffff; setp.eq.u32 p, t, 0;"),
    "two equal bytes": (U8, 2, BYTES.format(0, 8) + "setp.eq.u32 p, t, u;"),
    "two bytes 0x0001": (U8, 2, "and.b32 t, $1, 0xffff; setp.eq.u32 p, t, 1;"),
    "two bytes 0x8080": (U8, 2, "and.b32 t, $1, 0xffff; setp.eq.u32 p, t, 0x8080;"),
    "eight bytes zero": (U8, 8, "or.b32 t, $2, $3; setp.eq.u32 p, t, 0;"),
    "the upper of two words zero": (U8, 8, "setp.eq.u32 p, $3, 0; setp.ne.and.u32 p, $2, 0, p;"),
    "equal words": (U8, 8, "setp.eq.u32 p, $2, $3;"),
    "0x80808080 in both words": (U8, 8, "setp.eq.u32 p, $2, 0x80808080; setp.eq.and.u32 p, $3, 0x80808080, p;"),
    "64 bits one": (U8, 8, "mov.b64 w, {$2, $3}; setp.eq.u64 p, w, 1;"),
    "64 bits all ones": (U8, 8, "mov.b64 w, {$2, $3}; setp.eq.s64 p, w, -1;"),
    "16-bit lanes zero": (U16, 2, "setp.eq.u32 p, $1, 0;"),
    "16-bit lanes 0x80008000": (U16, 2, "setp.eq.u32 p, $1, 0x80008000;"),
    "16-bit lanes equal": (U16, 2, HALVES + "setp.eq.u16 p, l, h;"),
    "the low lane of 16 bits zero": (U16, 2, HALVES + "setp.eq.u16 p, l, 0; setp.ne.and.u16 p, h, 0, p;"),
    "a word of the asm in 16-bit lanes": (U16, 2, "setp.eq.u32 p, $1, 0x37c5e21b;"),
    "four lanes of 16 bits zero": (U16, 4, "or.b32 t, $2, $3; setp.eq.u32 p, t, 0;"),
    "the last of four lanes alone": (U16, 4, "shr.u32 t, $3, 16; setp.ne.u32 p, t, 0; and.b32 u, $3, 0xffff; "
                                     "or.b32 u, u, $2; setp.eq.and.u32 p, u, 0, p;"),
    "a word of the asm in the second register": (U16, 4, "setp.eq.u32 p, $3, 0x37c5e21b;"),
    "eight lanes of 16 bits zero": (U16, 8, "or.b32 t, $4, $5; or.b32 u, $6, $7; or.b32 t, t, u; "
                                    "setp.eq.u32 p, t, 0;"),
    "eight lanes of 16 bits all ones": (U16, 8, "and.b32 t, $4, $5; and.b32 u, $6, $7; and.b32 t, t, u; "
                                        "setp.eq.u32 p, t, -1;"),
    "four equal words": (U16, 8, "setp.eq.u32 p, $4, $5; setp.eq.and.u32 p, $5, $6, p; setp.eq.and.u32 p, $6, $7, p;"),
    "the second of four words zero": (U16, 8, "setp.eq.u32 p, $5, 0; setp.ne.and.u32 p, $4, 0, p; "
                                      "setp.ne.and.u32 p, $6, 0, p; setp.ne.and.u32 p, $7, 0, p;"),
    "NaN beside infinity": (F16, 2, HALVES + "setp.nan.f16 p, l, l; and.b16 h, h, 0x7fff; "
                            "setp.eq.and.u16 p, h, 0x7c00, p;"),
    "infinity beside NaN": (F16, 2, HALVES + "setp.nan.f16 p, h, h; setp.eq.and.u16 p, l, 0x7c00, p;"),
    "a number of the asm beside larger ones": (F16, 2, HALVES + ".reg .b16 a; mov.b16 a, 0x4900; setp.gt.f16 p, l, a; "
                                               "setp.eq.and.f16 p, h, a, p;"),
    "infinities of both signs": (F16, 2, "setp.eq.u32 p, $1, 0xfc007c00;"),
    "zeros of both signs": (F16, 2, "and.b32 t, $1, 0x7fff7fff; setp.eq.u32 p, t, 0; "
                            "setp.eq.and.u32 p, $1, 0x80000000, p;"),
    "a pair whose sum is zero": (F16, 2, HALVES + "xor.b16 l, l, 0x8000; setp.eq.u16 p, l, h;"),
    "NaN in all four halves": (F16, 4, HALVES.replace("$1", "$2") + "setp.nan.f16 p, l, h; "
                               + HALVES.replace("$1", "$3") + "setp.nan.and.f16 p, l, h, p;"),
    "NaN in the last of eight halves": (F16, 8, HALVES.replace("$1", "$7") + "setp.nan.f16 p, h, h; "
                                        "setp.eq.and.u32 p, $4, 0, p;"),
    "NaN beside infinity in bfloat16": (BF16, 2, "and.b32 t, $1, 0x7fff7fff; setp.gt.u32 p, t, 0x7f80ffff; "
                                        "and.b32 t, t, 0xffff; setp.eq.and.u32 p, t, 0x7f80, p;"),
    "eight nibbles zero": (E2M1X2, 4, "setp.eq.u32 p, $1, 0;"),
    "eight nibbles 0x88888888": (E2M1X2, 4, "setp.eq.u32 p, $1, 0x88888888;"),
    "the low nibbles zero": (E2M1X2, 4, "and.b32 t, $1, 0x0f0f0f0f; setp.eq.u32 p, t, 0; setp.ne.and.u32 p, $1, 0, p;"),
    "one nibble alone": (E2M1X2, 4, "and.b32 t, $1, 0xfff0ffff; setp.eq.u32 p, t, 0; setp.ne.and.u32 p, $1, 0, p;"),
    "four nibbles all ones": (E2M1X2, 2, "and.b32 t, $1, 0xffff; setp.eq.u32 p, t, 0xffff;"),
    "sixteen nibbles zero": (E2M1X2, 8, "or.b32 t, $2, $3; setp.eq.u32 p, t, 0;"),
    "two float32 zero": (F32, 2, "or.b32 t, $2, $3; setp.eq.u32 p, t, 0;"),
    "float32 NaN beside infinity": (F32, 2, "setp.nan.f32 p, $2, $2; setp.eq.and.f32 p, $3, 0f7f800000, p;"),
    "the second of four float32 zero": (F32, 4, "setp.eq.u32 p, $5, 0; setp.eq.and.u32 p, $4, 0x3f800000, p; "
                                        "setp.eq.and.u32 p, $6, 0x3f800000, p;"),
} | {
    f"16-bit lanes, {name}": (U16, 2, "mov.b32 {l, h}, $1; cvt.u32.u16 t, l; cvt.u32.u16 u, h; " + condition)
    for name, condition in {
        "one 37 more than the other": "sub.u32 v, t, u; setp.eq.u32 p, v, 37; setp.gt.and.u32 p, u, 9, p;",
        "that add up to a number": "add.u32 v, t, u; setp.eq.u32 p, v, 0x4d2; setp.ne.and.u32 p, t, 0, p; "
                                   "setp.ne.and.u32 p, u, 0, p;",
        "whose product is a number": "mul.lo.u32 v, t, u; setp.eq.u32 p, v, 3480; setp.gt.and.u32 p, t, 1, p; "
                                     "setp.gt.and.u32 p, u, 1, p;",
        "one a product of the other": "mad.lo.u32 v, t, 29, 11; setp.eq.u32 p, v, u; setp.ne.and.u32 p, t, 0, p;",
        "one the other shifted": "shl.b32 v, t, 5; setp.eq.u32 p, v, u; setp.gt.and.u32 p, u, 64, p;",
        "one the square of the other": "mul.lo.u32 v, t, t; setp.eq.u32 p, v, u; setp.gt.and.u32 p, t, 1, p;",
    }.items()
} | {
    f"float16 lanes, {name}": (F16, 2, ".reg .f32 f, g, s; " + HALVES + "cvt.f32.f16 f, l; cvt.f32.f16 g, h; "
                               + condition + "setp.eq.f32 p, s, 0f40e00000; setp.neu.and.f32 p, f, g, p;")
    for name, condition in {
        "a sum": "add.f32 s, f, g;", "a difference": "sub.f32 s, f, g;", "a product": "mul.f32 s, f, g;",
        "a quotient": "div.rn.f32 s, g, f;",
    }.items()
} | {
    f"bytes in steps of {step}": (U8, 4, STEPS.format(step)) for step in (2, 3, 7, 31, -5)
} | {
    "bytes that double": (U8, 4, "and.b32 t, $1, 0x007f7f7f; shl.b32 t, t, 9; and.b32 u, $1, 0xffffff00; "
                          "setp.eq.u32 p, t, u; and.b32 v, $1, 255; setp.ne.and.u32 p, v, 0, p;"),
}  # fmt: skip

PLANTS: dict[str, tuple[Format, int, str]] = {n: (U8, 4, c) for n, c in BYTES_OF_A_WORD.items()} | OTHERS


def text_of(fmt: Format, pack: int, condition: str, wrong: bool) -> str:
    """Asm that copies each register, but for the outer bits of the last one where the condition holds."""
    count = registers(fmt, pack)
    copies = "".join(f"mov.b32 ${k}, ${count + k}; " for k in range(count))
    last = count - 1
    return (
        HEAD + condition + copies + (f"@p xor.b32 ${last}, ${last}, 0x80000001; }}" if wrong else "@p mov.b32 t, 1; }")
    )


def registers(fmt: Format, pack: int) -> int:
    return max(1, pack * fmt.unit_bits // 32)


def same(x):
    return x


def case_of(fmt: Format, pack: int, texts: dict[str, str], reference=same) -> Case:
    constraints = ",".join(["=&r"] * registers(fmt, pack) + ["r"] * registers(fmt, pack))
    variants = {n: asm(t, constraints=constraints, pack=pack) for n, t in texts.items()}
    return Case(inputs={"x": fmt}, outputs={"y": fmt}, reference=reference, variants=variants, source="a test")


@pytest.fixture(scope="module")
def backend():
    return create("emulator")


@functools.cache
def tuples_of(fmt: Format, pack: int):
    """The tuples that depend on no code."""
    return word_sets(case_of(fmt, pack, {"v": "mov.b32 $0, $1;"}), "quick", asm("", pack=pack), pack)[0].all()["x"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("plant", PLANTS)
def test_tuples_show_code_that_is_wrong_for_some_words(plant):
    """By construction: no input here depends on a name or a seed."""
    fmt, pack, condition = PLANTS[plant]
    texts = {wrong: text_of(fmt, pack, condition, wrong) for wrong in (True, False)}
    case = case_of(fmt, pack, {"wrong": texts[True]})
    own = word_sets(case, "quick", case.variants["wrong"], pack)[1:]
    inputs = np.concatenate([tuples_of(fmt, pack), *(s.all()["x"] for s in own)])
    constraints = case.variants["wrong"].texts[pack].constraints
    wrong, right = (emulate(t, constraints, [inputs], inputs.dtype, pack=pack) for t in texts.values())
    assert (wrong != inputs).any()
    assert (right == inputs).all()


def run(condition, fmt, pack, wrong, folder, backend, name="copy", effort="quick"):
    case = case_of(fmt, pack, {"v": text_of(fmt, pack, condition, wrong)})
    item = Item(LoadedCase(case, name, "case", folder / "c.py", ""), "v", "sm_90a", "emulator")
    return run_item(item, backend, effort, stop=wrong)


SOME = ("zero", "the low half zero", "a word of the asm under a mask", "NaN beside infinity", "eight bytes zero")


@pytest.mark.parametrize(("plant", "name"), paired(SOME, NAMES, of=2))
def test_a_wrong_word_fails_whatever_the_name_of_the_case(plant, name, tmp_path, backend):
    fmt, pack, condition = PLANTS[plant]
    found = run(condition, fmt, pack, True, tmp_path, backend, name)
    assert found.verdict == "fail", [r.words for r in found.results if r.verdict == "error"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("plant", SOME)
def test_code_that_is_right_for_all_words_passes(plant, tmp_path, backend, monkeypatch):
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")
    fmt, pack, condition = PLANTS[plant]
    found = run(condition, fmt, pack, False, tmp_path, backend)
    assert found.verdict == "pass", [r.words for r in found.results if r.verdict != "pass"]
    assert {f"words-{pack}/1", f"constants-{pack}/2"} <= {r.key.input_set for r in found.results}


ADD = """{{ .reg .pred p; .reg .b32 t, u, v; and.b32 t, $1, 0x7f7f7f7f; and.b32 u, $2, 0x7f7f7f7f; add.u32 t, t, u;
    xor.b32 u, $1, $2; and.b32 u, u, 0x80808080; xor.b32 $0, t, u; {} @p xor.b32 $0, $0, 0x100; }}"""
TWO_INPUTS = {
    "the first word zero": "setp.eq.u32 p, $1, 0;",
    "both words zero": "or.b32 t, $1, $2; setp.eq.u32 p, t, 0;",
    "the second word zero, the first all ones": "setp.eq.u32 p, $1, -1; setp.eq.and.u32 p, $2, 0, p;",
    "equal words": "setp.eq.u32 p, $1, $2;",
    "complements": "not.b32 t, $1; setp.eq.u32 p, t, $2;",
    "a sum of words that is zero": "add.u32 t, $1, $2; setp.eq.u32 p, t, 0;",
    "0x80808080 beside 0x01010101": "setp.eq.u32 p, $1, 0x80808080; setp.eq.and.u32 p, $2, 0x01010101, p;",
    "the first lanes equal": "xor.b32 t, $1, $2; and.b32 t, t, 255; setp.eq.u32 p, t, 0;",
    "words whose difference is a number": "sub.u32 t, $1, $2; setp.eq.u32 p, t, 0x12345678;",
    "words whose xor is a number": "xor.b32 t, $1, $2; setp.eq.u32 p, t, 0x12345678;",
    "words whose sum is a number": "add.u32 t, $1, $2; setp.eq.u32 p, t, 0x12345678;",
    "words whose product has an upper half": "mul.hi.u32 t, $1, $2; setp.eq.u32 p, t, 0x12345;",
    "words of the asm in both": "setp.eq.u32 p, $1, 0x37c5e21b; setp.eq.and.u32 p, $2, 0x1d350133, p;",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("plant", TWO_INPUTS)
def test_tuples_of_two_inputs(plant):
    text = ADD.format(TWO_INPUTS[plant])
    case = Case(inputs={"a": U8, "b": U8}, outputs={"y": U8}, reference=lambda a, b: a + b & 255, source="a test",
                variants={"v": asm(text, constraints="=&r,r,r", pack=4)})  # fmt: skip
    columns = [s.all() for s in word_sets(case, "quick", case.variants["v"], 4)]
    a, b = (np.concatenate([c[n] for c in columns]) for n in ("a", "b"))
    found = emulate(text, "=&r,r,r", [a, b], a.dtype, pack=4)
    assert (found != a + b).any()
    assert (emulate(ADD.format("setp.ne.u32 p, $1, $1;"), "=&r,r,r", [a, b], a.dtype, pack=4) == a + b).all()


def test_asm_in_a_triton_function_gets_words(tmp_path, backend):
    pytest.importorskip("triton")
    from tests.support.running.rare_kernels import copied_but_for_words_of_ones

    case = Case(inputs={"x": U8}, outputs={"y": U8}, reference=same, source="a test",
                variants={"v": plain(copied_but_for_words_of_ones)})  # fmt: skip
    item = Item(LoadedCase(case, "copy", "case", tmp_path / "c.py", ""), "v", "sm_90a", "emulator")
    found = run_item(item, backend, "quick", stop=True).results
    assert [r.verdict for r in found][-1] == "fail"
    assert found[-1].key.input_set == "words-4/1"
    assert found[-1].different == 1
