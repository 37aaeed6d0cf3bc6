"""wgmma, mbarriers and bulk copies on a device: the emulator gives the same bits, by forms and in whole kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxdiff.conformance import group_products
from ptxdiff.emulator.kernel.wgmma import multiply
from ptxdiff.processes.gpus import gpu_visible

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_visible(), reason="needs an NVIDIA GPU: none is visible"),
]
FORMS = [
    "wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16",
    "wgmma.mma_async.sync.aligned.m64n128k16.f16.f16.f16",
    "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16",
    "wgmma.mma_async.sync.aligned.m64n40k8.f32.tf32.tf32",
    "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e5m2",
    "wgmma.mma_async.sync.aligned.m64n8k32.f16.e5m2.e4m3",
    "wgmma.mma_async.sync.aligned.m64n48k32.satfinite.s32.s8.u8",
    "wgmma.mma_async.sync.aligned.m64n32k256.s32.b1.b1.and.popc",
]


@pytest.mark.parametrize("form", FORMS)
def test_every_layout_has_the_devices_bits(hopper_products, form):
    count = len(group_products.layouts_of(form)) * group_products.TILES
    tally = group_products.measured(hopper_products, form, count)
    assert (tally.mismatches, tally.failure, tally.refused) == (0, "", ""), tally.offenders
    assert tally.inputs == count


@pytest.mark.parametrize("change", [{"fraction": 24}, {"fraction": 26}, {"terms": 8}])
def test_a_model_off_by_one_step_is_detected(hopper_products, change):
    form = FORMS[2]
    known = group_products.program(form, "sm_90a", group_products.layouts_of(form)[0])
    how = known.product.arithmetic
    wrong = replace(known, product=replace(known.product, arithmetic=replace(how, model=replace(how.model, **change))))
    operands = group_products.drawn(known, "off by one", 28)
    arrays = group_products.arrays(known, operands)
    got = group_products.on_device(hopper_products, known, arrays)
    assert (group_products.computed(known, operands) == got).all()
    assert (group_products.computed(wrong, operands) != got).any()


@pytest.mark.parametrize("field", ["leading", "stride", "swizzle"])
def test_another_descriptor_gives_other_bits_on_both(hopper_products, field):
    """If a field of the descriptor changes, the emulator still gives the device's bits, and so the same addresses."""
    layout = group_products.GroupLayout(16, 64) if field != "leading" else group_products.GroupLayout(16, 16)
    form = FORMS[0]
    known = group_products.program(form, "sm_90a", layout)
    start = int(known.chunks[1].min()) // 1024 * 1024
    right, _ = group_products.placed(known.product.b, layout.b, start)
    other = replace(right, **{field: {"leading": 256, "stride": 256, "swizzle": 32}[field]})
    text = known.text.replace(str(right.code), str(other.code))
    assert text != known.text
    changed = replace(known, text=text)
    operands = group_products.drawn(known, "other", 7)
    arrays = group_products.arrays(known, operands)
    got = group_products.on_device(hopper_products, changed, arrays)
    assert (group_products.emulated(changed, arrays) == got).all()
    assert (group_products.computed(known, operands) != got).any()


def test_the_figures_of_the_model():
    """The wrong models above are one step from these figures."""
    model = multiply.arithmetic_of(group_products.bounds_of()[FORMS[2]]).model
    assert (model.fraction, model.terms) == (25, 16)


# whole kernels ------------------------------------------------------------------------------------------------


def _same(kernel, grid, tensors, rest, meta, **options):
    """Check that the device and the emulator leave the same bits in the last tensor."""
    import torch
    import triton

    from ptxdiff import emulated

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    there = [t.cuda() for t in tensors]
    kernel[grid](*there, *rest, **meta, **options)
    emulated(kernel, "sm_90a", limit=None)[grid](*tensors, *rest, **meta, **options)
    here, got = tensors[-1].contiguous().view(torch.uint8), there[-1].cpu().contiguous().view(torch.uint8)
    assert got.any()
    assert int((here != got).sum()) == 0


def _operands(kind, m, n, k):
    import torch

    generator = torch.Generator().manual_seed(7)
    a, b = torch.randn(m, k, generator=generator), torch.randn(k, n, generator=generator)
    a, b = (x * torch.exp2(torch.randint(-6, 7, x.shape, generator=generator).float()) for x in (a, b))
    if kind == torch.int8:
        return tuple(torch.randint(-128, 128, x.shape, generator=generator, dtype=torch.int8) for x in (a, b))
    return a.to(kind), b.to(kind)


TYPES = ["float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8"]


@pytest.mark.parametrize("name", TYPES)
def test_products_with_pointers(name):
    import torch
    import triton.language as tl

    from tests.support.descriptor_kernels import with_pointers

    m, n, k = 100, 72, 160
    a, b = _operands(getattr(torch, name), m, n, k)
    integer = name == "int8"
    out = torch.zeros(m, n, dtype=torch.int32 if integer else torch.float32)
    meta = {"BM": 64, "BN": 64, "BK": 64, "ACC": tl.int32 if integer else tl.float32}
    _same(with_pointers, (2, 2), [a, b, out], (m, n, k), meta, num_stages=3)


@pytest.mark.parametrize(("name", "tasks"), [("float16", False), ("float32", False), ("bfloat16", True)])
def test_products_with_descriptors_made_on_the_device(name, tasks):
    import torch
    import triton.language as tl

    from tests.support.descriptor_kernels import with_made_descriptors

    m, n, k = 136, 72, 144
    a, b = _operands(getattr(torch, name), m, n, k)
    out = torch.zeros(m, n, dtype=getattr(torch, name))
    meta = {"BM": 128, "BN": 64, "BK": 64 if name != "float32" else 32, "ACC": tl.float32, "TASKS": tasks}
    _same(with_made_descriptors, (2, 2), [a, b, out], (m, n, k), meta, num_stages=3)


def test_products_with_descriptors_of_the_host():
    import torch
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

    from ptxdiff import emulated
    from tests.support.descriptor_kernels import with_given_descriptors

    m, n, k = 136, 72, 144
    a, b = _operands(torch.float16, m, n, k)
    outs = []
    for place in ("cuda", "cpu"):
        x, y, out = a.to(place), b.to(place), torch.zeros(m, n, dtype=torch.float16, device=place)
        tensors = [TensorDescriptor.from_tensor(t, s) for t, s in ((x, [128, 64]), (y, [64, 64]), (out, [128, 64]))]
        run = with_given_descriptors if place == "cuda" else emulated(with_given_descriptors, "sm_90a", limit=None)
        run[(2, 2)](*tensors, k, BM=128, BN=64, BK=64, ACC=tl.float32, TO=tl.float16, num_stages=3)
        outs.append(out.cpu().view(torch.int16))
    assert outs[0].any()
    assert int((outs[0] != outs[1]).sum()) == 0


def test_attention():
    import torch

    from tests.support.descriptor_kernels import attention

    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, 128, 64, generator=generator).half() for _ in range(3))
    out = torch.zeros(2, 128, 64)
    _same(attention, (2, 2), [q, k, v, out], (128, 0.18), {"BM": 64, "BN": 64, "D": 64})
