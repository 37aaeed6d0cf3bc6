"""Operands of asm blocks: a block must not write its inputs, and outputs may share registers with inputs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from ptxdiff.emulator.asm_block import written_input
from ptxdiff.emulator.dataflow import sharing
from ptxdiff.emulator.errors import InputWritten

X, Y = np.float32([1.0, 2.0]), np.float32([3.0, 4.0])
PLANTED = [
    ("add.f32 $1, $1, $2; rsqrt.approx.f32 $0, $1;", "=f,f,f", "add.f32 $1, $1, $2;", "$1"),
    ("{ .reg .pred p; setp.lt.f32 p, $1, $2; @p mov.b32 $2, $1; mov.b32 $0, $2; }", "=f,f,f", "mov.b32 $2, $1;", "$2"),
    ("mov.b32 $0, $1; shfl.sync.bfly.b32 $1, $1, 1, 31, -1;", "=f,f,f", "shfl.sync.bfly.b32 $1, $1, 1, 31, -1;", "$1"),
    ("mov.b32 $0, $1; not.an_instruction $1, $2;", "=f,f,f", "not.an_instruction $1, $2;", "$1"),
    ("{ .reg .pred p; mov.b32 $0, $1; shfl.sync.bfly.b32 $2|p, $1, 1, 31, -1; }", "=f,f,f", "shfl", "$2"),
    ("mov.b32 $0, $1; vadd.u32.u32.u32 $1.b0, $1, $2, $2;", "=f,f,f", "vadd.u32.u32.u32 $1.b0, $1, $2, $2;", "$1"),
    ("{ .reg .b16 h; mov.b32 $0, $1; mov.b64 {$1, $2}, 7; }", "=f,f,f", "mov.b64 {$1, $2}, 7;", "$1"),
]


@pytest.mark.parametrize(("asm", "constraints", "line", "operand"), PLANTED)
def test_a_written_input_is_reported_with_its_line_and_a_repair(asm, constraints, line, operand):
    report = written_input(asm, constraints)
    assert report is not None
    for part in (line, f"writes the input {operand}", ".reg .b32 t; mov.b32 t", "one more output '=f'", "'1'"):
        assert part in report


def test_emulate_refuses_a_written_input():
    with pytest.raises(InputWritten, match=r"line 1, column 1: .*writes the input \$1"):
        emulate(PLANTED[0][0], PLANTED[0][1], [X, Y], "float32")


@pytest.mark.parametrize(
    ("asm", "constraints"),
    [
        ("add.f32 $1, $1, $2; mov.b32 $0, $1;", "=f,0,f"),  # $1 is output 0's register
        ("{ .reg .b32 t; mov.b32 t, $1; add.f32 t, t, $2; mov.b32 $0, t; }", "=f,f,f"),
        ("bar.sync $1; mov.b32 $0, $1;", "=r,r"),
        ("st.global.b32 [$1], $2; mov.b32 $0, 0;", "=r,l,r"),
        ("@$2 bra L; L: mov.b32 $0, $1;", "=r,r,b"),
        ("cp.async.wait_group $0;", "n"),  # a number in the text
        ("syntax error", "=r,r"),  # the parser reports it
    ],
)
def test_reading_an_input_is_no_fault(asm, constraints):
    assert written_input(asm, constraints) is None


EARLY = "add.u32 $0, $1, 1; add.u32 $0, $0, $2;"


@pytest.mark.parametrize(
    ("asm", "constraints", "pairs"),
    [
        (EARLY, "=r,r,r", [(0, 2)]),
        (EARLY, "=&r,r,r", []),
        (
            "cvt.u32.u64 $0, $2; add.u32 $0, $0, $1; cvt.u32.u64 $0, $2;",
            "=r,r,l",
            [(0, 1)],
        ),  # of two sizes
        (EARLY, "=r,0,r", [(0, 2)]),  # if both inputs are equal
        (EARLY, "=&r,0,r", []),
        ("{ .reg .b32 t; mov.b32 t, $1; mov.b32 $0, $2; add.u32 $0, $0, t; }", "=r,r,r", []),
        ("{ .reg .pred p; setp.eq.u32 p, $1, 0; @p mov.b32 $0, 1; @!p mov.b32 $0, $2; }", "=r,r,r", [(0, 2)]),
        # The read comes before the write in the text, and after it in the loop's next round.
        ("{ .reg .pred p; L: add.u32 $0, $1, $2; setp.eq.u32 p, $0, 0; @p bra L; }", "=r,r,r", [(0, 1), (0, 2)]),
        ("mov.b32 $0, $2; mov.b32 $1, $3;", "=r,=r,r,r", [(0, 3)]),
        ("bra B; A: mov.b32 $0, $1; bra E; B: mov.b32 $0, $2; E: mov.b32 $0, 0;", "=r,r,r", []),
    ],
)
def test_pairs_that_may_share_a_register_and_must_not(asm, constraints, pairs):
    assert [(h.output, h.input) for h in sharing(asm, constraints).hazards] == pairs


def test_all_assignments_are_listed_or_each_pair_alone_and_in_a_largest_assignment():
    few = sharing("mov.b32 $0, 0; mov.b32 $1, 0; add.u32 $0, $2, $3; add.u32 $1, $2, $3;", "=r,=r,r,r")
    assert few.complete
    assert all(a in few.assignments for a in ({0: 2}, {0: 3}, {1: 2}, {1: 3}, {0: 2, 1: 3}, {0: 3, 1: 2}))
    assert len(few.assignments) == 6
    text = "".join(f"mov.b32 ${i}, 0; " for i in range(8)) + "".join(f"mov.b32 ${i}, ${8 + i}; " for i in range(8))
    many = sharing(text, ",".join(["=r"] * 8 + ["r"] * 8))
    pairs = {(h.output, h.input) for h in many.hazards}
    assert not many.complete
    assert {next(iter(a.items())) for a in many.assignments if len(a) == 1} == pairs
    assert {p for a in many.assignments if len(a) > 4 for p in a.items()} == pairs
    assert len(many.assignments) < 2 * len(pairs)


def test_sharing_registers_without_a_hazard_changes_no_result():
    """Random blocks run with every assignment of registers that the constraints allow."""
    rng = np.random.default_rng(5)
    tried = 0
    for _ in range(120):
        text, constraints = random_block(rng)
        args = [rng.integers(0, 1 << 32, 16, np.uint32) for _ in range(3)]
        plain = emulate(text, constraints, args, ["uint32"] * 2)
        hazards = {(h.output, h.input) for h in sharing(text, constraints).hazards}
        for one, other in itertools.permutations((2, 3, 4), 2):
            for share in ({0: one}, {1: one}, {0: one, 1: other}):
                if not hazards & set(share.items()):
                    tried += 1
                    got = emulate(text, constraints, args, ["uint32"] * 2, share=share)
                    assert all(np.array_equal(a, b) for a, b in zip(plain, got, strict=True)), (text, share)
    assert tried > 120


def random_block(rng):
    """Moves and sums of three inputs into two outputs and two registers, some of them guarded."""
    lines = [".reg .b32 a, b; .reg .pred p; setp.lt.u32 p, $2, $3; mov.b32 a, 0; mov.b32 b, 1;"]
    written = ["a", "b", "$2", "$3", "$4"]
    for _ in range(rng.integers(1, 6)):
        to = rng.choice(["a", "b", "$0", "$1"])
        guard = rng.choice(["", "@p ", "@!p "]) if to in written else ""
        one, other = rng.choice(written, 2)
        lines.append(f"{guard}{rng.choice(['add.u32', 'xor.b32', 'min.u32'])} {to}, {one}, {other};")
        written.append(to)
    lines += [f"add.u32 {o}, {rng.choice(written)}, b;" for o in ("$0", "$1")]
    return "{ " + " ".join(lines) + " }", "=r,=r,r,r,r"


def test_blocks_of_many_operands_are_covered_in_bounded_work():
    """Each instruction reads one input and writes one output, so an output is written before later inputs are read."""
    count = 150
    text = "".join(f"add.u32 ${k}, ${count + k}, 1;\n" for k in range(count))
    found = sharing(text, ",".join(["=r"] * count + ["r"] * count))
    pairs = {(h.output, h.input) for h in found.hazards}
    assert len(pairs) == count * (count - 1) // 2
    assert not found.complete
    assert {pair for share in found.assignments for pair in share.items()} == pairs
    assert len(found.assignments) < count


def test_an_analysis_that_leaves_hazards_out_is_marked_incomplete(monkeypatch):
    monkeypatch.setattr("ptxdiff.emulator.dataflow.HAZARDS", 2)
    text = "mov.u32 $0, $2; mov.u32 $1, $3; add.u32 $0, $0, $4;"
    found = sharing(text, "=r,=r,r,r,r")
    assert (len(found.hazards), found.complete) == (2, False)
