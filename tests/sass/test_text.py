"""Decoding nvdisasm's text."""

from __future__ import annotations

import pytest

from ptxdiff.sass.rows import match
from ptxdiff.sass.text import Control, Unsupported, functions, operand
from tests.support.sass.assembly import written

TEXT = """\
	.section	.text.add,"ax",@progbits
add:
.text.add:
        /*0000*/              @!P0 FADD.FTZ R5, -|R4|, 1.5 ;     /* 0x3fc0000004058421 */
                                                                 /* 0x004fe200000102ff */
.L_x_0:
        /*0010*/                   BRA `(.L_x_0);                /* 0xfffffff000007947 */
                                                                 /* 0x000fc0000383ffff */
"""


def test_an_instruction_has_its_parts() -> None:
    add, jump = functions(TEXT)["add"].instructions
    assert add.guard is not None
    assert (add.opcode, add.modifiers, add.guard.number, add.guard.inverted) == ("FADD", ("FTZ",), 0, True)
    assert (add.operands[1].negated, add.operands[1].absolute, add.immediate) == (True, True, 0x3FC00000)
    assert jump.operands[0].name == ".L_x_0"
    assert functions(TEXT)["add"].labels[".L_x_0"] == 16


def test_the_control_code_is_taken_apart() -> None:
    assert Control.of(0x004FE200000102FF) == Control(stall=1, yields=1, write=7, read=7, waits=4, reuse=0)


def test_a_float_immediate_keeps_its_bits() -> None:
    text = TEXT.replace("1.5", "+QNAN ").replace("0x3fc00000", "0x7fc12345")
    assert functions(text)["add"].instructions[0].immediate == 0x7FC12345


@pytest.mark.parametrize(
    "text", ["R1", "-R1.reuse", "|R3|", "~UR4", "!UP2", "URZ", "c[0x0][0x160]", "-c[0x3][0x8]", "c[0x0][R4+0x10]",
             "c[0x0] [0x168].H0_H0", "|c[0x0] [0x168]|",
             "[R2.64+0x40]", "[R2.64+-0x40]", "desc[UR4][R2.64+UR6+0x8]", "-0x10", "+INF", "-QNAN", "1.5e-05",
             "SR_TID.X"]
)  # fmt: skip
def test_operands_are_known(text: str) -> None:
    operand(text)


@pytest.mark.parametrize("text", ["R1+R2", "[R2.64*8]", "c[0x0]", "c[0x0]  [0x4]", "{R1}", "R-1", ""])
def test_operands_of_unknown_form_are_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        operand(text)


def test_an_instruction_of_unknown_form_is_kept_and_has_no_row() -> None:
    unknown = functions(TEXT.replace("BRA `(.L_x_0);", "bra?`(.L_x_0);"))["add"].instructions[1]
    assert unknown.address == 16
    with pytest.raises(Unsupported, match="bra"):
        match(unknown)


def test_an_encoding_on_a_line_of_its_own_is_read() -> None:
    text = TEXT.replace("1.5 ;     /*", "1.5 ;\n            /*")
    assert functions(text)["add"].instructions[0].immediate == 0x3FC00000


def test_half_an_encoding_is_refused() -> None:
    with pytest.raises(Unsupported):
        functions("\n".join(TEXT.splitlines()[:-1]))


def test_texts_of_tests_are_read() -> None:
    assert written("MOV R1, 0x4\nEXIT").instructions[0].immediate == 4
