"""The table is closed: a modifier, suffix or operand that a row does not have refuses the instruction."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from ptxdiff.sass import isa  # noqa: F401
from ptxdiff.sass.rows import ROWS, functions_of, match
from ptxdiff.sass.text import Unsupported
from tests.support.sass.assembly import LOAD, STORE, run, written


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("FFMA.FTZ.RZ R1, R2, -R3, |R4|", "FFMA{.FTZ}{.rnd}{.SAT}"),
        ("IADD3 R1, P0, R2, -R3, RZ", "IADD3"),
        ("UIADD3 UR4, UR5, 0x10, URZ", "IADD3"),
        ("ISETP.GE.U32.AND.EX P0, PT, R3, R5, PT, P1", "ISETP.cmp.U32.bool.EX"),
        ("LOP3.LUT P0, RZ, R4, 0x7f, RZ, 0xc0, !PT", "LOP3.LUT"),
        ("HADD2.F32 R4, -RZ, R4.H1_H1", "HADD2.F32"),
        ("F2FP.BF16.E5M2.UNPACK_B R1, R2, 4.5736980577097704378e-41.H0", "F2FP{.SATFINITE}{.RELU}.BF16.form.UNPACK_B"),
        ("PLOP3.LUT P0, PT, R2.SIGN, R5.SIGN, R0.SIGN, 0x2, 0x0", "PLOP3.LUT"),
        ("I2F.F16.S8 R1, R2.B3", "I2F.F16.byte{.rnd}"),
        ("FHADD.BF16 R1, R2.H1, -R3", "FHADD{.type}{.rnd}{.SAT}"),
        ("F2FP.SATFINITE.E4M3.F16.UNPACK_B_MERGE_C R1, R2, RZ", "F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C"),
        ("F2FP.SATFINITE.E4M3.F16.UNPACK_B_MERGE_C R1, R2, R3", "F2FP.SATFINITE.form{.RELU}.F16.UNPACK_B_MERGE_C"),
        ("I2IP.S2.S32.SAT R1, R2, R3, R4.28", "I2IP.kind.S32.SAT"),
        ("VABSDIFF4.U8.ACC R1, R2, R3, R4", "VABSDIFF4{.kind}{.ACC}"),
        ("QMUL4.E4M3x4.E4M3x4.E4M3x4 R1, R2.B3210, R3.B3210", "QMUL4.E4M3x4.E4M3x4.E4M3x4{.SATFINITE}"),
        ("QMUL4.E4M3x4.E2M1x4.E4M3x4.SATFINITE R1, R2.N6420, R3.B3210", "QMUL4.E4M3x4.E2M1x4.E4M3x4{.SATFINITE}"),
        ("LEA.HI R1, R2, -R3, R4, 0x10", "LEA.HI-b"),
        ("LEA.HI R1, R2, R3, R4, 0x10", "LEA.HI"),
        ("LEA.HI.SX32 R1, R2, -R3, 0x7", "LEA.HI.SX32-b"),
        ("IMAD.HI.U32 R1, P1, R2, R3, R4", "IMAD.HI.U32+carry"),
        ("IADD.64 RZ, P1, R2, -R4", "IADD.64-b"),
        ("IADD.64 R2, P1, R2, R4", "IADD.64"),
        ("IADD.64 RZ, P1, -R2, R4", "IADD.64-a"),
        ("IADD.64.X RZ, P0, R2, ~R4, P0", "IADD.64.X+carry"),
        ("IADD.64.X R2, R2, ~R4, P0", "IADD.64.X"),
        ("IMNMX.S64 PT, PT, R2, R4, R6, !PT, !PT", "IMNMX.S64"),
        ("PRMT.ECL R1, R2, R3, R4", "PRMT.mode"),
        ("VIADD.S32.ISAT R1, R2, -R3", "VIADD.S32.ISAT"),
        ("UI2F.U32.RP UR4, 0xa", "I2F.U32{.rnd}"),
        ("IMAD.HI.U32.X R1, R2, R3, R4, P1", "IMAD.HI.U32.X"),
        ("IMAD.HI R1, P0, R2, R3, R4", "IMAD.HI+carry"),
        ("IMAD.WIDE R2, P0, R4, R5, R6", "IMAD.WIDE+carry"),
        ("IMAD.WIDE R2, R4, R5, -UR6", "IMAD.WIDE-c"),
        ("IMAD.WIDE R2, R4, R5, R6", "IMAD.WIDE"),
        ("LEA.HI.SX32 RZ, P0, R2, R3, 0x7", "LEA.HI.SX32+carry"),
        ("LEA.HI.SX32 RZ, P0, R2, -R3, 0x7", "LEA.HI.SX32-b+carry"),
        ("LEA.HI.X.SX32 R1, R2, ~R3, 0x1, P0", "LEA.HI.X.SX32~b"),
        ("LEA.HI.X.SX32 R1, R2, R3, 0x1, P0", "LEA.HI.X.SX32"),
        ("LOP3.LUT R1, R2, R3, R4, 0xc0, P0", "LOP3.LUT+p"),
        ("LOP3.LUT.PAND R1, R2, R3, R4, 0xc0, P0", "LOP3.LUT.PAND+p"),
        ("DSETP.MAX.AND P0, P1, R2, -UR4, PT", "DSETP.which.AND"),
        ("HFMA2.BF16_V2.OOB.RELU R1, R2, R3, R4", "HFMA2{.MMA}{.type}.OOB{.SAT}{.RELU}"),
        ("HADD2.F32.SAT R1, -RZ, R2.H0_H0", "HADD2.F32.SAT"),
        ("HADD2 R1, -RZ.H0_H0, c[0x2][0x0].F32", "HADD2.constant"),
        ("FHADD2.F32x2.BF16x2.F32x2.RM R2, R4, -R6.F32x2.HI_LO", "FHADD2.F32x2.BF16x2.F32x2{.rnd}"),
        ("FHADD2.F16x2.F32x2.F32x2.FTZ.RZ R1, R4.F32x2.HI_LO, R6.F32x2.HI_LO", "FHADD2.F16x2.F32x2.F32x2.FTZ.RZ"),
        ("HMUL2.BF16x2.BF16x2.F16x2 R1, R2, R3", "HMUL2.BF16x2.BF16x2.F16x2"),
        ("F2F.FTZ.F32.BF16.RM R1, R2", "F2F.FTZ.F32.BF16{.rnd}"),
        ("F2FP.E8.F32.PACK_AB_MERGE_C.RZ R1, R2, R3, R4", "F2FP{.SATFINITE}.E8.F32.PACK_AB_MERGE_C.rnd+c"),
        ("F2FP.E8.F32.PACK_AB_MERGE_C.RZ R1, R2, R3, RZ", "F2FP{.SATFINITE}.E8.F32.PACK_AB_MERGE_C.rnd"),
        ("F2FP.SATFINITE.E2M3.F16.UNPACK_B_MERGE_C R1, 1.5, R3", "F2FP.SATFINITE.six{.RELU}.F16.UNPACK_B_MERGE_C+c"),
        ("F2FP.SATFINITE.E2M1.F16.UNPACK_B_MERGE_C R1, R2, R3", "F2FP.SATFINITE{.RELU}.E2M1.F16.UNPACK_B_MERGE_C"),
        ("VHMNMX.BF16_V2.NAN R1, R2, -R3, |R4|, !PT", "VHMNMX{.type}{.NAN}"),
        ("VHMNMX R1, R2.H0_H0, R3, R4, PT", "VHMNMX{.type}{.NAN}"),
        ("IMAD.WIDE.U32 R2, R4, R5, -R6", "IMAD.WIDE.U32-c"),
        ("IMAD.WIDE.U32 RZ, P0, R4, R5, -R6", "IMAD.WIDE.U32-c"),
        ("F2IP.S8.F32.TRUNC.NTZ R1, R2, R3, R4", "F2IP.kind.F32{.rnd}.NTZ"),
        ("F2IP.U8.F32.NTZ R1, RZ, R3, RZ", "F2IP.U8.F32{.rnd}.NTZ"),
        ("LEA.HI R1, -R2, R3, R4, 0xc", "LEA.HI-a"),
        ("IMAD.WIDE.X R2, R4, R5, R6, P0", "IMAD.WIDE.X"),
        ("IMAD.WIDE.X R2, R4, R5, ~R6, !P0", "IMAD.WIDE.X~c"),
        ("IMAD.WIDE.U32.X R2, R4, R5, ~R6, P0", "IMAD.WIDE.U32.X~c"),
        ("IMAD.WIDE.U32.X R2, R4, R5, R6, P0", "IMAD.WIDE.U32.X"),
        ("IMAD.WIDE R2, P1, R4, R5, -R6", "IMAD.WIDE-c+carry"),
        ("CLMAD.LO R2, R4, R6, R8", "CLMAD.half"),
        ("IMAD.WIDE R2, P1, R4, R5, R6", "IMAD.WIDE+carry"),
        ("IMAD.WIDE.X R2, P1, R4, R5, R6, P0", "IMAD.WIDE.X+carry"),
        ("IMAD.WIDE.X R2, P1, R4, R5, ~R6, !P0", "IMAD.WIDE.X+carry"),
        ("IMAD.WIDE.U32.X R2, P1, R4, R5, ~R6, P0", "IMAD.WIDE.U32.X~c+carry"),
        ("VIMNMX3.U16x2 R1, R2, R3, R4, PT", "VIMNMX3.U16x2"),
        ("VIMNMX3.S16x2.RELU R1, R2, R3, R4, PT", "VIMNMX3.S16x2{.RELU}"),
        ("VIMNMX3.RELU R1, R2, R3, R4, PT", "VIMNMX3.RELU"),
        ("VIMNMX.S32.RELU R1, R2, R3, PT", "VIMNMX.S32.RELU"),
        ("LEA RZ, P0, -R2, R3, 0x4", "LEA-a"),
        ("LEA RZ, P0, R2, -R3, 0x4", "LEA-b"),
        ("LEA R1, P0, R2, R3, 0x4", "LEA"),
        ("LEA.X R1, R2, R3, 0xc, P0", "LEA.X"),
        ("LEA.X R1, P1, R2, ~R3, 0x1c, P0", "LEA.X~b"),
        ("LEA.HI.X RZ, P1, R2, R3, R4, 0x4, P0", "LEA.HI.X+carry"),
        ("LEA.HI.X R1, R2, R3, R4, 0x4, P0", "LEA.HI.X"),
        ("LEA.HI.X R1, R2, ~R3, RZ, 0x1c, P0", "LEA.HI.X~b"),
        ("LEA.HI.X.SX32 RZ, P0, R2, R3, 0x4, P1", "LEA.HI.X.SX32+carry"),
        ("LEA.HI.X.SX32 R1, P0, R2, ~R3, 0x4, P1", "LEA.HI.X.SX32~b+carry"),
        ("QADD4.E4M3x4.E4M3x4.SATFINITE R1, R2.B3210, -R3.B3210", "QADD4.E4M3x4.E4M3x4{.SATFINITE}"),
        ("IMAD.U32.X R1, R2, R3, R4, P0", "IMAD.X{.U32}"),
        ("VIADD.S8x4.ISAT R1, R2, -UR4", "VIADD.S8x4.ISAT-difference"),
        ("VIADD.U8x4.ISAT R1, R2, R3", "VIADD.U8x4.ISAT"),
        ("UVIADD.U8x4 UR4, -URZ, 0x7842a76", "UVIADD.kind"),
        ("VIMNMX.S8x4.RELU R1, R2, R3, !PT", "VIMNMX.S8x4.RELU"),
        ("F2FP.SATFINITE.RELU.BF16.MERGE_C.RZ R1, R2, RZ", "F2FP{.SATFINITE}{.RELU}.BF16.MERGE_C{.rnd}"),
        ("F2FP.SATFINITE.PACK_AB R1, R2, R3", "F2FP.SATFINITE{.RELU}.PACK_AB{.rnd}"),
        ("F2FP.RELU.BF16.S2_6.UNPACK_B R1, R2, R3.H0", "F2FP{.SATFINITE}{.RELU}.BF16.S2_6.UNPACK_B"),
        ("MUFU.EX2.BF16x2 R1, R2", "MUFU.EX2.x2"),
        ("LEA.HI RZ, P2, R4, -R3, RZ, 0x10", "LEA.HI-b+carry"),
        ("VIMNMX.S16x2 R7, P0, P1, R0, R7, !PT", "VIMNMX.kind+predicates"),
        ("UIADD3.64 UR4, UPT, UPT, UR4, -UR6, URZ", "UIADD3.64-b"),
        ("UIADD3.64 URZ, UP0, UPT, UR4, UR6, URZ", "UIADD3.64"),
        ("UIADD3.64 UR4, UPT, UPT, UR4, -0x1, URZ", "UIADD3.64"),
        ("UIADD3.64.X UR4, UPT, UPT, UR4, UR6, URZ, UP0, !UPT", "UIADD3.64.X"),
        ("UIMAD.WIDE.U32 UR4, UP0, URZ, -0x1, URZ", "IMAD.WIDE.U32"),
        ("UIMAD.WIDE.U32.X URZ, UP0, UR4, UR5, ~UR6, UP1", "IMAD.WIDE.U32.X~c+carry"),
        ("UIMNMX.S64 UPT, UPT, UR4, URZ, UR4, !UPT, !UPT", "IMNMX.S64"),
        ("UVIADD.S32.ISAT UR5, UR4, UR4", "VIADD.S32.ISAT"),
        ("UFLO.SH UR5, UR4", "FLO.SH"),
        ("UI2F.RP UR4, 0x1", "I2F{.rnd}"),
        ("UI2FP.F32.U32.RZ UR4, UR5", "I2FP.F32.U32{.rnd}"),
        ("UF2I.TRUNC.NTZ UR5, UR5", "F2I{.FTZ}{.sign}{.rnd}.NTZ"),
        ("UFRND.FTZ.FLOOR UR4, UR5", "FRND{.FTZ}{.rnd}"),
        ("UF2FP.SATFINITE.E5M2.F16.UNPACK_B_MERGE_C UR4, UR5, URZ", "F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C"),
        ("HFMA2.BF16_V2 R5, R7, R0, c[0x0] [0x168]", "HFMA2{.MMA}{.type}{.FTZ}{.SAT}{.RELU}"),
        ("VIMNMX.U16x2 R10, PT, PT, R8, R9, !PT", "VIMNMX.U16x2"),
        ("VIMNMX.S16x2 R10, PT, PT, R8, R9, PT", "VIMNMX.S16x2{.RELU}"),
        ("VIMNMX.U16x2 R10, P0, PT, R8, R9, !PT", "VIMNMX.kind+predicates"),
        ("VIMNMX.U16x2 R10, P1, P1, R8, R9, !PT", "VIMNMX.kind+predicate"),
        ("FADD2 R2, R2.F32x2.HI_LO, R4.F32x2.LO_HI", "FADD2.exchanged{.FTZ}{.rnd}"),
        ("FADD2.FTZ.RZ R2, |R2|.F32x2.LO_HI, -UR4.F32x2.HI_LO", "FADD2.exchanged{.FTZ}{.rnd}"),
        ("FADD2 R2, R2.F32x2.HI_LO, R4.F32", "FADD2{.FTZ}{.rnd}"),
        ("FMUL2.RM R2, -R2.F32x2.HI_LO.NP, UR6.F32x2.HI_LO", "FMUL2.one_negated{.FTZ}{.rnd}"),
        ("FMUL2.RP R2, R2.F32x2.LO_HI.NP, UR6.F32x2.HI_LO", "FMUL2.exchanged_and_negated{.FTZ}{.rnd}"),
        ("FFMA2 R2, R2.F32x2.HI_LO, R4.F32x2.LO_HI, -UR6.F32x2.HI_LO.NP", "FFMA2.exchanged.one_negated{.FTZ}{.rnd}"),
        ("FFMA2 R2, R2.F32x2.LO_HI.NP, UR6.F32x2.HI_LO, R8.F32x2.HI_LO.NP", "FFMA2.exchanged_and_negated{.FTZ}{.rnd}"),
        ("F2FP.SATFINITE.E4M3.F16.UNPACK_B_MERGE_C R1, 1.5, RZ", "F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C#"),
        ("UF2FP.SATFINITE.E5M2.F16.UNPACK_B_MERGE_C UR4, 1.5, URZ", "F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C#"),
        ("F2FP.SATFINITE.E4M3.BF16.UNPACK_B_MERGE_C R1, 1.5, R3", "F2FP.SATFINITE.form{.RELU}.BF16.UNPACK_B_MERGE_C#"),
        ("F2FP.E8.BF16.UNPACK_B_MERGE_C.RZ R1, 1.5, RZ", "F2FP{.SATFINITE}.E8.BF16.UNPACK_B_MERGE_C.rnd#"),
        ("UIADD3.64 UR4, UPT, UPT, -UR4, URZ, URZ", "UIADD3.64-a"),
        ("I2IP.S8.S32.SAT R1, R2, R3, R4.H1", "I2IP.kind.S32.SAT.H1"),
        ("I2IP.U8.S32.SAT R1, R2, 0x2, R4.H1", "I2IP.kind.S32.SAT.H1"),
        ("I2IP.U8.S32.SAT R1, R2, R3, R4", "I2IP.kind.S32.SAT"),
        ("IMAD.HI R1, R2, R3, -R4", "IMAD.HI-c"),
        ("IMAD.HI.U32 R1, R2, R3, -UR4", "IMAD.HI.U32-c"),
        ("IMAD.HI R1, R2, R3, R4", "IMAD.HI"),
        ("UVIMNMX.U8x4 UR4, URZ, 0x1ff7f30, !UPT", "UVIMNMX.U8x4"),
        ("UVIMNMX.U8x4 UR4, URZ, URZ, UPT", "UVIMNMX.U8x4"),
        ("IMAD.HI R1, P0, R2, R3, -R4", "IMAD.HI-c+carry"),
        ("VISET.BM.NE.S32 R1, R2, RZ", "VISET.BM.cmp.S32"),
        ("VISET.BM.GT.U32 R1, R2, R3", "VISET.BM.cmp.U32"),
        ("VISET.BM.LE.S8x4 R1, R2, R3", "VISET.BM.cmp.kind"),
        ("F2FP.BF16.F32.MERGE_C.RZ.PZO R1, R2, RZ", "F2FP{.SATFINITE}{.RELU}.BF16.F32.MERGE_C{.rnd}.PZO"),
        ("F2FP.RELU.F16.F32.PACK_AB.PZO R1, R2, R3", "F2FP{.SATFINITE}{.RELU}.F16.F32.PACK_AB{.rnd}.PZO"),
        ("F2FP.SATFINITE.TF32.F32.PACK_B.PZO R1, R2", "F2FP{.SATFINITE}{.RELU}.TF32.F32.PACK_B{.rnd}.PZO"),
        (
            "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C.RZ R1, R2, R3, RZ",
            "F2FP.SATFINITE{.RELU}.form.F32.PACK_AB_MERGE_C.RZ",
        ),
        (
            "F2FP.SATFINITE.E2M1.F32.PACK_AB_MERGE_C.RZ.PZO R1, R2, R3, RZ",
            "F2FP.SATFINITE{.RELU}.form.F32.PACK_AB_MERGE_C{.rnd}.PZO",
        ),
        (
            "F2FP.SATFINITE.E5M2.F16.UNPACK_B_MERGE_C.PZO R1, R2, RZ",
            "F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C{.rnd}.PZO",
        ),
        ("F2FP.SATFINITE.E5M2.F16.UNPACK_B_MERGE_C R1, R2, RZ", "F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C"),
        ("F2FP.UE5M3.F32.PACK_AB_MERGE_C.RP R1, R2, R3, RZ", "F2FP{.SATFINITE}.UE5M3.F32.PACK_AB_MERGE_C{.rnd}"),
        ("F2FP.F16.UE5M3.UNPACK_B R1, R2", "F2FP.F16.UE5M3.UNPACK_B"),
        (
            "F2FP.SATFINITE.S2_6.F32.PACK_AB_MERGE_C.RZ R1, R2, R3, R4",
            "F2FP.SATFINITE{.RELU}.S2_6.F32.PACK_AB_MERGE_C.RZ",
        ),
    ],
)
def test_instructions_find_their_rows(text: str, name: str) -> None:
    assert match(written(text).instructions[0]).row.name == name


@pytest.mark.parametrize(
    "text",
    [
        "FADD.XX R1, R2, R3",  # a modifier that no row has
        "FADD.FTZ.FTZ R1, R2, R3",  # twice
        "FMNMX.XORSIGN.FOO R1, R2, R3, PT",
        "FFMA.RZ.RM R1, R2, R3, R4",  # two of one choice
        "FADD R1, R2.H0_H0, R3",  # a suffix
        "IADD3 R1, |R2|, R3, R4",  # a sign that integers do not have
        "FADD R1, ~R2, R3",
        "IADD3 R1, R2, R3",  # too few operands
        "IADD3 R1, R2, R3, R4, R5",
        "LOP3.LUT R1, R2, R3, R4, 0xc0, PT",  # the last predicate joins the result
        "UIADD3 UR4, R5, 0x10, URZ",  # a lane's register in a uniform instruction
        "UIADD3 R4, UR5, 0x10, URZ",
        "IMAD.WIDE R2, R4, R5, R7",  # a pair of registers that begins at an odd number
        "FADD R1, R2, c[0x0][R4+0x10]",
        "PLOP3.LUT P0, PT, R2.SIGN, P1, R0.SIGN, 0x2, 0x0",  # a sign beside a predicate
        "PLOP3.LUT P0, PT, R2, R3, R0, 0x2, 0x0",
        "F2FP.BF16.E5M2.UNPACK_B R1, R2, 4.5e-41",  # which half is not written
        "FADD R1, R2, 1.5.H0",
        "I2F.F16.S8 R1, R2.H1",
        "I2IP.S2.S32.SAT R1, R2, R3, R4.24",  # the bits that it drops are another form's
        "I2IP.U8.S32.SAT R1, R2, R3, R4.24",
        "VABSDIFF4.U8.SAT R1, R2, R3, R4",
        "IMNMX.S64 UPT, UPT, R2, R4, R6, !PT, !PT",  # predicates of the other kind
        "UIADD3.64 UR4, UPT, UPT, UR4, UR6, UR8",  # a third number that is not 0
        "UIADD3.64.X UR4, UPT, UPT, UR4, UR6, URZ, UP0, UP1",
        "UF2FP.SATFINITE.E5M2.F16.UNPACK_B_MERGE_C UR4, UR5, RZ",
        "VIMNMX.S16x2.RELU R7, P0, P1, R0, R7, !PT",
        "VIMNMX.S16x2.RELU R7, P0, P0, R0, R7, !PT",
        "FADD2 R2, R2.F32x2.LO_LO, R4.F32x2.HI_LO",
        "FADD2 R2, R2.F32x2.LO_HI, R5.F32x2.HI_LO",  # a pair of registers that begins at an odd number
        "FADD2 R2, |R2|.F32x2.HI_LO.NP, R4.F32x2.HI_LO",  # which comes first
        "FADD2 R2, R2.F32x2.HI_LO, R4.F32x2.HI_LO.PN",
        "FADD2 R2, R2.F32x2.HI_LO, R4.F32.NP",
        "UF2FP.SATFINITE.E4M3.F16.UNPACK_B_MERGE_C UR4, 1.5, UR5",
        "UIADD3.64 UR4, UPT, UPT, -UR4, -UR6, URZ",
        "SGXT.U32 R5, R5, c[0x1b][0x168]",  # ptxas writes that for the parameters, and drops the sign of szext.s32
        "QMUL4.E4M3x4.E2M1x4.E4M3x4 R1, R2.B3210, R3.B3210",  # codes of four bits have no bytes of their own
        "QMUL4.E4M3x4.E4M3x4.E4M3x4 R1, R2.B0123, R3.B3210",
        "QMUL4.E4M3x4.E4M3x4.E4M3x4 R1, -R2.B3210, R3.B3210",
        "QMUL4.E4M3x4.E4M3x4.E4M3x4.RELU R1, R2.B3210, R3.B3210",
        "QMUL4.E4M3x4.E4M3x4 R1, R2.B3210, R3.B3210",
        "VIADD.U8x4.SAT R1, R2, R3",
        "VIMNMX.U8x4.RELU R1, R2, R3, PT",
        "LEA.HI R1, P0, R2, -R3, R4, 0x10",  # the carry of a difference
        "IMAD.HI.U32 R1, P0, R2, R3, -R4",  # the carry of a difference
        "IADD.64 R2, P1, -R2, -R4",
        "IMAD.HI.U32.X R1, P0, R2, R3, R4, P1",  # the carry out
        "LEA.HI.X.SX32 R1, ~R2, R3, 0x1, P0",
        "HFMA2.OOB.FTZ R1, R2, R3, R4",
        "VHMNMX.FTZ R1, R2, R3, R4, PT",  # ptxas writes none
        "VHMNMX.BF16_V2.XORSIGN R1, |R2|, |R3|, |R4|, PT",
        "VHMNMX.BF16_V2 R1, R2, R3, PT",
        "VHMNMX.F32 R1, R2, R3, R4, PT",
        "VIMNMX3.U16x2.RELU R1, R2, R3, R4, PT",
        "VIMNMX3.U16x2 R1, R2, -R3, R4, PT",
        "VIMNMX3.RELU R1, R2, -R3, R4, PT",
        "LEA RZ, P0, -R2, -R3, 0x4",
        "LEA.X R1, ~R2, R3, 0xc, P0",
        "LEA.X R1, R2, -R3, 0xc, P0",
        "LEA.HI.X R1, R2, R3, ~R4, 0x4, P0",
        "IMAD.WIDE.U32.X R2, R4, R5, -R6, P0",
        "F2IP.S8.F32.FLOOR.NTZ R1, R2, R3, R4",
        "F2IP.S8.F32.TRUNC R1, R2, R3, R4",
        "LEA.HI R1, -R2, -R3, R4, 0xc",
        "IMAD.WIDE.X R2, R4, R5, -R6, P0",
        "IMAD.WIDE.X R2, R4, ~R5, R6, P0",
        "IMAD.WIDE.X R2, P1, R4, R5, -R6, P0",
        "CLMAD R2, R4, R6, R8",
        "CLMAD.LO R2, R4, R6, -R8",
        "CLMAD.LO R2, R4, R7, R8",
        "IMAD.WIDE.U32.X R2, P1, R4, ~R5, ~R6, P0",
        "IMAD.WIDE.X R2, R4, R5, ~R7, P0",
        "HADD2.F32.SAT R1, R3, R2.H0_H0",
        "IMNMX.S64 P0, PT, R2, R4, R6, !PT, !PT",  # what its first predicates are
        "IMNMX.S64 PT, PT, R2, R4, R6, !PT, PT",
        "IMNMX.S64 PT, R2, R4, R6, !PT, !PT",
        "IMNMX.S64 PT, PT, R3, R4, R6, !PT, !PT",
        "PRMT.F4E.B4E R1, R2, R3, R4",
        "VIADD.S32.ISAT.X R1, R2, R3",
        "VIADD.ISAT R1, R2, R3",
        "DSETP.MAX.AND P0, P1, R2, R4, P2",  # how another predicate is joined
        "DSETP.MAX.OR P0, P1, R2, R4, PT",
        "F2FP.S2_6.F32.PACK_AB_MERGE_C R1, R2, R3, R4",
        "F2FP.SATFINITE.MERGE_C R1, R2, R3",  # the upper half of the third operand
        "VIADD.S16x2.ISAT R1, R2, -R3",
        "VIADD.S8x4.ISAT R1, -R2, R3",
        "VIADD.U16x2.ISAT R1, R2, R3",
        "UVIADD.16x2 UR1, UR2, UR3",
        "MUFU.TANH.F16x2 R1, R2",
        "I2IP.S16.S32.SAT R1, R2, R3, R4.H1",  # which of its bits stay
        "I2IP.U4.S32.SAT R1, R2, R3, R4.H1",
        "I2IP.S8.S32.SAT R1, R2, R3, R4.H0",
        "I2IP.S8.S32.SAT R1, R2, R3, 1.5.H1",
        "I2IP.S8.S32.SAT R1, R2.H1, R3, R4",
        "IMAD.HI R1, -R2, R3, R4",
        "IMAD.HI.U32 R1, R2, R3, -R5",  # a pair of registers that begins at an odd number
        "IMAD.HI.U32 R1, R2, R3, ~R4",
        "IMAD.HI.U32.X R1, R2, R3, -R4, P1",
        "IMAD.HI.X R1, R2, R3, R4, P1",
        "UVIMNMX.U8x4 UR4, UR5, 0x1ff7f30, !UPT",  # two numbers that may not be 0
        "UVIMNMX.S8x4 UR4, URZ, 0x1ff7f30, !UPT",
        "UVIMNMX.U8x4.RELU UR4, URZ, 0x1ff7f30, !UPT",
        "VISET.NE.S32 R1, R2, R3",  # what else than a mask it gives
        "VISET.BM.NE.U64 R1, R2, R3",
        "VISET.BM.NE.S32.AND R1, R2, R3, P0",
        "VISET.BM.NE R1, R2, R3",
        "VISET.BM.LTU.U32 R1, R2, R3",
        "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C.RZ R1, R2, R3, R4",  # what is merged
        "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C.PZO R1, R2, R3, R4",
        "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C.SCALE_BY_C.RP R1, R2, R3, R4",
        "F2FP.SATFINITE.UE5M3.F32.PACK_AB_MERGE_C.SCALE_BY_C.PZO R1, R2, R3, R4",
        "F2FP.E2M1.F16.UNPACK_B_MERGE_C.SCALE_BY_C R1, R2, R3",
        "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C.RP R1, R2, R3, RZ",
        "F2FP.UE5M3.F16.UNPACK_B_MERGE_C.RM R1, R2, RZ",
        "F2FP.RELU.UE5M3.F16.UNPACK_B_MERGE_C R1, R2, RZ",
        "F2F.FTZ.BF16.F32.PZO R1, R2",
        "FHADD2.BF16x2.F32x2.F32x2 R1, R4.F32x2.HI_LO, R6.F32x2.HI_LO",
        "FHADD2.F32x2.BF16x2.F32x2 R2, R4.F32x2.HI_LO, R6.F32x2.HI_LO",
        "FHADD2.F32x2.F16x2.F32x2.FTZ R2, R4, R6.F32x2.HI_LO",
        "FHMUL2.F16x2.F32x2.F32x2.RZ R1, R4.F32x2.HI_LO, R6.F32x2.HI_LO",
        "FHFMA2.F32x2.F16x2.F32x2.F32x2 R2, R4.H0_H0, R6.F32x2.HI_LO, R8.F32x2.HI_LO",
        "HMUL2.F16x2.BF16x2.F16x2 R1, R2, R3",
        "HADD2 R1, -RZ.H0_H0, R2.F32",
        "HADD2.F32 R1, -RZ.H0_H0, c[0x2][0x0].F32",
        "HADD2 R1, RZ.H0_H0, c[0x2][0x0].F32",
    ],
)
def test_everything_else_has_no_row(text: str) -> None:
    with pytest.raises(Unsupported):
        match(written(text).instructions[0])


def test_scales_with_more_beside_them_are_refused() -> None:
    """Nothing tells what the lower half of the last operand does."""
    body = LOAD + "MOV R6, 0x{:x}\nF2FP.SATFINITE.S2_6.BF16.UNPACK_B_MERGE_C R5, R4, R6" + STORE
    values = np.full(32, 0x3F803F00, np.uint32)  # 1 and 1/2, by 1 and by 2**-1
    assert (run(body.format(0x7F7E0000), [values])[0] == 0x4040).all()
    with pytest.raises(Unsupported, match="lower half"):
        run(body.format(0x7F7E0001), [values])


@pytest.mark.parametrize(
    ("a", "b", "c", "n", "shown"),
    [(0, 0xAAD528, 0x10, 0xD, 0xA8D528), (32, 1, 0, 0x1C, 0xFFFFFFFF), (32, 0xAAAAAAAB, 0, 0xD, 0xAAAAAAAB)],
)
def test_a_high_word_is_negated_after_the_shift(a: int, b: int, c: int, n: int, shown: int) -> None:
    """The words that GPUs gave for the machine code of public reproducers (m021, m022 and m028 of FuzzX)."""
    body = f"{LOAD}\nMOV R6, {b:#x}\nMOV R7, {c:#x}\nLEA.HI R5, -R4, R6, R7, {n:#x}\n{STORE}"
    found, ran = run(body, [np.full(32, a, np.uint32)])
    assert found.tolist() == [shown] * 32
    assert "LEA.HI-a" in ran.forms


def test_a_predicate_written_twice_is_refused() -> None:
    from ptxdiff.sass.machine import Computed

    with pytest.raises(Unsupported, match="twice"):
        Computed(written("ISETP.GE.AND P0, P0, R1, R2, PT").instructions[0])


def test_every_row_has_a_definition_with_its_sources() -> None:
    seen = 0
    for row in {id(r): r for rows in ROWS.values() for r in rows}.values():
        names = list(inspect.signature(row.definition).parameters)
        for shape in row.shapes:
            sources = [k for k in shape.sources if not k.startswith("#") and k not in ("PT", "!PT", "RZ", "-RZ")]
            plain = {k[1:] for k in shape.sources if k.startswith("#")}
            constants = set(names[len(sources) :])
            assert len(names) >= len(sources), row.name
            known = {"result", *plain, *row.choices, *row.flags.values(), *row.given}
            assert constants <= known | {"form"}, (row.name, constants - known)
            seen += 1
    assert seen > 100


def test_constants_reach_the_definition() -> None:
    found = match(written("FADD.FTZ.RP R1, R2, R3").instructions[0])
    assert functions_of(found)[0].one(0x3F800000, 0x00000001) == 0x3F800000
    assert functions_of(match(written("FADD.RP R1, R2, R3").instructions[0]))[0].one(0x3F800000, 1) == 0x3F800001


def test_new_codes_move_those_of_the_last_operand_up() -> None:
    """Two codes of four bits are a byte, so four instructions fill a register; others fill it in two."""
    text = "F2FP.SATFINITE.{}.F32.PACK_AB_MERGE_C R0, R1, R2, {}"
    one, two = 0x3F800000, 0x40000000
    for form, last, expected in (
        ("E2M1", "RZ", 0x24), ("E2M1", "R3", 0x33445524), ("E4M3", "RZ", 0x3840), ("E4M3", "R3", 0x44553840),
    ):  # fmt: skip
        found = match(written(text.format(form, last)).instructions[0])
        given = (one, two, 0x22334455)[: len(found.operands)] if last == "R3" else (one, two, 0)[: len(found.operands)]
        assert functions_of(found)[0].one(*given) & 0xFFFFFFFF == expected
