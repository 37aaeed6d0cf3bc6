"""Copies of boxes of tensors, by tensor maps, in machine code give the bits of the PTX."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator import Buffer, HostMap, run_kernel
from ptxdiff.launcher import _machine_code
from ptxdiff.sass import async_copy
from ptxdiff.sass.clusters import ClusterBlocks
from ptxdiff.sass.run import run_machine_code
from ptxdiff.sass.text import MachineFault, Unsupported
from ptxdiff.triton.targets import probe
from tests.support.sass.assembly import run

THREADS = 256
KERNEL = """
.version 8.7
.target {target}
.address_size 64
.visible .entry k(.param .align 64 .b8 x[128], .param .align 64 .b8 y[128], .param .s32 first) {{
  .reg .b32 t, a, v, w, n, f; .reg .b64 gx, gy; .reg .pred p, q;
  .shared .align 1024 .b8 data[2048]; .shared .align 8 .b64 bar;
  mov.b64 gx, x; cvta.param.u64 gx, gx; mov.b64 gy, y; cvta.param.u64 gy, gy; ld.param.s32 f, [first];
  mov.u32 t, %tid.x; mov.u32 a, bar; mov.u32 v, data; setp.eq.u32 p, t, 0; mad.lo.u32 w, t, 4, v;
  @p mbarrier.init.shared::cta.b64 [a], 1; fence.mbarrier_init.release.cluster; fence.proxy.async; bar.sync 0;
  @p mbarrier.arrive.expect_tx.shared::cta.b64 _, [a], 1024;
  @p cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [v], [gx, {{f, f}}], [a];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 q, [a], 0; @!q bra WAIT;
  ld.shared.u32 n, [w]; mad.lo.u32 n, n, 3, t; st.shared.u32 [w+1024], n; fence.proxy.async; bar.sync 0;
  add.u32 v, v, 1024; add.u32 f, f, 1;
  @p cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [gy, {{f, f}}], [v];
  @p cp.async.bulk.commit_group; @p cp.async.bulk.wait_group 0;
  ret; }}
"""
WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 q, [a], 0; @!q bra WAIT;"


def _copied(
    level: str, target: str, swizzle: int, first: int, opt: int = 3, text: str = KERNEL, grid: int = 1
) -> np.ndarray:
    """What the kernel leaves in y, 40 x 36 words, of x, 20 x 40. Boxes are 8 x 32 words, from (first, first) on."""
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    x, y = np.arange(1, 801, dtype=np.uint32).reshape(20, 40), np.zeros((40, 36), np.uint32)
    source, to = Buffer(x, "x"), Buffer(y, "y")
    maps = [HostMap(b, 0, a.shape, (a.shape[1], 1), (8, 32), 2, swizzle, 0) for b, a in ((source, x), (to, y))]
    ptx = text.format(target=target)
    if level == "ptx":
        run_kernel(ptx, [*maps, first], (grid,), num_threads=THREADS)
    else:
        run_machine_code(_machine_code(ptx, "k", None, opt, False), [*maps, first], (grid,), THREADS)
    return y


@pytest.mark.parametrize("opt", [0, 3])
@pytest.mark.parametrize(
    ("target", "swizzle", "first"), [("sm_90a", 0, 2), ("sm_90a", 3, -3), ("sm_100a", 3, 5), ("sm_100a", 0, 15)]
)
def test_machine_code_gives_the_bits_of_the_ptx(target: str, swizzle: int, first: int, opt: int) -> None:
    wanted = _copied("ptx", target, swizzle, first)
    assert len(np.unique(wanted)) > 8
    np.testing.assert_array_equal(_copied("sass", target, swizzle, first, opt), wanted)


BOTH = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
SEVERAL = (
    KERNEL.replace(".s32 first)", ".s32 first) .reqnctapercluster 2")
    .replace("bar.sync 0;", BOTH)
    .replace("bytes [v], [gx, {{f, f}}], [a];", "bytes.multicast::cluster [v], [gx, {{f, f}}], [a], m;")
    .replace(
        "@p cp.async.bulk.tensor.2d.shared",
        "mov.u32 n, %ctaid.x; setp.eq.and.u32 q, n, 0, p; mov.b16 m, 3; @q\ncp.async.bulk.tensor.2d.shared",
    )
    .replace(".reg .pred p, q;", ".reg .pred p, q; .reg .b16 m;")
    .replace("[gy, {{f, f}}], [v]", "[gy, {{f, n}}], [v]")
    .replace("add.u32 f, f, 1;", "add.u32 f, f, 1; mov.u32 n, %ctaid.x; mad.lo.u32 n, n, 16, f;")
)


def test_a_box_for_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = _copied("ptx", "sm_90a", 3, 2, text=SEVERAL, grid=2)
    assert wanted[4].any()
    assert wanted[20].any()
    np.testing.assert_array_equal(_copied("sass", "sm_90a", 3, 2, text=SEVERAL, grid=2), wanted)
    monkeypatch.setattr(ClusterBlocks, "near", lambda self, instruction, address, lane, ranks: [address])
    with pytest.raises(MachineFault, match="deadlock"):
        _copied("sass", "sm_90a", 3, 2, text=SEVERAL, grid=2)


ANOTHER = (
    KERNEL.replace(".s32 first)", ".s32 first) .reqnctapercluster 2")
    .replace(".reg .pred p, q;", ".reg .pred p, q; .reg .b32 c, d;")
    .replace("bar.sync 0;", BOTH)
    .replace(
        "@p cp.async.bulk.tensor.2d.shared",
        "mov.u32 n, %cluster_ctarank; add.u32 f, f, n; xor.b32 n, n, 1; mapa.shared::cluster.u32 c, v, n;"
        "mapa.shared::cluster.u32 d, a, n; @p\ncp.async.bulk.tensor.2d.shared",
    )
    .replace("bytes [v], [gx, {{f, f}}], [a];", "bytes [c], [gx, {{f, f}}], [d];")
    .replace("[gy, {{f, f}}], [v]", "[gy, {{f, n}}], [v]")
    .replace("add.u32 f, f, 1;", "add.u32 f, f, 1; mov.u32 n, %ctaid.x; mad.lo.u32 n, n, 16, f;")
)


def test_a_box_for_another_block() -> None:
    wanted = _copied("ptx", "sm_90a", 3, 2, text=ANOTHER, grid=2)
    assert wanted[4].any()
    assert (wanted[4] != wanted[20]).any()
    np.testing.assert_array_equal(_copied("sass", "sm_90a", 3, 2, text=ANOTHER, grid=2), wanted)


def test_a_planted_swizzle_gives_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, right = _copied("ptx", "sm_90a", 3, 2), async_copy.swizzled
    monkeypatch.setattr(async_copy, "swizzled", lambda found, start: right(found, start)[::-1])
    assert (_copied("sass", "sm_90a", 3, 2) != wanted).any()


def test_a_box_that_is_under_way_is_not_read() -> None:
    with pytest.raises(MachineFault, match="bulk copy is under way"):
        _copied("sass", "sm_90a", 0, 2, text=KERNEL.replace(WAIT, ""))


def test_a_map_in_global_memory_is_refused() -> None:
    """A kernel that writes one uses the device's bits."""
    text = KERNEL.replace("mov.b64 gx, x; cvta.param.u64 gx, gx;", "ld.param.u64 gx, [x]; and.b64 gx, gx, -128;")
    with pytest.raises(Unsupported, match="no parameter"):
        _copied("sass", "sm_90a", 0, 2, text=text)


@pytest.mark.parametrize("text", [
    "UTMACMDFLUSH 0x1",
    "UTMALDG.2D.MULTICAST [UR8], [UR4]",
    "UTMASTG.2D.MULTICAST [UR8], [UR4], UR6",
    "UTMALDG.2D.IM2COL [UR8], [UR4]",
    "UTMALDG.6D [UR8], [UR4]",
    "UTMASTG.2D [UR8], [UR4], UR6",
    "@P0 UTMASTG.2D [UR8], [UR4]",
    "UTMAREDG.2D.ADD [UR8], [UR4]",
])  # fmt: skip
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        run(f"{text}\nEXIT", [])
