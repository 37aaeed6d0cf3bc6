"""Random programs: a seed determines them, the emulator and ptxas accept them, and reducing them keeps a fault."""

from collections import Counter

import pytest

from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.generate import FAMILIES, FIRST, OF_WHOLE_WARPS, program
from ptxdiff.fuzz.oracle import expected, inputs_of, text_of
from ptxdiff.fuzz.reduce import candidates, reduced, without
from ptxdiff.triton.targets import assembler as bundled

WEIGHTS = dict.fromkeys(FAMILIES, 1.0)
TARGET = "sm_90a"


def programs(count, first=0, capability=90):
    return [program(f"t/{first + k}", capability, WEIGHTS) for k in range(count)]


def test_a_seed_determines_a_program():
    assert programs(20) == programs(20)
    assert len({p.skeleton for p in programs(20)}) == 20


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


@pytest.mark.parametrize("seed", range(6))
def test_a_program_is_reduced_to_the_instruction_at_fault(seed):
    one = next(p for p in programs(200, 1000 * seed) if "popc.b32" in p.skeleton)
    small = reduced(one, lambda some: ["popc.b32" in p.skeleton for p in some], candidates)
    assert small.skeleton.split().count("popc.b32") == 1
    assert small.size <= 3
    expected(small, inputs_of("x"), TARGET)


def test_parts_of_programs_are_programs():
    for number, one in enumerate(programs(10, 500)):
        count = len(one.statements)
        for first in range(0, count, max(1, count // 3)):
            part = without(one, range(first, first + 3))
            if part.statements:
                expected(part, inputs_of(str(number)), TARGET)
