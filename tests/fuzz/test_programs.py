"""Random programs: a seed determines them, the emulator and ptxas accept them, and reducing them keeps a fault."""

import random
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from ptxdiff.fuzz import reduce
from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.execution import expected, inputs_of, text_of
from ptxdiff.fuzz.generate import FAMILIES, FIRST, OF_WHOLE_WARPS, program, shaped
from ptxdiff.fuzz.program import RandomProgram, Statement, Variable
from ptxdiff.fuzz.reduce import candidates, reduced, without
from ptxdiff.triton.targets import assembler as bundled

WEIGHTS = dict.fromkeys(FAMILIES, 1.0)
TARGET = "sm_90a"


def programs(count, first=0, capability=90):
    return [program(f"t/{first + k}", capability, WEIGHTS) for k in range(count)]


def test_a_seed_determines_a_program():
    assert programs(20) == programs(20)
    assert len({p.skeleton for p in programs(20)}) == 20


@pytest.mark.sample(3)
@pytest.mark.parametrize("capability", [80, 89, 90])
def test_emulator_and_assembler_accept_every_program(capability):
    target = {80: "sm_80", 89: "sm_89", 90: TARGET}[capability]
    made = programs(40, 100, capability)
    done = assembler(bundled(target).path, 3).assemble(text_of(made, target), target)
    assert done.ended == "assembled", done.words
    for number, one in enumerate(made[:12]):
        assert expected(one, inputs_of(str(number)), target).shape == (128, 4)


def test_every_shape_is_accepted(monkeypatch):
    """A program with each shape of a family once, in order."""
    from ptxdiff.fuzz import generate

    for name, shapes in FAMILIES.items():
        for turn in range(3):  # with other choices at the slashes
            maker = generate._Generator(f"{name}/{turn}", 90, {name: 1.0})
            held = {"r": [generate.Variable("r", k) for k in range(4)]}
            statements = [maker.shaped(s, held) for s in (*FIRST, *shapes, *generate.LAST)]
            one = generate.RandomProgram(tuple(statements), tuple(held["r"][-4:]))
            assert expected(one, inputs_of(name), TARGET).shape == (128, 4), name


def test_all_families_loops_and_branches_are_used():
    used = Counter(o for p in programs(300) for o in p.skeleton.split())
    for name in ("div.u32", "prmt.b32", "fma.rn.f32", "shfl.sync.idx.b32", "addc.u32", "vadd4.u32.u32.u32"):
        assert used[name], name
    nested = [s for p in programs(300) for s in p.statements if s.body]
    assert any("setp.lt.u32" in s.text for s in nested)
    assert any("setp.lt.u32" not in s.text for s in nested)
    inside = {o.split(".")[0] for s in nested for b in s.body for o in b.opcodes}
    assert inside.isdisjoint(shape.split(".")[0] for name in OF_WHOLE_WARPS for shape in FAMILIES[name])


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(6))
def test_a_program_is_reduced_to_the_instruction_at_fault(seed):
    one = next(p for p in programs(200, 1000 * seed) if "popc.b32" in p.skeleton)
    small = reduced(one, lambda some: ["popc.b32" in p.skeleton for p in some], candidates)
    assert small.skeleton.split().count("popc.b32") == 1
    assert small.size <= 3
    expected(small, inputs_of("x"), TARGET)


def test_one_fault_in_many_programs_is_one_program():
    """A planted fault of one instruction: its operands and the use of its result become plain, its type unsigned."""
    drawn = (program(f"one/{k}", 90, {"narrow integer": 1.0, "carries": 1.0, "simd": 1.0}) for k in range(200))
    some = [p for p in (without(p, range(0)) for p in drawn) if re.search(r"shr\.[us]16", p.skeleton)][:6]
    assert len(some) == 6
    small = {
        reduced(one, lambda some: [bool(re.search(r"shr\.[us]16", s.skeleton)) for s in some], candidates)
        for one in some
    }
    assert {s.skeleton for s in small} == {"cvt.u16.u32 shr.u16 cvt.u32.u16"}


def test_a_tail_is_dropped_where_the_fault_needs_two_of_its_operands():
    """Planted: an input is overwritten by a conversion. The last instruction reads both."""
    held = {"r": [Variable("r", k) for k in range(4)]}
    draw = random.Random(3)
    shapes = ("cvt.u16.u32 <h=>, <r>;", "mov.b32 <r=>, {<h>, <h>};", "prmt.b32 <r=>, <r>, <r>, <r>;")
    half, pair, last = (shaped(draw, shape, held, newest=True) for shape in shapes)
    last = replace(last, reads=(Variable("r", 1), pair.writes[0], Variable("r", 2)))
    whole = RandomProgram((half, pair, last), (last.writes[0], "0", "0", "0"))

    def shows(some):
        seen = [{*s.outputs, *(r for x in s.statements if x.text.startswith("prmt") for r in x.reads)} for s in some]
        return [{pair.writes[0], Variable("r", 1)} <= one for one in seen]

    small = reduced(whole, shows, candidates)
    assert small.skeleton == "cvt.u16.u32 mov.b32"
    assert set(small.outputs) == {pair.writes[0], Variable("r", 1), "0"}


def test_an_operand_is_replaced_where_its_statement_cannot_be_removed():
    """Planted: min.u64 of the result of not.b64 and another register, then max.u64. Without the difference, both
    operands of min.u64 would be that result. Both words of the difference are read, so no plain instruction makes them.
    """
    low, inverted, difference, upper, least, most = (Variable("d", n) for n in (4, 5, 7, 9, 10, 11))
    carries = "sub.cc.u64 {w0}, {r0}, {r1};\nsubc.u64 {w1}, {r0}, {r1};"
    whole = RandomProgram(
        (
            Statement("mov.b64 {w0}, {{r0}, {r1}};", (low,), (Variable("r", 0), Variable("r", 1))),
            Statement("not.b64 {w0}, {r0};", (inverted,), (low,)),
            Statement(carries, (difference, upper), (inverted, low)),
            Statement("min.u64 {w0}, {r0}, {r1};", (least,), (inverted, difference)),
            Statement("max.u64 {w0}, {r0}, {r1};", (most,), (least, upper)),
            Statement("cvt.u32.u64 {w0}, {r0};", (Variable("r", 12),), (most,)),
        ),
        (Variable("r", 12), "0", "0", "0"),
    )

    def is_shown(one):
        reads = next((x.reads for x in one.statements if "min" in x.text), ())
        others = [r for r in reads if r != inverted]
        return inverted in reads and len(others) == 1 and "not.b64 " in one.skeleton and "max.u64" in one.skeleton

    small = reduced(whole, lambda some: list(map(is_shown, some)), candidates)
    assert small.skeleton == "mov.b64 not.b64 min.u64 max.u64 mov.b64"
    assert expected(small, inputs_of("x"), TARGET).any()


def unmade_carries(one):
    """The instructions that read the carry flag and do not follow one that writes it."""
    lines = [line for s in one.statements for line in ("", *s.text.split("\n"))]
    return [b for a, b in pairwise(lines) if re.search(r"\b(addc|subc|madc)\.", b) and ".cc." not in a]


def test_no_smaller_program_reads_an_old_carry(monkeypatch):
    made = program("carry/1", 90, {"carries": 1.0})
    assert "addc" in made.skeleton
    assert [s for make in candidates(made) for s in unmade_carries(make())] == []
    monkeypatch.setattr(reduce, "_carries_are_made", lambda text: True)
    assert [s for make in candidates(made) for s in unmade_carries(make())] != []


def test_no_smaller_program_reads_the_bits_of_a_nan(monkeypatch):
    """A register that has a float's bits before its NaN is replaced is read by no other statement, nor stored."""

    def read_elsewhere(made):
        inner = {s.writes[k] for s in made.statements for k in s.inner}
        assert inner
        return [
            w for make in candidates(made) for w in inner
            if w in make().outputs or any(w in s.reads and w not in s.writes for s in make().statements)
        ]  # fmt: skip

    drawn = [program(f"nan/{k}", 90, {"float32": 1.0, "half": 1.0, "bfloat": 1.0}) for k in range(3)]
    assert [w for one in drawn for w in read_elsewhere(one)] == []
    monkeypatch.setattr(Statement, "results", property(lambda s: s.writes))
    assert [w for one in drawn for w in read_elsewhere(one)] != []


def test_a_branch_without_a_body_is_dropped():
    held = {"r": [Variable("r", k) for k in range(4)], "p": [Variable("p", 4)]}
    first = shaped(random.Random(1), "setp.lt.s32 <p=>, <r>, <r>;", held)
    branch = Statement(
        "mov.b32 {w0}, {r0};\n@!{r1} bra {l0};\n{body}\nmov.b32 {w0}, {result};\n{l0}:",
        (Variable("r", 50),), (Variable("r", 0), first.writes[0]), (), Variable("r", 1),
    )  # fmt: skip
    last = shaped(random.Random(1), "popc.b32 <r=>, <r>;", {"r": [Variable("r", 50)]}, newest=True)
    whole = RandomProgram((first, branch, last), (last.writes[0], "0", "0", "0"))
    small = reduced(whole, lambda some: ["popc.b32" in s.skeleton for s in some], candidates)
    assert small.skeleton == "popc.b32"


def test_parts_of_programs_are_programs():
    for number, one in enumerate(programs(10, 500)):
        count = len(one.statements)
        for first in range(0, count, max(1, count // 3)):
            part = without(one, range(first, first + 3))
            if part.statements:
                expected(part, inputs_of(str(number)), TARGET)
