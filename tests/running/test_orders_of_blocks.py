"""Kernels whose blocks communicate: the bits are judged in every order of blocks."""

import json

CASES = '''"""Kernels whose blocks communicate."""

import torch

from ptxdiff import Case, ptx
from ptxdiff.references.formats import U32

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 py)
{{
  .reg .pred p; .reg .b32 t, b, old; .reg .b64 y;
  ld.param.u64 y, [py];
  mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; setp.ne.u32 p, t, 0; @p ret;
  {body}
  ret;
}}
"""


def variant(body):
    return ptx(PTX.format(body=body), grid=4, block=32, parameters=["y"])


case = Case(
    inputs={"y": U32["n"]},
    outputs={"y": U32["n"]},
    sizes=[{"n": 1}],
    reference=lambda y: torch.full_like(y, 3),
    variants={
        "right": variant("@p bra E; setp.ne.u32 p, b, 3; @p bra E; atom.global.exch.b32 old, [y], b; E:"),
        "the last to come": variant("atom.global.exch.b32 old, [y], b;"),
    },
)
'''


def test_bits_that_depend_on_the_order_of_blocks_fail(run_cases, pytester):
    run_cases("--ptx-records=r.jsonl", "--ptx-backend=emulator", last=CASES)
    lines = map(json.loads, (pytester.path / "r.jsonl").read_text().splitlines())
    found = [r for r in lines if r["record"] == "result"]
    verdicts = {
        name: {r["verdict"] for r in found if r["key"]["variant"] == name} for name in ("right", "the last to come")
    }
    assert verdicts["right"] == {"pass"}
    assert verdicts["the last to come"] == {"fail"}
    texts = [str(r) for r in found if r["key"]["variant"] == "the last to come"]
    assert any("with the last blocks and threads first" in text for text in texts)
