"""PTX taken apart and put together again computes the same; what is not straight code is left alone."""

import numpy as np
import pytest

from harness.fuzz.fromptx import NotStraight, taken_apart
from harness.fuzz.generate import program
from harness.fuzz.oracle import emulated, inputs_of, text_of
from harness.fuzz.reduce import reduced

TARGET = "sm_90a"


def each_once(text):
    """The program with its addresses in registers of their own."""
    text = text.replace(".reg .b64 %in, %out, %at;", ".reg .b64 %in, %out, %at, %from, %to;")
    text = text.replace(
        "add.u64 %in, %in, %at; add.u64 %out, %out, %at;", "add.u64 %from, %in, %at; add.u64 %to, %out, %at;"
    )
    return text.replace("[%in];", "[%from];").replace("[%out], {", "[%to], {")


def test_random_programs_compute_the_same_when_put_together_again():
    straight = 0
    for seed in map(str, range(24)):
        text = each_once(text_of([program(seed, 90, {"bits": 1.0, "simd": 1.0})], TARGET))
        try:
            apart = taken_apart(text)
        except NotStraight:
            assert "bra" in text or "@" in text
            continue
        straight += 1
        again = apart.text(apart.program)
        inputs = inputs_of(seed)
        np.testing.assert_array_equal(emulated(again, "p0", inputs), emulated(text, "p0", inputs))
    assert straight > 5


KERNEL = """.version 8.1
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a)
{{
.reg .b64 %rd<3>; .reg .b32 %r<4>; .reg .pred %p<2>;
ld.param.u64 %rd1, [a];
mov.u32 %r1, %tid.x;
setp.eq.u32 %p1, %r1, 0;
{body}
st.global.u32 [%rd1], %r2; // kept: nobody reads it, and it is what the kernel is for
ret;
}}
"""


def test_instructions_that_write_one_register_after_the_other_stay_together():
    apart = taken_apart(KERNEL.format(body="mov.u32 %r2, 1;\n@%p1 mov.u32 %r2, 5;\n{ .reg .b32 %r2; mov.u32 %r2, 9; }"))
    texts = [s.text for s in apart.program.statements]
    assert sum("5" in t for t in texts) == 1
    assert len(texts) == 6  # the inner block's register is another one
    assert apart.text(apart.program).count("mov.u32") == 4


def test_cutting_down_keeps_what_the_kernel_is_for():
    apart = taken_apart(KERNEL.format(body="mov.u32 %r2, 1;\nmov.u32 %r3, 7;"))
    small = apart.text(reduced(apart.program, lambda ps: ["st.global" in apart.text(p) for p in ps]))
    assert "st.global.u32" in small
    assert "7;" not in small
    assert "setp" not in small


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("@%p1 bra L;\nmov.u32 %r2, 1;\nL:", "bra"),
        ("mov.u32 %r2, 1;\nmov.u32 %r3, 2;\nmov.u32 %r2, 3;", "writes a register again"),
        ("mov.u32 %r2, 1;\n@%p1 ret;", "ret under a predicate"),
        ("L:\nmov.u32 %r2, 1;", "label L"),
        ("mov.u32 %r2, 1;\n.shared .b32 s;", "shared s"),
        ("mov.u32 %r2, ;", "expected an operand"),
    ],
)
def test_what_is_not_straight_is_not_taken_apart(body, words):
    with pytest.raises(NotStraight, match=words):
        taken_apart(KERNEL.format(body=body))
