"""Rules that ask a solver: a shared register is shown wrong, proved harmless, or said to be tried and no more."""

from __future__ import annotations

import pytest

pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
pytest.importorskip("z3", reason="the extra `prove` is not installed")

from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.rules.proofs import early_clobber_proof
from ptxdiff.lint.snippet import Snippet
from ptxdiff.proving.registers import changed_by_sharing


def reported(text: str) -> list[tuple[str, str]]:
    return [(f.message, f.severity or "") for f in early_clobber_proof(LintedBlock(Snippet(text, "=r,r,r")))]


RARE = """{ .reg .b32 t; .reg .pred p; mul.lo.u32 t, $2, 0x9E3779B1; setp.eq.u32 p, t, 0xABCDEF01;
    or.b32 $0, $1, $2; @p xor.b32 $0, $0, $1; }"""


def test_a_register_that_matters_for_one_word_of_2_32_is_shown() -> None:
    (one,) = reported(RARE)
    assert one[0].startswith("with $0 and $1 in one register, $1 = ")
    assert one[1] == ""


def test_a_register_that_matters_for_no_word_is_not_reported() -> None:
    assert reported(RARE.replace("@p xor.b32", "@p or.b32")) == []


def test_what_is_not_proved_is_said_to_be_a_trial() -> None:
    text = "{ .reg .b32 t; mov.u32 t, %laneid; or.b32 $0, $1, t; and.b32 t, $2, 0; or.b32 $0, $0, t; }"
    assert reported(text) == [
        ("$0 and $2 in one register were tried on some values, and nothing is proved", "note"),
    ]  # fmt: skip


def test_a_shared_register_that_becomes_undefined_is_no_proof() -> None:
    """The value of an undefined register is unknown, though a term has some number there."""
    text = "{ .reg .b32 t; mov.b32 $0, t; and.b32 t, $1, 0; mul.lo.u32 t, $1, 0; mov.b32 $0, t; }"
    assert changed_by_sharing(text, "=r,r,r", "sm_90a", ((0, 1),), (), 10.0) is not False
