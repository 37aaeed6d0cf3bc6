"""Spellings that no ptxas knows, each in CUDA C++, in a Triton kernel and as bare PTX: all are errors of the linter."""

import pytest

from ptxdiff.cli import main
from ptxdiff.lint.files import lint_text

PLANTED = [
    "fmax.f32 r0, r1, r2;",
    "exp2.approx.f32 r0, r1;",
    "ad.f32 r0, r1, r2;",
    "mull.lo.u32 r0, r1, r2;",
    "FFMA r0, r1, r2, r2;",
    "IADD3 r0, r1, r2, r2;",
    "LDG.E r0, [d0];",
    "ld.globl.b32 r0, [d0];",
    "ld.global.foo.b32 r0, [d0];",
    "st.globla.b32 [d0], r1;",
    "bar.synk 0;",
    "shfl.sync.bflyy.b32 r0, r1, 1, 31, -1;",
    "redux.sync.ad.s32 r0, r1, -1;",
    "vote.sync.balot.b32 r0, p, -1;",
    "cp.async.bulk.foo.shared::cluster.global [r0], [d0], r1, [r2];",
    "fence.acq_relx.gpu;",
    "atom.global.ad.u32 r0, [d0], r1;",
    "membar.sc.gpu;",
    "ldmatrix.sync.aligned.m8n8.x5.shared.b16 {r0}, [r1];",
    "mbarrier.try_wate.parity.shared.b64 p, [r1], r2;",
    "mma.sync.aligned.m16n8k17.row.col.f32.f16.f16.f32 {r0}, {r1}, {r1}, {r0};",
]
assert len(PLANTED) == 21

BLOCK = "{{ .reg .pred p; .reg .b32 r<4>; .reg .b64 d0; mov.b64 d0, 0; mov.b32 r1, {0}; mov.b32 r2, {0}; {1} }}"
CUDA = """
__device__ void f(unsigned x) {{
  asm volatile("{asm}" :: "r"(x) : "memory");
}}
"""
TRITON = """
@triton.jit
def f(x):
    return tl.inline_asm_elementwise("mov.b32 $0, $1; {asm}", "=r,r", [x], dtype=tl.int32, is_pure=False, pack=1)
"""


def rules(path, text):
    return [(f.rule, f.severity) for f in lint_text(path, text.encode()).findings]


FOUND = [("unknown-instruction", "error")]
IDS = [asm.split()[0].rstrip(";") for asm in PLANTED]


@pytest.mark.parametrize("asm", PLANTED, ids=IDS)
def test_in_cuda(asm):
    assert rules("file.cu", CUDA.format(asm=BLOCK.format("%0", asm))) == FOUND


@pytest.mark.parametrize("asm", PLANTED, ids=IDS)
def test_in_triton(asm):
    assert rules("file.py", TRITON.format(asm=BLOCK.format("$1", asm))) == FOUND


@pytest.mark.parametrize("asm", PLANTED, ids=IDS)
def test_as_bare_ptx(asm, capsys):
    assert main(["lint", "--isolated", "--impure", "-c", "", "--asm", BLOCK.format("1", asm)]) == 1
    said = capsys.readouterr().out
    assert (said.count("error ["), said.count("[unknown-instruction]")) == (1, 1)
