"""PTX as text: equal bodies, the asm of a line, contraction."""

import pytest

from ptxdiff.triton.ptx_text import BEGIN, END, asm_line, blamed_line, body_hash, marked

KERNEL = f""".version 8.8
.target sm_90a
.visible .entry k(
)
{{
	.loc	1 5 0
	mov.u32 %r1, 0; // zero
$L__tmp0:
	// begin inline asm
	.loc	1 6 0
	{BEGIN}
	.loc	1 7 0
	add.f32 %r2, %r1, %r1;

	mul.f32 %r3, %r2, %r1
	{END}
	// end inline asm
	.loc	1 8 0
	// begin inline asm
	st.global.b32 [%rd1], %r3;
	// end inline asm
	ret;
}}
	.file	1 "somewhere.py"
"""


def line_of(text):
    return next(n for n, line in enumerate(KERNEL.splitlines(), 1) if text in line)


def test_target_version_comments_and_line_numbers_do_not_count():
    other = (
        KERNEL.replace("sm_90a", "sm_120a").replace("8.8", "9.4").replace("zero", "naught").replace("1 5 0", "1 9 9")
    )
    assert body_hash(other) == body_hash(KERNEL)


@pytest.mark.parametrize("change", [("add.f32", "add.f64"), ("%r3, %r2", "%r3, %r1"), ("ret;", "exit;")])
def test_a_changed_instruction_counts(change):
    assert body_hash(KERNEL.replace(*change)) != body_hash(KERNEL)


def test_lines_of_our_asm_have_their_authors_numbers():
    found = asm_line(KERNEL, line_of("mul.f32"))
    assert (found.number, found.text, found.ours) == (3, "mul.f32 %r3, %r2, %r1", True)
    assert asm_line(KERNEL, line_of("add.f32")).number == 1


def test_other_asm_is_distinguished_and_other_lines_give_none():
    other = asm_line(KERNEL, line_of("st.global"))
    assert (other.ours, other.call) == (False, "somewhere.py:8"), "the call's place tells the reader where the asm is"
    assert asm_line(KERNEL, line_of("mul.f32")).call == "somewhere.py:5", "not a line that LLVM counted further"
    assert asm_line(KERNEL.replace(".file", "//"), line_of("st.global")).call == ""
    assert asm_line(KERNEL, line_of("ret;")) is None
    assert asm_line(KERNEL, 10_000) is None


def test_a_syntax_error_names_the_statement_that_does_not_end():
    assert blamed_line(KERNEL, line_of("st.global")) == line_of("mul.f32")
    assert blamed_line(KERNEL, line_of("ret;")) == line_of("ret;")


def test_a_trailing_comment_does_not_hide_the_end_mark():
    assert marked("ret; // bye").splitlines() == [BEGIN, "ret; // bye", END]
