"""Boxes of 4-bit elements that are padded in shared memory (.b4x16_p64) for products of 8-bit and 4-bit elements."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton.experimental.gluon", reason="this Triton has no Gluon")

from ptxdiff import emulated
from ptxdiff.emulator.errors import ExecutionError
from ptxdiff.emulator.kernel.async_copy.tensor_maps import PADDED_NIBBLES, TensorMap, decoded, encoded, rows_of
from ptxdiff.emulator.kernel.run import Buffer, HostMap, load_kernel, run_kernel
from ptxdiff.references import scaled_matrices
from ptxdiff.references.formats import E2M1, E4M3, UE8M0
from tests.support.tritons import since

M, N, K = 128, 64, 256
since_names = since(3, 9, "Gluon's copies of boxes have other names")


def drawn(kind: str, rows: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Elements as the kernel reads them, and their codes."""
    if kind == "e2m1":
        codes = torch.from_numpy(rng.integers(0, 16, (rows, K)))
        return (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8), codes
    real = torch.from_numpy(rng.standard_normal((rows, K)) * np.exp2(rng.integers(-4, 4, (rows, K))))
    found = real.to(torch.float8_e4m3fn)
    return found, found.view(torch.uint8).to(torch.int64)


def ran(kinds: tuple[str, str], block: int, ahead: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from tests.support.emulator import gluon_scaled_kernels as kernels

    rng = np.random.default_rng(5)
    mixed = kinds[0] != kinds[1]
    made, codes = [], []
    for kind, rows in zip(kinds, (M, N), strict=True):
        elements, of = drawn(kind, rows, rng)
        four = kind == "e2m1"
        box = [rows, 64 if four else 128]
        padded = mixed and four
        layout = gl.NVMMASharedLayout.get_default_for(box, gl.uint8 if four else gl.float8e4nv, fp4_padded=padded)
        made.append(TensorDescriptor.from_tensor(elements, box, layout))
        codes.append(of)
    c = torch.zeros((M, N))
    made.append(TensorDescriptor.from_tensor(c, [M, N], gl.NVMMASharedLayout.get_default_for([M, N], gl.float32)))
    low, high = (120, 134) if block == 32 else (0x20, 0x60)
    s, t = (torch.from_numpy(rng.integers(low, high, (rows, K // block))) for rows in (M, N))
    kind_of = torch.uint8 if block == 32 else torch.float8_e4m3fn
    scales = [x.to(torch.uint8).view(kind_of) for x in (s, t)]
    emulated(kernels.scaled, "sm_100a")[(1,)](*made, *scales, K, block, ahead, num_warps=4)
    formats = [E2M1 if kind == "e2m1" else E4M3 for kind in kinds]
    wanted = scaled_matrices.dot(
        codes[0], codes[1].T, s, t, torch.zeros((M, N), dtype=torch.int64), a_format=formats[0], b_format=formats[1],
        scale_format=UE8M0 if block == 32 else E4M3, block=block,
        kind=scaled_matrices.FOUR if formats == [E2M1, E2M1] else scaled_matrices.MX8,
    )  # fmt: skip
    return c.view(torch.int32).to(torch.int64) & 0xFFFFFFFF, wanted


@pytest.mark.sample(4)
@since_names
@pytest.mark.parametrize(
    ("kinds", "block"),
    [
        (("e4m3", "e2m1"), 32),
        (("e2m1", "e4m3"), 32),
        (("e2m1", "e2m1"), 16),
        pytest.param(("e4m3", "e4m3"), 32, marks=pytest.mark.slow),  # no box is padded
    ],
)
def test_products(kinds: tuple[str, str], block: int) -> None:
    got, wanted = ran(kinds, block)
    assert torch.equal(got, wanted)


@since_names
def test_an_mbarrier_that_expects_the_padding_too_is_a_deadlock() -> None:
    with pytest.raises(ExecutionError, match="deadlock"):
        ran(("e4m3", "e2m1"), 32, ahead=N * 64)


def a_map(**change: object) -> TensorMap | str:
    known = {"address": 4096, "sizes": [256, 4], "strides": [128], "box": [128, 2], "swizzle_mode": 3, "fill_mode": 0}
    known |= change
    return decoded(encoded(elemtype=PADDED_NIBBLES, **known))  # type: ignore[arg-type]


def test_a_box_has_twice_the_bytes_in_shared_memory() -> None:
    found = a_map()
    assert isinstance(found, TensorMap)
    assert found.bytes == 2 * 128
    address, inside, low, high = rows_of(found, [128, 3])
    assert address.tolist() == [4096 + 3 * 128 + 64, 4096 + 4 * 128 + 64]
    assert inside.tolist() == [True, False]
    assert (low, high) == (0, 8)
    assert found.refused([64, 0]) == "the first coordinate 64 of padded 4-bit elements is no multiple of 128"
    assert found.refused([-128, 0]) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"address": 4112}, "multiples of 32 bytes"),
        ({"strides": [144]}, "multiples of 32 bytes"),
        ({"sizes": [192, 4]}, "rows have 192 padded 4-bit elements"),
        ({"box": [64, 2]}, "those of a box 64: a multiple of 128, and 128"),
        ({"box": [128, 257]}, "a box has 1 to 256 elements"),
        ({"swizzle_mode": 2}, "a swizzle of 128 bytes or none"),
        ({"fill_mode": 1}, "fill mode 1"),
    ],
)
def test_maps_that_the_isa_does_not_allow_are_refused(change: dict[str, object], words: str) -> None:
    found = a_map(**change)
    assert isinstance(found, str)
    assert words in found


def moved(instruction: str, corner: int) -> None:
    """One thread copies a box of 4 x 128 elements between shared memory and a tensor of 4 x 256."""
    text = f""".version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .align 64 .b8 m[128]) .reqntid 32
{{
  .reg .pred %first; .reg .b32 %at, %x, %y; .reg .b64 %map;
  .shared .align 1024 .b8 data[1024]; .shared .align 8 .b64 there;
  mov.u32 %x, %tid.x; setp.eq.u32 %first, %x, 0;
  mov.u32 %at, data; mov.b32 %x, {corner}; mov.b32 %y, 0; mov.b64 %map, m; cvta.param.u64 %map, %map;
  @%first mbarrier.init.shared::cta.b64 [there], 1;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%first {instruction};
  ret;
}}
"""
    tensor = HostMap(Buffer(np.zeros((4, 128), np.uint8), "x"), 0, (4, 256), (128, 1), (4, 128), PADDED_NIBBLES, 3, 0)
    run_kernel(load_kernel(text), [tensor], (1,))


TO = "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%at], [%map, {%x, %y}], [there]"
FROM = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {%x, %y}], [%at]"


@pytest.mark.parametrize(
    ("instruction", "corner", "words"),
    [
        (TO, 64, "thread 0.*: the first coordinate 64 of padded 4-bit elements is no multiple of 128"),
        (FROM, 0, "thread 0.*: the emulator copies padded 4-bit elements to shared memory only"),
    ],
)
def test_copies_that_the_emulator_does_not_run_are_refused(instruction: str, corner: int, words: str) -> None:
    with pytest.raises(ExecutionError, match=words):
        moved(instruction, corner)
