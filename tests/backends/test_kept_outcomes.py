"""Outcomes that the emulator backend caches: callers cannot change the stored arrays."""

from pathlib import Path

import numpy as np
import pytest

from ptxdiff import Case, asm, plain, ptx
from ptxdiff.backends import compiled
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.jobs import Job, Setup
from ptxdiff.references.formats import F32, I32, U8
from tests.support.tritons import since
from tests.triton import sample_kernels

CASE = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=lambda x: x,
    variants={"v": asm("xor.b32 $0, $1, 0x01010101;", constraints="=r,r", pack=4)},
)


@pytest.mark.parametrize("context", ["straight", "shared"])
def test_cached_bits_cannot_be_written(context, monkeypatch):
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")
    backend = EmulatorBackend()
    setup = Setup(pack=4, shape=(8,), context=context)
    job = Job(CASE, "c", Path("c.py"), "v", CASE.variants["v"], "sm_90a", setup, {"x": np.arange(8, dtype=np.uint8)})
    for _ in range(2):
        bits = backend.run(job).outputs["y"]
        with pytest.raises(ValueError, match="read-only"):
            bits[0] = 77
        assert bits.tolist() == [1, 0, 3, 2, 5, 4, 7, 6]


OPEN = "{ .reg .f32 t; mul.f32 t, $1, $1; add.f32 $0, t, 0f3F800000; }"


@pytest.mark.parametrize(
    ("variant", "fused_runs", "equal"),
    [
        pytest.param(
            plain(sample_kernels.negated),
            [],
            True,
            marks=since(3, 9, "it subtracts from zero, which may be contracted"),
        ),
        (plain(sample_kernels.squared_plus_one), [False], False),  # contracted by LLVM, so that the PTX differs
        (asm(OPEN, constraints="=f,f"), [True, False], False),  # left to ptxas
    ],
)
def test_a_kernel_without_anything_to_contract_runs_once_for_both_readings(variant, fused_runs, equal, monkeypatch):
    """A kernel that can be contracted runs with contraction, and never gets the result without."""
    launched = []
    launch = compiled._launch
    monkeypatch.setattr(
        compiled, "_launch", lambda *given, **more: launched.append(more["fuse"]) or launch(*given, **more)
    )
    case = Case(inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x, variants={"v": variant})
    x = (1 + np.arange(64, dtype=np.float32) / 4099).view(np.uint32)
    backend = EmulatorBackend()
    without, fused = (
        backend.run(
            Job(case, "c", Path("c.py"), "v", case.variants["v"], "sm_90a", Setup(shape=(64,), fusion=f), {"x": x})
        )
        for f in (False, True)
    )
    assert launched == [False, *fused_runs]
    assert np.array_equal(without.outputs["y"], fused.outputs["y"]) == equal
    assert without.identity != fused.identity
    assert (without.contraction_open, fused.contraction_open) == (False, True in fused_runs)
    assert without.artifacts.ptx
    assert fused.artifacts.ptx


ONE_WIDE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry turned(.param .u64 px, .param .u64 py)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [px];
    ld.param.u64 %rd2, [py];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %tid.y;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r1;
    mul.wide.u32 %rd3, %r4, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.u32 %r5, [%rd4];
    add.u32 %r6, %r5, %r2;
    st.global.u32 [%rd5], %r6;
    ret;
}
"""


def test_a_kernel_runs_again_with_another_block_of_as_many_threads():
    """The kernel adds the row of its thread, which is zero in a block of one row alone."""
    blocks = {"row": (64, 1, 1), "rows": (32, 2, 1), "column": (1, 64, 1)}
    variants = {n: ptx(ONE_WIDE, grid=1, block=b, parameters=["x", "y"]) for n, b in blocks.items()}
    case = Case(
        inputs={"x": I32["n"]}, outputs={"y": I32["n"]}, sizes=[{"n": 64}], reference=lambda x: x, variants=variants
    )
    backend, x = EmulatorBackend(), np.zeros(64, np.uint32)
    found = {
        name: backend.run(
            Job(case, "c", Path("c.py"), name, variant, "sm_90a", Setup(sizes={"n": 64}, num_warps=2), {"x": x})
        )
        for name, variant in case.variants.items()
    }
    assert {n: o.outputs["y"].sum() for n, o in found.items()} == {"row": 0, "rows": 32, "column": 63 * 64 // 2}
    assert len({o.identity for o in found.values()}) == len(blocks)
