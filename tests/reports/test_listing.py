"""Listings of PTX and SASS: which lines are shown, their marks, and how PTX and SASS lines are matched."""

import pytest

from ptxdiff.reports.highlight import excerpt, listing, runs
from tests.support.reports import synthetic

PTX = synthetic.ptx_text("rcp.rn.f32", "sm_90a", 2)
SASS = synthetic.sass_text("rcp.rn.f32", "sm_90a", 2)


def test_our_asm_is_distinguished_from_tritons_own():
    found = listing(PTX, SASS)
    assert {line.text for line in found.ptx if line.mark == "ours"} == {
        f"rcp.rn.f32 %r{20 + b}, %r{1 + (b + p) % 4};" for b in range(4) for p in range(2)
    }
    triton = [line.text.strip() for line in found.ptx if line.mark == "triton"]
    assert triton == [
        "mov.u32 %r1, 0x0;",
        "@%p1 ld.global.b32 { %r1 }, [ %rd1 + 0 ];",
        "@%p1 st.global.b32 [ %rd3 + 0 ], { %r20 };",
    ]


def test_line_numbers_are_those_of_the_file_and_debug_lines_are_omitted():
    found = listing(PTX, SASS)
    lines = PTX.splitlines()
    assert all(lines[line.number - 1].split() == line.text.split() for line in found.ptx)
    assert not any(".loc" in line.text or "Abbreviation" in line.text for line in found.ptx)


def test_sass_lines_have_the_marks_of_their_ptx():
    found = listing(PTX, SASS)
    assert found.lined_up
    assert [s.text.split()[0] for s in found.sass if s.mark == "ours"] == ["MUFU.RCP", "FMUL"] * 8
    assert found.sass[-1].text.strip() == "EXIT"


def test_sass_without_ptx_lines_has_no_marks():
    plain = "\n".join(line for line in SASS.splitlines() if "//##" not in line)
    found = listing(PTX, plain)
    assert not found.lined_up
    assert not any(s.mark for s in found.sass)
    assert excerpt(found).sass == ()


def test_the_excerpt_is_one_invocation_and_counts_the_others():
    part = excerpt(listing(PTX, SASS))
    assert [line.text for line in part.ptx] == ["rcp.rn.f32 %r20, %r1;", "rcp.rn.f32 %r20, %r2;"]
    assert len(part.sass) == 4
    assert part.more == 3


@pytest.mark.parametrize(("ptx", "sass"), [("", ""), ("nothing", "nothing"), ("", SASS)])
def test_missing_or_strange_texts_are_shown_as_they_are(ptx, sass):
    assert excerpt(listing(ptx, sass)) is None


@pytest.mark.parametrize(
    ("line", "language", "expected"),
    [
        (
            "cvt.rn.satfinite.e2m1x2.f32 b0, $1, $2;",
            "ptx",
            [("k", "cvt"), ("t", ".rn.satfinite.e2m1x2.f32 "), ("v", "b0")],
        ),
        ("@!%p1 bra $L__BB0_1;", "ptx", [("g", "@!%p1 "), ("k", "bra "), ("l", "$L__BB0_1")]),
        (
            "mov.b32 %r1, 0f3F800000;",
            "ptx",
            [("k", "mov"), ("t", ".b32 "), ("v", "%r1"), ("", ", "), ("n", "0f3F800000")],
        ),
        ("{ .reg .b8 byte0;", "ptx", [("", "{ "), ("d", ".reg .b8 "), ("v", "byte0")]),
        ("@!P0 LDG.E R0, desc[UR4][R2.64]", "sass", [("g", "@!P0 "), ("k", "LDG"), ("t", ".E "), ("v", "R0")]),
    ],
)
def test_colours(line, language, expected):
    assert list(runs(line, language))[: len(expected)] == expected


@pytest.mark.parametrize("line", ["", "   ", "\x00<script>'\"&", "@", "0x", "é → ü", "/* open", PTX.splitlines()[30]])
def test_colouring_loses_no_character(line):
    for language in ("ptx", "sass"):
        assert "".join(text for _, text in runs(line, language)) == line
