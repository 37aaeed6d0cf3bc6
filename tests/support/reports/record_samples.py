"""One record of each type, with every field filled."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

from ptxdiff.records import (
    EXPECTED,
    Area,
    Bits,
    Block,
    CaseInfo,
    Disagreement,
    End,
    Grid,
    InRegisters,
    Key,
    Mutation,
    Offender,
    Proof,
    Record,
    Result,
    Run,
    Share,
    StoredText,
    Survivor,
    Text,
    Timing,
    VariantInfo,
    text_hash,
)

KEY = Key("rcp", "rcp.rn", "sm_90a", "gpu", pack=2, shape="7x129", alignment=4, num_warps=1, context="loop",
          fusion=True, input_set="edges/1+shuffled")  # fmt: skip


OFFENDER = Offender(
    3,
    1,
    "y",
    {"x": Bits("0x7f800001", "nan")},
    Bits("0x00000000", "0.0"),
    Bits("0x80000000", "-0.0"),
    "sign of zero",
    0,
)


RUN = Run("20260101T000000Z", "2026-01-01T00:00:00+00:00", "quick", 0, {"gpus": [{"name": "H200"}]}, ("cases",),
          planned=("rcp::rcp.rn[sm_90a-emulator]",))  # fmt: skip


GRID = Grid("a", "b", (2, 1), "eJxjZoAAAAAgAAQ=", (Bits("0x0", "0.0"),), (Bits("0xf", "-6.0"),),
            (Area((Bits("0x0", "0.0"),), (Bits("0xf", "-6.0"),), 3),), 1)  # fmt: skip


RESULT = Result(
    KEY, "fail", True, "hardware", "words", "message", "missing early clobber", 10, 2, 1, {"NaN": 2},
    {"-1": 3, "17..32": 1}, {"-1": 2}, {"-1": 1}, {"sub": (-1, 2), "-126": (0, 0)}, OFFENDER, (OFFENDER,),
    ("never written",),
    "pack=2", "abc", (Block(0, 10, "def"),), 7, True, "a", "p", "s", {"registers": 12}, {"MUFU": 1}, {"asm": "x"}, 0.5,
    sweep={"seconds": 0.02, "copy": 0.008}, notes=("judged in chunks",), grid=GRID, device="GPU-1",
    judged={"y": Share(10, 9, 8, 7)}, identity="1d", body="b0",
    ptxas="ptxas 12.9.86 -O0 (0f1e2d3c4b5a)", reused="20250102T030405Z", node="one/1a2b",
    padding_alone=True, weakest="FADD", fused={"12": "mul of line 11 into add of line 12"},
)  # fmt: skip


VARIANT = VariantInfo(
    "asm", "ulp(1)", "never", "any", "every target", "note", "why", {"1": "asm"}, {"1": "=r,r"}, 1.0, 12
)


SAMPLES: list[Record] = [
    RUN,
    CaseInfo(
        "rcp", "cases/rcp.py", "Reciprocal", {"x": "float32"}, {"y": "float32"}, "reference", "ISA", {"v": VARIANT}, "m"
    ),
    Text(text_hash("// §5 – text"), "ptx", "// §5 – text"),
    StoredText("4567", "sass"),
    RESULT,
    Timing(
        KEY,
        2,
        8,
        (1.0, 2.0),
        1.5,
        1.0,
        2.0,
        4.3e12,
        0.01,
        1e-6,
        {"sm": 1980},
        True,
        "L2",
        "cupti",
        7,
        ("power cap",),
        "GPU-1",
        "one/1a2b",
        "ptxas 12.9.86 -O3 --regAllocOptLevel=2 (0f1e2d3c4b5a)",
    ),
    Disagreement(dataclasses.replace(KEY, target="sm_80"), KEY, 3, OFFENDER, ("-add.f32 a, b, c;",)),
    Proof(
        "rcp",
        "v",
        "sm_90a",
        "counterexample",
        "other",
        "y: expected 0x1, got 0x0",
        (1, 2),
        "bitwuzla 0.9.1",
        1.5,
        "0" * 64,
        "1" * 64,
        {"x": ("0x1", "0x2")},
        ("uninterpreted: sat after 1.5 s, 40 terms",),
        "ptxas 12.9.86 -O3",
    ),
    Mutation(
        "rcp",
        "asm",
        "v",
        "sm_90a",
        {"rounding": 3},
        2,
        1,
        (Survivor("opcode", "add -> sub", "missed", "y: wrong", {"x": "0x1"}),),
        "words",
        1.5,
        4,
    ),
    InRegisters(
        replace(KEY, shape="latency"),
        4096,
        (255.0, 257.0),
        256.0,
        255.0,
        257.0,
        0.01,
        {"MUFU.RCP": 1.0},
        8.0,
        16.0,
        1755.0,
        "",
        "GPU-1",
        node="10.0.0.7",
        ptxas="ptxas 13.4.59 -O3 (0f1e2d3c4b5a)",
    ),
    End("2026-01-01T00:01:00+00:00", 60.0, {EXPECTED: 1}),
]
