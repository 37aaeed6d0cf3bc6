"""Products of warpgroups in machine code give the bits of the PTX."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator.kernel.wgmma import descriptors
from ptxdiff.emulator.kernel.wgmma.descriptors import Descriptor
from ptxdiff.sass import warpgroup
from ptxdiff.sass.text import MachineFault, Unsupported
from ptxdiff.triton.targets import probe
from tests.support.sass.assembly import run

TARGET = "sm_90a"
GROUPS, THREADS = 2, 256
KERNEL = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 da, .param .u64 db, .param .u32 first) {{
  .reg .b32 t, v, w, a<4>, d<8>; .reg .b64 gx, gy, o, xa, xb, at; .reg .pred p, q;
  .shared .align 1024 .b8 data[16384];
  ld.param.u64 gx, [x]; ld.param.u64 gy, [y]; ld.param.u64 xa, [da]; ld.param.u64 xb, [db]; ld.param.u32 v, [first];
  setp.ne.u32 p, v, 0; mov.u32 v, data; mov.u32 t, %tid.x;
{copies}
  fence.proxy.async; bar.sync 0;
  shr.u32 w, v, 4; cvt.u64.u32 at, w; add.u64 xa, xa, at; add.u64 xb, xb, at;
  mul.wide.u32 o, t, 32; add.u64 gy, gy, o;
  ld.global.v4.u32 {{d0, d1, d2, d3}}, [gy]; ld.global.v4.u32 {{d4, d5, d6, d7}}, [gy+16];
  mov.u32 a0, d0; mov.u32 a1, d2; mov.u32 a2, d4; mov.u32 a3, d6;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.{form} {to}, {first}, xb, p{options};
  wgmma.mma_async.sync.aligned.{form} {to}, {first}, xb, 1{options};
  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
  st.global.v4.u32 [gy], {{d0, d1, d2, d3}}; st.global.v4.u32 [gy+16], {{d4, d5, d6, d7}};
  ret;
}}
"""
COPIES = "\n".join(
    f"  mad.lo.u32 w, t, 16, {4096 * k}; cvt.u64.u32 o, w; add.u64 o, o, gx; add.u32 w, w, v;"
    "ld.global.v4.u32 {d0, d1, d2, d3}, [o]; st.shared.v4.u32 [w], {d0, d1, d2, d3};"
    for k in range(4)
)
PLAIN, SWIZZLED = Descriptor(0, 1024, 128, 16), Descriptor(0, 16, 1024, 128)
FORMS = {  # the form, registers of d, whether a is in registers, options, layout of a, of b
    "f16": ("m64n8k16.f32.f16.f16", 4, False, "1, 1, 0, 0", PLAIN, SWIZZLED),
    "f16-turned": ("m64n16k16.f32.f16.f16", 8, False, "1, 1, 1, 1", SWIZZLED, PLAIN),
    "f16-turned-a": ("m64n16k16.f32.f16.f16", 8, False, "1, 1, 1, 0", SWIZZLED, SWIZZLED),
    "f16-negated": ("m64n16k16.f32.f16.f16", 8, False, "-1, 1, 0, 0", PLAIN, PLAIN),
    "f16-sums": ("m64n16k16.f16.f16.f16", 4, False, "1, -1, 0, 1", PLAIN, PLAIN),
    "bf16-registers": ("m64n16k16.f32.bf16.bf16", 8, True, "-1, 1, 1", PLAIN, PLAIN),
    "tf32": ("m64n8k8.f32.tf32.tf32", 4, False, "1, 1", SWIZZLED, PLAIN),
    "narrow": ("m64n8k32.f32.e4m3.e5m2", 4, False, "1, 1", PLAIN, PLAIN),
    "narrow-registers": ("m64n16k32.f16.e5m2.e4m3", 4, True, "1, -1", PLAIN, SWIZZLED),
    "integers": ("m64n8k32.s32.s8.u8", 4, False, "", PLAIN, PLAIN),
    "saturated": ("m64n16k32.satfinite.s32.s8.s8", 8, False, "", SWIZZLED, SWIZZLED),
    "integers-registers": ("m64n16k32.s32.u8.s8", 8, True, "", PLAIN, SWIZZLED),
    "bits": ("m64n8k256.s32.b1.b1.and.popc", 4, False, "", PLAIN, PLAIN),
}  # fmt: skip


def product(name: str, level: str, first: int = 1, **options: int) -> np.ndarray:
    """What the threads of two warpgroups store. first: whether the first product adds to what registers hold."""
    if not probe()[TARGET].available:
        pytest.skip(f"no ptxas for {TARGET}")
    form, count, in_registers, constants, a, b = FORMS[name]
    registers = ", ".join(f"d{k}" for k in range(count))
    text = KERNEL.format(
        copies=COPIES, form=form, to=f"{{{registers}}}", first="{a0, a1, a2, a3}" if in_registers else "xa",
        options=f", {constants}" if constants else "",
    )  # fmt: skip
    random = np.random.default_rng(5)
    floats = random.standard_normal(8192 + 4096)
    x = floats[:8192].astype(np.float16).view(np.uint16) if "f16" in form else random.integers(0, 1 << 16, 8192)
    x = x.astype(np.uint16) & (0xBFBF if "e5m2" in form or "tf32" in form else 0xFFFF)
    y = floats[8192:].astype(np.float16).view(np.uint32) & 0xBFBFBFBF
    y = np.resize(y, 8 * THREADS).astype(np.uint32)
    run_ptx(text, 1, THREADS, x.astype(np.uint16), y, a.code, b.code, first, level=level, **options)
    return y


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", FORMS)
def test_machine_code_gives_the_bits_of_the_ptx(name: str) -> None:
    wanted = product(name, "ptx")
    assert len(np.unique(wanted)) > 8
    assert (product(name, "sass", opt=3) == wanted).all()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "level"), [("f16", 0), ("bf16-registers", 0), ("narrow-registers", 0), ("integers", 3)]
)
def test_a_product_may_begin_at_zero(name: str, level: int) -> None:
    wanted = product(name, "ptx", 0)
    assert (wanted != product(name, "ptx")).any()
    assert (product(name, "sass", 0, opt=level) == wanted).all()


def _other_rows(found: Descriptor, across: bool, rows: int, depth: int) -> np.ndarray:
    return RIGHT(found, across, rows, depth)[::-1]


RIGHT = descriptors.addresses


@pytest.mark.parametrize("planted", ["layout", "sign", "accumulators"])
def test_a_planted_mistake_gives_other_bits(planted: str, monkeypatch) -> None:
    wanted = product("f16-negated", "ptx")
    if planted == "layout":
        monkeypatch.setattr(warpgroup.descriptors, "addresses", _other_rows)
    elif planted == "sign":
        monkeypatch.setattr(warpgroup, "signed", lambda codes, matrix: codes)
    else:
        right = warpgroup.accumulators
        monkeypatch.setattr(warpgroup, "accumulators", lambda n, bits: right(n, bits)[:, :, ::-1])
    assert (product("f16-negated", "sass", opt=3) != wanted).any()


def test_a_missing_barrier_is_a_race(monkeypatch) -> None:
    monkeypatch.setattr("tests.sass.test_warpgroup.KERNEL", KERNEL.replace("bar.sync 0;", ""))
    with pytest.raises(MachineFault, match="race"):
        product("f16", "sass", opt=3)


@pytest.mark.parametrize("text", [
    "HGMMA.64x8x16.F32 R24, gdesc[UR8], R24, gsb0",  # sm_80 has none
    "HGMMA.64x8x16.F32.FOO R24, gdesc[UR8], R24",
    "HGMMA.64x9x16.F32 R24, gdesc[UR8], R24",
    "HGMMA.64x8x16.F32 R24, gdesc[UR8].tnspC, R24",
    "QGMMA.64x8x32.F32.E4M3 R24, gdesc[UR8], R24",
    "WARPGROUP.ARRIVE.FOO",
    "WARPGROUP.DEPBAR.LE gsb1, 0x0",
])  # fmt: skip
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        run(f"{text}\nEXIT", [])
