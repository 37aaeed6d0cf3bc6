"""Sizes from the device's L2, and the setups with which variants are timed."""

import numpy as np
import pytest
import triton

from ptxdiff import Case, asm, kernel
from ptxdiff.references.formats import BF16, E2M1X2, E2M3X2, E4M3, F16, F32, F64, I32, TF32, U8
from ptxdiff.timing.candidates import inputs_of, setup_of, sized, sizes_of, typical

MIB = 1 << 20


def elementwise(**arguments):
    return Case(
        inputs=arguments, outputs={"y": F32}, reference=lambda *x: x[0], variants={"asm": asm("mov.b32 $0, $1;")}
    )


@triton.jit
def nothing(x, q, M, N):
    """A kernel to hang a case on."""


def rows(**sizes):
    return Case(
        inputs={"x": BF16["M", "N"]},
        outputs={"q": E2M1X2["M", "N/2"]},
        reference=lambda x: x,
        variants={"k": kernel(nothing, grid=(1,), num_warps=8)},
        sizes=[{"M": 1, "N": 16}, sizes],
    )


@pytest.mark.parametrize("l2", [4 * MIB, 40 * MIB, 50 * MIB, 60 * MIB, 128 * MIB])
@pytest.mark.parametrize("case", [elementwise(x=F32), elementwise(x=U8), elementwise(a=F64, b=F64)])
def test_sizes_are_small_within_the_l2_and_several_times_the_l2(case, l2):
    small, within, beyond = sizes_of(case, l2)
    assert [s.name for s in (small, within, beyond)] == ["small", "L2", "large"]
    assert small.elements == 1 << 16
    assert l2 / 2 < within.bytes <= l2
    assert 4 * l2 <= beyond.bytes < 8 * l2


def test_bytes_are_those_read_and_those_written():
    assert [s.bytes / s.elements for s in sizes_of(elementwise(a=F32, b=U8), 50 * MIB)] == [9, 9, 9]


def test_a_whole_kernel_grows_in_its_first_dimension():
    case = rows(M=33, N=512)
    small, within, beyond = sizes_of(case, 50 * MIB)
    assert {s.sizes["N"] for s in (small, within, beyond)} == {512}
    assert small.sizes["M"] == 128
    assert small.elements == 1 << 16
    assert within.bytes == within.sizes["M"] * (1024 + 256)
    assert 25 * MIB < within.bytes <= 50 * MIB
    assert 200 * MIB <= beyond.bytes < 400 * MIB
    assert sized(case, 1 << 20).sizes == {"M": 2048, "N": 512}


def test_a_variant_is_timed_at_its_largest_pack_and_a_kernel_with_its_own_setup():
    case = elementwise(x=F32)
    size = sized(case, 1 << 20)
    setup = setup_of(case, case.variants["asm"], size)
    assert (setup.pack, setup.shape, setup.block, setup.alignment) == (4, (1 << 20,), 1024, 16)
    whole = rows(M=8, N=64)
    setup = setup_of(whole, whole.variants["k"], sized(whole, 1 << 16))
    assert (setup.num_warps, setup.sizes, setup.shape) == (8, {"M": 1024, "N": 64}, ())


@pytest.mark.parametrize("fmt", [F64, F32, TF32, F16, BF16], ids=lambda f: f.name)
def test_floats_are_ordinary_numbers(fmt):
    units = typical(fmt, 4096, np.random.default_rng(1))
    assert units.dtype == fmt.numpy_dtype()
    values = units.view(np.float32 if fmt is TF32 else fmt.view_dtype()).astype(np.float64)
    assert np.isfinite(values).all()
    assert 2.0**-8 <= np.abs(values).min() < np.abs(values).max() < 2.0**8
    assert 0.4 < (values < 0).mean() < 0.6
    assert len(np.unique(values)) > 100


@pytest.mark.parametrize("fmt", [I32, U8, E4M3, E2M1X2, E2M3X2], ids=lambda f: f.name)
def test_other_units_are_uniform_bits(fmt):
    units = typical(fmt, 4096, np.random.default_rng(1)).astype(np.int64)
    assert len(np.unique(units)) > 100
    if fmt is E2M3X2:  # the upper two bits of each byte stay zero
        assert not (units & 0xC0C0).any()


def test_large_inputs_repeat_a_sample(monkeypatch):
    monkeypatch.setattr("ptxdiff.backends.gpu.DEVICE", "cpu")
    case = elementwise(x=F32)
    _, tensors = inputs_of(case, "c", sized(case, (1 << 21) + 5))
    x = tensors["x"]
    assert len(x) == (1 << 21) + 5
    assert (x[: 1 << 20] == x[1 << 20 : 1 << 21]).all()
    assert len(x.unique()) > 1 << 18


def test_a_kernels_own_inputs_are_generated_small_and_repeated(monkeypatch):
    monkeypatch.setattr("ptxdiff.backends.gpu.DEVICE", "cpu")
    calls = []

    def generate(sizes, rng):
        calls.append(dict(sizes))
        return {"x": rng.integers(0, 1 << 15, (sizes["M"], sizes["N"])).astype(np.uint16)}

    case = rows(M=33, N=512)
    object.__setattr__(case, "generate", generate)
    size = sized(case, 1 << 23)
    _, tensors = inputs_of(case, "c", size)
    assert calls == [{"M": 2048, "N": 512}]
    assert tensors["x"].shape == (1 << 23,)
