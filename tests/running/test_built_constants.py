"""Code that is wrong beside a number that the asm builds at run time: each variant fails at quick effort, at each pack.

A variant copies its input, or joins its inputs by xor, but for the number. Its twin builds the same number, compares it
in the same way, and is right there, too.
"""

from __future__ import annotations

import pytest

from ptxdiff import Case, asm, plain
from ptxdiff.backends import create
from ptxdiff.inputs import constant_sets, word_sets
from ptxdiff.inputs.sets import has_tuples
from ptxdiff.model.constants import built_constants_of, constants_of
from ptxdiff.model.load import LoadedCase
from ptxdiff.references.formats import F16, F32, F64, U8, U16, U32, U64
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item
from tests.support.sampling import paired

pytest.importorskip("torch")

HEAD = "{ .reg .pred p, q; .reg .b32 t, u, v; .reg .b64 d; .reg .f32 f; .reg .b16 h, k; "
BUILT = {  # what makes the number in t, and the number
    "prmt": ("mov.u32 t, 0x12345678; prmt.b32 t, t, 0, 0x1320;", 0x56123478),
    "lop3": ("mov.u32 t, 0x12345678; mov.u32 u, 0x0ff00ff0; lop3.b32 t, t, u, 0x33cc55aa, 0x96;", 0x2E080C22),
    "a loop": (
        "mov.u32 t, 1; mov.u32 u, 0; L: mad.lo.u32 t, t, 1664525, 1013904223; add.u32 u, u, 1; "
        "setp.lt.u32 q, u, 5; @q bra L;",
        0x0CF06D60,
    ),
    "float arithmetic": ("mov.f32 f, 0f40490fdb; mul.rn.f32 f, f, f; mov.b32 t, f;", 0x411DE9E7),
    "WARP_SZ": ("mov.u32 t, WARP_SZ; mul.lo.u32 t, t, 1234567;", 1234567 * 32),
    "bfi": ("mov.u32 t, 0x71000017; bfi.b32 t, 0x2bad, t, 8, 16;", 0x712BAD17),
    "two halves": ("mov.u32 t, 0x3c6e; prmt.b32 t, t, 0xf372, 0x1054;", 0x3C6EF372),
    "an expression": ("mov.u32 t, (0x5bd << 20) | (0x1e99 * 77);", 0x5BD00000 | 0x1E99 * 77),
    "a branch on an input": (
        "setp.gt.u32 q, $1, 77; @q bra L; mov.u32 t, 5; bra M; L: mov.u32 t, 0x51f3; M: mul.lo.u32 t, t, 0x10331; "
        "mul.lo.u32 t, t, 0x10331;",
        0x51F3 * 0x10331 * 0x10331 & 0xFFFFFFFF,
    ),
    "a guard on an input": (
        "setp.gt.u32 q, $1, 77; mov.u32 t, 5; @q mov.u32 t, 0x51f3; mul.lo.u32 t, t, 0x10331; "
        "mul.lo.u32 t, t, 0x10331;",
        0x51F3 * 0x10331 * 0x10331 & 0xFFFFFFFF,
    ),
}  # fmt: skip


def text_of(built: str, condition: str, copy: str, wrong: bool) -> str:
    return f"{HEAD}{built} {condition} {copy} @p xor.b32 $0, $0, {int(wrong)}; }}"


def case_of(inputs, outputs, variant) -> Case:
    def copied(*given):
        return given[0] if len(given) == 1 else given[0] ^ given[1]

    return Case(inputs=inputs, outputs=outputs, reference=copied, source="a test", variants={"v": variant})


def run(case, folder, stop=False):
    item = Item(LoadedCase(case, "copy", "case", folder / "c.py", ""), "v", "sm_90a", "emulator")
    return run_item(item, create("emulator"), "quick", stop=stop)


@pytest.mark.parametrize(("name", "pack"), paired(BUILT, (1, 2, 4), of=3))
def test_a_number_that_the_asm_builds_is_an_input(name, pack, tmp_path):
    """Of one element, and as the word of a pack."""
    built, number = BUILT[name]
    fmt = {1: U32, 2: U16, 4: U8}[pack]
    verdicts = {}
    for wrong in (True, False):
        text = text_of(built, "setp.eq.u32 p, $1, t;", "mov.b32 $0, $1;", wrong)
        case = case_of({"x": fmt}, {"y": fmt}, asm(text, constraints="=&r,r", pack=pack))
        assert number in built_constants_of(case, case.variants["v"])
        assert number not in constants_of(case.variants["v"])
        found = run(case, tmp_path, stop=wrong)
        assert {r.verdict for r in found.results} <= {"pass", "fail"}
        verdicts[wrong] = found.verdict
    assert verdicts == {True: "fail", False: "pass"}


@pytest.mark.sample(2)
@pytest.mark.parametrize(("fmt", "pack"), [(U32, 1), (U16, 2), (U8, 4)], ids=["1", "2", "4"])
@pytest.mark.parametrize("name", ["two halves", "a loop"])
def test_two_numbers_that_the_asm_builds_meet_two_inputs(name, fmt, pack, tmp_path):
    condition = "setp.eq.u32 p, $1, t; not.b32 u, t; setp.eq.and.u32 p, $2, u, p;"
    verdicts = []
    for wrong in (True, False):
        text = text_of(BUILT[name][0], condition, "xor.b32 $0, $1, $2;", wrong)
        case = case_of({"x": fmt, "z": fmt}, {"y": fmt}, asm(text, constraints="=&r,r,r", pack=pack))
        verdicts.append(run(case, tmp_path, stop=wrong).verdict)
    assert verdicts == ["fail", "pass"]


OTHER_WIDTHS = {
    "16 bits": (F16, "h", "mov.b16 h, 0x12f; mul.lo.u16 h, h, 0x133; setp.eq.u16 p, $1, h; mov.b16 $0, $1;",
                "@p xor.b16 $0, $0, 1;"),
    "64 bits": (U64, "l", "mov.b64 d, 0x12345678; mad.lo.u64 d, d, 0x9abcdef12, 77; setp.eq.u64 p, $1, d; "
                "mov.b64 $0, $1;", "@p xor.b64 $0, $0, 1;"),
    "a float": (F32, "r", "mul.rn.f32 f, 0f3fb504f3, 0f42c80000; setp.eq.f32 p, $1, f; mov.b32 $0, $1;",
                "@p xor.b32 $0, $0, 1;"),
    "a float of 64 bits": (F64, "l", "fma.rn.f64 d, 0d3ff6a09e667f3bcd, 0d4059000000000000, 0d3fd5555555555555; "
                           "setp.eq.f64 p, $1, d; mov.b64 $0, $1;", "@p xor.b64 $0, $0, 1;"),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", OTHER_WIDTHS)
def test_numbers_of_all_widths(name, tmp_path):
    fmt, letter, condition, flip = OTHER_WIDTHS[name]
    case = case_of({"x": fmt}, {"y": fmt}, asm(f"{HEAD}{condition} {flip} }}", constraints=f"=&{letter},{letter}"))
    assert len(built_constants_of(case, case.variants["v"])) in (1, 2)  # bits, and perhaps a value
    assert run(case, tmp_path, stop=True).verdict == "fail" or fmt is F16  # all inputs of 16 bits run without it


def test_a_float_that_the_asm_builds_has_its_value():
    case = case_of({"x": F32}, {"y": F32}, asm(f"{HEAD}{OTHER_WIDTHS['a float'][2]} }}", constraints="=&r,r"))
    bits, value = built_constants_of(case, case.variants["v"])
    assert (bits, round(value, 3)) == (0x430D6BDE, 141.421)


NONE = {
    "numbers of the text": "mov.u32 t, 0x12345; setp.eq.u32 p, $1, t; setp.eq.or.u32 p, $1, -77, p;",
    "made from an input": "mul.lo.u32 t, $1, 3; add.u32 t, t, 0x1000; setp.eq.u32 p, t, $1;",
    "a register that nothing wrote": "mul.lo.u32 t, u, 3; setp.eq.u32 p, t, $1;",
    "a special register": "mov.u32 t, %laneid; mul.lo.u32 t, t, 3; setp.eq.u32 p, t, $1;",
    "built, but only for others": "mov.u32 t, 77; mul.lo.u32 t, t, t; xor.b32 t, t, t; setp.eq.u32 p, t, $1;",
    "an endless loop": "L: bra L;",
    "a loop without end that counts": "mov.u32 t, 0; L: add.u32 t, t, 1; bra L;",
    "no PTX": "what is this;",
}


@pytest.mark.parametrize("name", NONE)
def test_code_that_builds_no_number_keeps_its_inputs(name):
    text = f"{HEAD}{NONE[name]} mov.b32 $0, $1; }}"
    case = case_of({"x": U16}, {"y": U16}, asm(text, constraints="=&r,r", pack=2))
    variant = case.variants["v"]
    assert built_constants_of(case, variant) == ()
    sets = [*constant_sets(case, "quick", variant), *word_sets(case, "quick", variant, 2)]
    assert not [s.name for s in sets if "built" in s.name]


def test_a_loop_gives_the_numbers_of_its_last_rounds():
    text = (
        HEAD
        + """mov.u32 t, 1; mov.u32 u, 0; mov.b32 $0, $1; L: mad.lo.u32 t, t, 1664525, 1013904223;
        setp.eq.u32 p, $1, t; @p xor.b32 $0, $0, 1; add.u32 u, u, 1; setp.lt.u32 q, u, 100; @q bra L; }"""
    )
    case = case_of({"x": U32}, {"y": U32}, asm(text, constraints="=&r,r"))
    number, rounds = 1, []
    for _ in range(100):
        number = (number * 1664525 + 1013904223) & 0xFFFFFFFF
        rounds.append(number)
    assert built_constants_of(case, case.variants["v"]) == tuple(rounds)
    made = {s.name: set(s.all()["x"].tolist()) for s in constant_sets(case, "quick", case.variants["v"])}
    assert set(rounds[-48:]) <= made["constants-built/1"]
    assert not set(rounds[:52]) & made["constants-built/1"]


def test_a_loop_that_an_input_ends_gives_numbers():
    text = (
        HEAD
        + """mov.u32 t, 1; mov.b32 $0, $1; L: mad.lo.u32 t, t, 1664525, 1013904223;
        setp.ne.u32 q, $1, t; @q bra L; }"""
    )
    case = case_of({"x": U32}, {"y": U32}, asm(text, constraints="=&r,r"))
    assert len(built_constants_of(case, case.variants["v"])) > 1000


def test_numbers_that_the_text_has_keep_their_places(monkeypatch):
    """Sets of numbers in the text are the same with and without numbers that are built."""
    text = text_of(BUILT["a loop"][0], "setp.eq.u32 p, $1, t;", "mov.b32 $0, $1;", True)

    def made(fmt, pack):
        case = case_of({"x": fmt}, {"y": fmt}, asm(text, constraints="=&r,r", pack=pack))
        variant = case.variants["v"]
        sets = [*constant_sets(case, "quick", variant), *word_sets(case, "quick", variant, pack)]
        return {s.name: (s.count, s.all()["x"].tobytes()) for s in sets}

    for fmt, pack in ((U32, 1), (U8, 4)):
        with_built = made(fmt, pack)
        with monkeypatch.context() as patch:
            patch.setattr("ptxdiff.inputs.sets.built_constants_of", lambda case, variant: ())
            without = made(fmt, pack)
        assert without == {name: of for name, of in with_built.items() if "built" not in name}
        assert len(with_built) > len(without)


def test_names_of_sets_of_tuples():
    assert all(map(has_tuples, ("constants-built-4/1", "constants-built-pairs-16/1", "constants-built-relations-2/1")))
    assert not any(map(has_tuples, ("constants-built/1", "together-built/1")))


def test_asm_in_a_triton_function_gives_its_numbers(tmp_path):
    pytest.importorskip("triton")
    from tests.support.running.rare_kernels import copied_but_for_one_that_its_asm_builds

    variant = plain(copied_but_for_one_that_its_asm_builds)
    case = Case(inputs={"x": U32}, outputs={"y": U32}, reference=lambda x: x, source="a test", variants={"v": variant})
    assert built_constants_of(case, variant) == (0x56123478,)
    assert run(case, tmp_path, stop=True).verdict == "fail"
