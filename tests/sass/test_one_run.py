"""One run of machine code is enough where no other schedule and no other filling of undefined bits gives others."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator import UndefinedBits
from ptxdiff.sass import following, machine, unwritten
from ptxdiff.sass.machine import Computed
from ptxdiff.sass.rows import ROWS
from tests.support.sass.assembly import LOAD, run, written
from tests.support.sass.random_code import contradiction, random_code

WORDS = np.arange(100, 132, dtype=np.uint32)
HALF = "ISETP.GE.AND P0, PT, R0, 0x10, PT\n"
"""P0 holds in the upper half of a warp."""


@pytest.mark.sample(2)
@pytest.mark.parametrize("first", [0, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_code_that_needs_one_run_gives_the_same_in_every_other(first: int) -> None:
    """In three schedules, each with three fillings. Slow: 3,000 programs, many of which run ten times."""
    count = 60 if not first else 3000
    found = [contradiction(random_code(seed)) for seed in range(first, first + count)]
    assert [words for _, words in found if words] == []
    assert sum(runs == 1 for runs, _ in found) > count // 20


@pytest.mark.parametrize(
    ("module", "name", "planted", "seeds"),
    [
        (unwritten, "_by_bits", lambda table, parts, values: np.zeros(len(values[0]), np.uint8), (49, 163)),
        (following, "_parts", lambda doubts, signed: np.zeros(len(doubts), np.uint8), (24, 70)),
    ],
    ids=["bits", "loads"],
)
def test_random_code_shows_bits_that_are_not_followed(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, planted: Callable[..., Any], seeds: Sequence[int]
) -> None:
    """seeds: of programs that were found to show it."""
    monkeypatch.setattr(module, name, planted)
    monkeypatch.setattr(machine, "_computed", {})
    assert any(contradiction(random_code(seed))[1] for seed in seeds)


@pytest.mark.parametrize(
    "body",
    [
        "@!P0 MOV R5, R4\nSTS [R0.X4], R5\nLDS R6, [R0.X4]\n@!P0 STG.E [R2.64], R6\n@P0 STG.E [R2.64], R4",
        "@!P0 MOV R5, R4\nSHFL.BFLY PT, R6, R5, 0x1, 0x1f\n@!P0 STG.E [R2.64], R6\n@P0 STG.E [R2.64], R4",
        "@!P0 SHFL.BFLY PT, R6, R4, 0x10, 0x1f\nSTG.E [R2.64], R4",
        "PRMT R5, R4, 0x5410, R7\nSTG.E.U16 [R2.64], R5\nSTG.E.U16 [R2.64+0x2], R4",
        "PRMT R5, R4, 0x5410, R7\nHADD2 R5, R5, R5.H0_H0\nSTG.E.U16 [R2.64], R5\nSTG.E.U16 [R2.64+0x2], R4",
        "STS.U16 [R0.X4], R4\nLDS R5, [R0.X4]\nLOP3.LUT R5, R5, 0xffff, RZ, 0xc0, !PT\nSTG.E [R2.64], R5",
        "F2FP.PACK_AB R5, R7, R4\nSTG.E.U16 [R2.64], R5\nSTG.E.U16 [R2.64+0x2], R4",
        "SHF.R.U32.HI R5, RZ, 0x10, R7\nLOP3.LUT R5, R5, 0xffff0000, RZ, 0xc0, !PT\nSTG.E [R2.64], R5",
    ],
    ids=["shared memory", "exchange", "absent lanes", "a half", "halves", "bytes in shared memory", "packed", "shift"],
)
def test_bits_that_were_never_written_and_are_only_moved_need_one_run(body: str) -> None:
    _, ran = run(f"{LOAD} {HALF} {body}\nEXIT", [WORDS], shared=1024)
    assert ran.runs == 1


@pytest.mark.parametrize(
    "body",
    [
        "@!P0 MOV R5, R4\nSTS [R0.X4], R5\nBAR.SYNC 0x0\nLDS R6, [R0.X4]\nSTG.E [R2.64], R6",
        "@!P0 MOV R5, R4\nSHFL.BFLY PT, R6, R5, 0x10, 0x1f\nSTG.E [R2.64], R6",
        "@P0 SHFL.BFLY PT, R6, R4, 0x10, 0x1f\n@!P0 MOV R6, RZ\nSTG.E [R2.64], R6",
        "SHFL.IDX PT, R6, R4, R7, 0x1f\nSTG.E [R2.64], R6",
        "PRMT R5, R4, 0x5410, R7\nPRMT R5, R5, 0x7632, R5\nSTG.E.U16 [R2.64], R5\nSTG.E.U16 [R2.64+0x2], R4",
        "PRMT R5, R4, R7, R4\nSTG.E [R2.64], R5",
        "PRMT R5, R4, 0xb210, R7\nPRMT R5, R7, 0xb210, R4\nSTG.E [R2.64], R5",
        "STS.U8 [R0.X4], R7\nLDS.S8 R5, [R0.X4]\nPRMT R5, R5, 0x3333, R5\nSTG.E [R2.64], R5",
        "STS.64 [R0.X8], R8\nLDS R5, [R0.X8+0x4]\nSTG.E [R2.64], R5",
        "HADD2 R5, R7.H1_H1, R4\nSTG.E.U16 [R2.64], R5\nSTG.E.U16 [R2.64+0x2], R4",
        "F2FP.PACK_AB R5, R4, R7\nSTG.E.U16 [R2.64], R5\nSTG.E.U16 [R2.64+0x2], R4",
        "SHF.R.S32.HI R5, RZ, 0x1f, R7\nSTG.E.U8 [R2.64], R5\nSTG.E.U8 [R2.64+0x1], R4\nSTG.E.U16 [R2.64+0x2], R4",
        "SEL R5, R4, R7, !P0\nSTG.E [R2.64], R5",
        "ISETP.LT.AND P1, PT, R7, RZ, PT\nSEL R5, R4, R0, P1\nSTG.E [R2.64], R5",
    ],
)  # fmt: skip
def test_bits_that_were_moved_and_reach_a_result_are_found(body: str) -> None:
    body = f"MOV R8, R4\n{body}" if "STS.64" in body else body
    with pytest.raises(UndefinedBits):
        run(f"{LOAD} {HALF} {body}\nEXIT", [WORDS], shared=1024)


def test_a_store_that_races_only_with_some_bits_has_a_run_of_each_filling() -> None:
    """Two threads store the same register that was never written to one place: it is a fault if their bits differ."""
    _, ran = run(f"{LOAD} LOP3.LUT R7, R7, RZ, RZ, 0xc0, !PT\nIADD3 R8, R7, R9, RZ\nIADD3 R8, R8, -R9, RZ\n"
                 "STS [RZ], R8\nSTG.E [R2.64], R4\nEXIT", [WORDS], shared=1024)  # fmt: skip
    assert ran.runs == 3


PARTED = {
    "HADD2 R5, R6, R7", "HADD2.BF16_V2 R5, R6, R7.H1_H1", "HMUL2 R5, -R6, R7.H0_H0", "HFMA2 R5, R6, R7, R8",
    "HFMA2.RELU R5, R6.H1_H1, R7, |R8|", "HMNMX2 R5, R6, R7, P0", "HMNMX2.XORSIGN R5, |R6|, |R7|, P0",
    "HSET2.BF.LT.AND R5, R6, R7, P0", "HSET2.LT.AND R5, R6, R7, P0", "VHMNMX R5, R6, R7, R8, P0",
    "F2FP.PACK_AB R5, R6, R7", "F2FP.BF16.PACK_AB R5, R6, R7", "F2F.F16.F32 R5, R6",
    "F2FP.F16.F32.MERGE_C R5, R6, RZ", "F2FP.BF16.F32.MERGE_C R5, R6, RZ", "HADD2.F32 R5, -RZ, R6.H1_H1",
    "LOP3.LUT R5, R6, R7, R8, 0xca, !PT", "LOP3.LUT R5, R6, 0xff00f0, R8, 0xe8, !PT", "PRMT R5, R6, 0x5b12, R7",
    "PRMT R5, R6, R7, R8", "PRMT.F4E R5, R6, R7, R8", "SHF.R.S32.HI R5, R6, 0x8, R7", "SHF.L.U64.HI R5, R6, R7, R8",
    "SHF.R.W.U32.HI R5, R6, R7, R8", "SEL R5, R6, R7, P0", "FSEL R5, -R6, |R7|, P0", "MOV R5, R6",
    "IADD3 R5, R6, R7, R8",
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", sorted(PARTED))
def test_parts_that_are_not_doubtful_do_not_change_with_those_that_are(text: str) -> None:
    """Each source has doubtful bytes at random; 64 lanes; other bits there change no byte of the result but doubtful
    ones."""
    step = Computed(written(text).instructions[0])
    draw = np.random.default_rng(random.Random(text).getrandbits(32))
    for _ in range(20):
        doubts: list[Any] = []
        lanes: list[list[Any]] = [[], [], []]
        for source in step.sources:
            predicate = source.source.width == 1
            parts = draw.integers(0, 2 if predicate else 16, 64).astype(np.uint8) * (draw.random(64) < 0.5)
            register = draw.integers(0, 2 if predicate else 1 << 32, 64, np.uint8 if predicate else np.uint32)
            constant = source.constant is not None or not source.registers
            doubts.append(None if constant else source.parts(parts))
            bits = parts if predicate else unwritten._BITS[parts]
            noise = draw.integers(0, 1 << 32, 64, np.uint32).astype(bits.dtype)
            for k, changed in enumerate((register, register ^ (noise & bits), register ^ bits)):
                value = np.full(64, source.constant, np.uint32) if source.constant is not None else source._signed(
                    register if constant else changed)  # fmt: skip
                lanes[k].append(value)
        if step.spread is None:
            continue
        found = step.spread(doubts, lanes[0])
        results = [step.functions[0](64, *values) for values in lanes]
        known = ~unwritten._BITS[found]
        assert (results[0] & known == results[1] & known).all()
        assert (results[0] & known == results[2] & known).all()
        assert not step.spread([None] * len(doubts), lanes[0]).any()


def test_only_rows_of_known_moves_have_parts() -> None:
    """A new row with one of these definitions belongs into `PARTED`."""
    tested = {Computed(written(text).instructions[0]).match.row.definition for text in PARTED}
    followed = {*unwritten._MOVES, *unwritten._HALVES, *unwritten._PACKED, *unwritten._LOWER_HALF}
    names = {row.definition for rows in ROWS.values() for row in rows}
    assert followed <= names
    assert {d.__name__ for d in followed - tested} <= {
        "hfma2_oob", "hmnmx2_xorsign", "f2fp_f16_finite", "f2fp_bf16_finite", "f2f_bf16", "f2f_bf16_f16"
    }  # fmt: skip
