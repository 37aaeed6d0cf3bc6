"""PTX that is split into pieces and joined again computes the same, and reduced kernels stay valid."""

import numpy as np
import pytest

from ptxdiff.emulator import Buffer, PtxError, run_kernel
from ptxdiff.emulator.machine import lockstep
from ptxdiff.emulator.text import parse_module
from ptxdiff.fuzz.execution import emulated, inputs_of, text_of
from ptxdiff.fuzz.generate import FAMILIES, program
from ptxdiff.fuzz.pieces import UnsupportedCode, pieces_of
from ptxdiff.fuzz.reduce import nearest, nothing, reduced, settled, smaller

TARGET = "sm_90a"
EVERY = dict.fromkeys(FAMILIES, 1.0)


@pytest.mark.slow
def test_random_programs_compute_the_same_when_joined_again():
    seen = set()
    for seed in map(str, range(24)):
        text = text_of([program(seed, 90, EVERY)], TARGET)
        apart = pieces_of(text)
        again = apart.text(apart.program)
        seen |= {word for word in ("bra", "@", "bar.", ".shared") if word in again}
        inputs = inputs_of(seed)
        np.testing.assert_array_equal(emulated(again, "p0", inputs), emulated(text, "p0", inputs))
    assert seen >= {"bra", "@", ".shared"}


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


def cut(body, shows):
    """The text of the smallest kernel that parses and whose text satisfies a condition."""
    apart = pieces_of(KERNEL.format(body=body))

    def each(programs):
        texts = [apart.text(p) for p in programs]
        for text in texts:
            parse_module(text)
        return [shows(t) for t in texts]

    return apart.text(reduced(apart.program, each, smaller, at_once=1, onwards=True))


def instructions(text):
    lines = [line for line in text[text.index("{") :].splitlines() if line.endswith(";")]
    return [line for line in lines if not line.startswith((".reg", ".shared", "ret"))]


def test_scopes_may_use_a_name_again():
    apart = pieces_of(KERNEL.format(body="mov.u32 %r2, 1;\n@%p1 mov.u32 %r2, 5;\n{ .reg .b32 %r2; mov.u32 %r2, 9; }"))
    first, second, third = (p for p in apart.program.pieces if p.text.startswith("mov") and "tid" not in p.text)
    assert first.writes == second.writes != third.writes
    assert second.guard is not None
    left = settled(apart.program.pieces, nothing)
    assert third not in left
    assert first in left


def test_reducing_keeps_what_the_condition_needs():
    assert len(instructions(cut("mov.u32 %r2, 1;\nmov.u32 %r3, 7;", lambda text: "st.global" in text))) == 1


LOOP = """mov.u32 %r2, 3;
mov.u32 %r3, 0;
AGAIN:
add.u32 %r3, %r3, 1;
xor.b32 %r2, %r2, %r3;
setp.lt.u32 %p1, %r3, 7;
@%p1 bra AGAIN;
add.u32 %r2, %r2, 5;"""
BRANCH = """mov.u32 %r2, 3;
@%p1 bra THEN;
add.u32 %r2, %r2, %r1;
bra.uni JOIN;
THEN:
xor.b32 %r2, %r2, 9;
{ .reg .b32 %r2; mov.u32 %r2, 1; @!%p1 bra JOIN; }
add.u32 %r2, %r2, 5;
JOIN:
add.u32 %r2, %r2, 6;"""


@pytest.mark.parametrize("body", [LOOP, BRANCH])
def test_a_loop_and_a_branch_without_effect_are_removed(body):
    small = cut(body, lambda text: "xor.b32" in text and "st.global" in text)
    assert "bra" not in small
    assert "setp" not in small
    assert len(instructions(small)) <= 3, small


def test_a_branch_with_an_effect_is_kept_with_its_label():
    small = cut(BRANCH, lambda text: "bra" in text and "xor.b32" in text and "st.global" in text)
    assert "$L0:" in small
    assert "bra $L0;" in small
    assert len(instructions(small)) <= 6, small


def test_candidates_run_or_are_refused_with_an_error():
    """The emulator runs or refuses every candidate, and never fails in another way."""
    inputs = inputs_of("1")
    apart = pieces_of(text_of([program("5", 90, EVERY)], TARGET))
    ran = 0
    for make in list(smaller(apart.program))[::23]:
        buffers = [Buffer(inputs, "inputs"), Buffer(np.zeros_like(inputs), "outputs", defined=False)]
        try:
            run_kernel(apart.text(make()), buffers, (1,), num_threads=len(inputs), limit=0.5)
            ran += 1
        except PtxError:
            continue
    assert ran


def test_unreachable_and_unread_pieces_are_removed():
    apart = pieces_of(KERNEL.format(body="mov.u32 %r2, 1;\nbra NEXT;\nadd.u32 %r2, %r2, 9;\nNEXT:\nmov.u32 %r3, 2;"))
    texts = [p.text for p in settled(apart.program.pieces, nearest)]
    assert [t.split()[0] for t in texts] == ["ld.param.u64", "mov.u32", "st.global.u32"]


def test_variables_in_shared_memory_are_kept_while_they_are_named():
    body = ".shared .align 4 .b32 s, t;\nst.shared.u32 [s], %r1;\nbar.sync 0;\nld.shared.u32 %r2, [s];"
    apart = pieces_of(KERNEL.format(body=body))
    assert apart.text(apart.program).count(".shared .align 4 .b32 s, t;") == 1
    assert ".shared .align" not in cut(body, lambda text: "st.global" in text)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (".reg .v4 .b32 v; mov.u32 %r2, 1;", "reg v"),
        ("mov.u32 %r2, ;", "expected an operand"),
        ("T: .branchtargets A, B;\nbrx.idx %r1, T;\nA:\nB:\nmov.u32 %r2, 1;", "BranchTargets|brx"),
        ("{ .shared .b32 s; }\n{ .shared .b32 s; }", "shared s"),
    ],
)
def test_unsupported_code_is_refused(body, words):
    with pytest.raises(UnsupportedCode, match=words):
        pieces_of(KERNEL.format(body=body))


EXCHANGE = """.version 8.1
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a)
{
.reg .b64 %rd<4>; .reg .b32 %r<9>; .reg .pred %p<2>;
.shared .align 4 .b8 tile[256];
ld.param.u64 %rd1, [a];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd3, %rd1, %rd2;
shl.b32 %r2, %r1, 2;
mov.u32 %r3, tile;
add.u32 %r4, %r3, %r2;
st.shared.u32 [%r4], %r1;
bar.sync 0;
xor.b32 %r5, %r2, 128;
add.u32 %r6, %r3, %r5;
ld.shared.u32 %r7, [%r6];
mov.u32 %r8, 0;
AGAIN:
add.u32 %r7, %r7, 3;
add.u32 %r8, %r8, 1;
setp.lt.u32 %p1, %r8, 4;
@%p1 bra AGAIN;
st.global.u32 [%rd3], %r7;
ret;
}
"""


def test_a_barrier_between_threads_and_the_end_of_a_loop_are_kept(monkeypatch):
    """Without the barrier threads race, and without the loop's end they never stop. The emulator refuses both."""
    monkeypatch.setattr(lockstep, "STEP_LIMIT", 1000)  # the program takes fewer than 50
    apart = pieces_of(EXCHANGE)
    refused = []

    def runs(text):
        made = np.zeros(64, np.uint32)
        try:
            run_kernel(text, [Buffer(made, "a", defined=False)], (1,), num_threads=64)
        except PtxError as error:
            refused.append(str(error))
            return False
        return np.array_equal(made, (np.arange(64) ^ 32) + 12)

    assert runs(EXCHANGE)

    small = apart.text(
        reduced(apart.program, lambda ps: [runs(apart.text(p)) for p in ps], smaller, at_once=1, onwards=True)
    )
    for kept in ("bar.sync", "st.shared", "ld.shared", "bra"):
        assert kept in small, small
    for words in ("race: ", "undefined bits", "an endless loop"):
        assert any(words in error for error in refused), words
