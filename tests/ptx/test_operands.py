"""What an asm block does to its operands: inputs are read only, and outputs may share registers with inputs."""

from __future__ import annotations

import numpy as np
import pytest

from harness.ptx import emulate
from harness.ptx.analysis import written_input
from harness.ptx.errors import InputWritten

X, Y = np.float32([1.0, 2.0]), np.float32([3.0, 4.0])
PLANTED = [
    ("add.f32 $1, $1, $2; rsqrt.approx.f32 $0, $1;", "=f,f,f", "add.f32 $1, $1, $2;", "$1"),
    ("{ .reg .pred p; setp.lt.f32 p, $1, $2; @p mov.b32 $2, $1; mov.b32 $0, $2; }", "=f,f,f", "mov.b32 $2, $1;", "$2"),
    ("mov.b32 $0, $1; shfl.sync.bfly.b32 $1, $1, 1, 31, -1;", "=f,f,f", "shfl.sync.bfly.b32 $1, $1, 1, 31, -1;", "$1"),
    ("mov.b32 $0, $1; not.an_instruction $1, $2;", "=f,f,f", "not.an_instruction $1, $2;", "$1"),
    ("{ .reg .pred p; mov.b32 $0, $1; shfl.sync.bfly.b32 $2|p, $1, 1, 31, -1; }", "=f,f,f", "shfl", "$2"),
    ("{ .reg .b16 h; mov.b32 $0, $1; mov.b64 {$1, $2}, 7; }", "=f,f,f", "mov.b64 {$1, $2}, 7;", "$1"),
]


@pytest.mark.parametrize(("asm", "constraints", "line", "operand"), PLANTED)
def test_a_written_input_is_told_with_its_line_and_the_cure(asm, constraints, line, operand):
    told = written_input(asm, constraints)
    assert told is not None
    for part in (line, f"writes the input {operand}", ".reg", "'=f' and '0'" if "'0'" in told else "copy"):
        assert part in told


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
        ("syntax error", "=r,r"),  # for others to tell
    ],
)
def test_reading_an_input_is_no_fault(asm, constraints):
    assert written_input(asm, constraints) is None
