"""Copies of boxes of tensors, by tensor maps, in machine code give the bits of the PTX."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import emulated
from ptxdiff.emulator import Buffer, HostMap, PtxError, run_kernel
from ptxdiff.emulator.kernel.async_copy.tensor_maps import decoded
from ptxdiff.launcher import _machine_code
from ptxdiff.sass import async_copy, tensor_maps
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


@pytest.mark.sample(3)
@pytest.mark.parametrize("opt", [0, 3])
@pytest.mark.parametrize(
    ("target", "swizzle", "first"), [("sm_90a", 0, 2), ("sm_90a", 3, -3), ("sm_100a", 3, 7), ("sm_100a", 0, 15)]
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


@pytest.mark.slow
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


@pytest.mark.slow
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


FIELDS = (
    ("global_address", "b64", "gx"), ("rank", "b32", "1"), ("box_dim", "b32", "0, 32"), ("box_dim", "b32", "1, 8"),
    ("global_dim", "b32", "0, 40"), ("global_dim", "b32", "1, 20"), ("global_stride", "b64", "0, 160"),
    ("element_stride", "b32", "0, 1"), ("element_stride", "b32", "1, 1"), ("elemtype", "b32", "2"),
    ("interleave_layout", "b32", "0"), ("swizzle_mode", "b32", "{swizzle}"), ("fill_mode", "b32", "0"),
)  # fmt: skip
MADE = """
  .reg .b32 mw; .reg .b64 gm, st; .shared .align 128 .b8 map[128];
  mov.u32 t, %tid.x; mov.u32 mw, map; mad.lo.u32 mw, t, 4, mw; setp.lt.u32 q, t, 32;
  {begin}
  bar.sync 0; setp.eq.u32 p, t, 0; ld.param.u64 gx, [tensor]; {replaced}
  bar.sync 0; ld.param.u64 gm, [room]; setp.lt.u32 q, t, 32; @!q bra MADE;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [gm], [map], 128;
  fence.proxy.tensormap::generic.acquire.gpu [gm], 128;
MADE: bar.sync 0; mov.u64 gx, gm;
"""
BEGINS = {
    "zeros": "@q st.shared.u32 [mw], 0;",
    "the host's": "mov.b64 gx, x; cvta.param.u64 gx, gx; mul.wide.u32 st, t, 4; add.u64 gx, gx, st; mov.u32 n, 0;"
    "@q ld.u32 n, [gx]; @q st.shared.u32 [mw], n;",
}
"""What a map begins as: all of its fields are made, or those of the host's map but for the address."""


def _made(level: str, target: str, begin: str, swizzle: int, opt: int = 3, fields=FIELDS) -> np.ndarray:
    """As `_copied`, by a map that the kernel makes in global memory."""
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    chosen = fields if begin == "zeros" else fields[:1]
    replaced = " ".join(
        f"@p tensormap.replace.tile.{f}.shared::cta.b1024.{t} [map], {v.format(swizzle=swizzle)};" for f, t, v in chosen
    )
    text = KERNEL.replace(".param .s32 first)", ".param .s32 first, .param .u64 tensor, .param .u64 room)").replace(
        "mov.b64 gx, x; cvta.param.u64 gx, gx;", MADE.format(begin=BEGINS[begin], replaced=replaced)
    )
    x, y, room = np.arange(1, 801, dtype=np.uint32).reshape(20, 40), np.zeros((40, 36), np.uint32), np.zeros(32, "u4")
    source, to, other = Buffer(x, "x"), Buffer(y, "y"), Buffer(np.zeros_like(x), "nothing")
    maps = [HostMap(b, 0, a.shape, (a.shape[1], 1), (8, 32), 2, swizzle, 0) for b, a in ((other, x), (to, y))]
    arguments = [*maps, 2, source, Buffer(room, "room", defined=False)]
    ptx = text.format(target=target)
    if level == "ptx":
        run_kernel(ptx, arguments, (1,), num_threads=THREADS)
    else:
        run_machine_code(_machine_code(ptx, "k", None, opt, False), arguments, (1,), THREADS)
    return y


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("target", "begin", "swizzle", "opt"),
    [("sm_90a", "zeros", 3, 3), ("sm_90a", "zeros", 0, 0), ("sm_90a", "the host's", 3, 3), ("sm_100a", "zeros", 3, 3),
     ("sm_100a", "the host's", 0, 3), ("sm_120a", "zeros", 3, 3)],
)  # fmt: skip
def test_a_map_that_the_kernel_makes(target: str, begin: str, swizzle: int, opt: int) -> None:
    wanted = _made("ptx", target, begin, swizzle)
    assert len(np.unique(wanted)) > 8
    np.testing.assert_array_equal(_made("sass", target, begin, swizzle, opt), wanted)


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["sm_90a", "sm_120a"])
def test_a_map_that_a_triton_kernel_makes(target: str) -> None:
    """It lies in the scratch memory of the kernel."""
    pytest.importorskip("triton")
    from tests.support.small_kernels import described

    x, y = np.arange(256, dtype=np.float32).reshape(16, 16), np.zeros((16, 16), np.float32)
    emulated(described, target, level="sass")[(1,)](x, y, 16, 16, B=16)
    np.testing.assert_array_equal(y, x)


def test_a_field_in_another_place_makes_another_map(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = {**tensor_maps._PLACES, "box_dim": tensor_maps._PLACES["box_dim"][::-1]}
    monkeypatch.setattr(tensor_maps, "_PLACES", planted)
    with pytest.raises((MachineFault, Unsupported)):
        _made("sass", "sm_90a", "zeros", 3)


def test_a_map_with_a_bit_of_no_field_is_refused() -> None:
    source = Buffer(np.zeros((20, 40), np.uint32), "x")
    data = tensor_maps.of_the_device(HostMap(source, 0, (20, 40), (40, 1), (8, 32), 2, 3, 0).bytes)
    assert not isinstance(tensor_maps.read_map(data), str)
    assert "bit 1023" in str(tensor_maps.read_map(data[:-1] + b"\x80"))


@pytest.mark.parametrize("element", [*range(13), 14])
def test_maps_of_the_host_are_read_as_they_are_made(element: int) -> None:
    source = Buffer(np.zeros((4, 6, 8, 256), np.uint64), "x")
    given = HostMap(source, 0, (4, 6, 8, 256), (12288, 2048, 256, 1), (2, 3, 5, 128 if element == 14 else 16), element,
                    0, int(element in (6, 7, 9, 10))).bytes  # fmt: skip
    assert tensor_maps.read_map(tensor_maps.of_the_device(given)) == decoded(given)


@pytest.mark.parametrize(("strides", "box", "name"), [
    ((10, 1), (8, 4), "global_stride"), ((40, 1), (8, 260), "box_dim"), ((40, 1), (0, 4), "box_dim"),
])  # fmt: skip
def test_a_map_of_the_host_that_the_device_cannot_hold_is_refused(
    strides: tuple[int, int], box: tuple[int, int], name: str
) -> None:
    """As PTX refuses it. Else machine code would copy with another stride, or another box."""
    source = Buffer(np.zeros((20, 40), np.uint32), "x")
    given = HostMap(source, 0, (20, 4), strides, box, 2, 0, 0).bytes
    assert isinstance(decoded(given), str)
    with pytest.raises(PtxError, match=f"{name} . is"):
        tensor_maps.of_the_device(given)


def test_a_map_that_nobody_wrote_is_refused() -> None:
    text = KERNEL.replace("mov.b64 gx, x; cvta.param.u64 gx, gx;", "ld.param.u64 gx, [x]; and.b64 gx, gx, -128;")
    with pytest.raises(Unsupported, match="tensor map"):
        _copied("sass", "sm_90a", 0, 2, text=text)


@pytest.mark.parametrize("text", [
    "UTMACMDFLUSH 0x1",
    "UTMALDG.2D.MULTICAST [UR8], [UR4]",
    "UTMASTG.2D.MULTICAST [UR8], [UR4], UR6",
    "UTMALDG.2D.IM2COL [UR8], [UR4]",
    "UTMALDG.6D [UR8], [UR4]",
    "UTMASTG.2D [UR8], [UR4], UR6",
    "@P0 UTMASTG.2D [UR8], [UR4]",
    "UTMALDG.2D.IM2COL [UR8], [UR4], UR6",
    "UTMALDG.3D.GATHER4 [UR8], [UR4]",
    "UTMALDG.2D.GATHER4 [UR8], [UR4], UR6",
    "UTMALDG.3D.W64 [UR8], [UR4], UR6",
    "UTMALDG.3D.IM2COL.2CTA [UR8], [UR4], UR6",
    "UTMASTG.3D.IM2COL [UR8], [UR4], UR6",
    "UTMASTG.2D.GATHER4 [UR8], [UR4]",
    "UTMASTG.2D.ADD [UR8], [UR4]",
    "UTMAREDG.2D [UR8], [UR4]",
    "UTMAREDG.2D.EXCH [UR8], [UR4]",
    "UTMAREDG.3D.W.ADD [UR8], [UR4]",
    "UTMAREDG.2D.SCATTER4.ADD [UR8], [UR4]",
    "UTMAREDG.2D.ADD [UR8], [UR4], UR6",
    "@P0 UTMAREDG.2D.ADD [UR8], [UR4]",
    "UTMAPF.L2.3D.IM2COL [UR8], [UR4]",
])  # fmt: skip
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        run(f"{text}\nEXIT", [])
