"""Block scaling against exact rationals and against numpy's float32 with ml_dtypes, one number at a time."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

from ptxdiff.references import block_scaling, formats
from ptxdiff.references.block_scaling import MxRule, Nvfp4Rule
from ptxdiff.references.formats import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F32, UE8M0, Format
from tests.support.references.plain_definitions import patterns, round_fraction

TARGETS = (E4M3, E5M2, E2M3, E3M2, E2M1)
RULES: tuple[MxRule, ...] = ("floor", "ceil", "even", "rceil", "rceil-div")
NVFP4_RULES: tuple[Nvfp4Rule, ...] = ("divide", "transformer-engine", "flashinfer", "torchao")
NAN, INFINITY = 0x7FFFFFFF, 0x7F800000


def finite(count: int, seed: int) -> torch.Tensor:
    """Random finite codes, with zeros among them."""
    codes = patterns(F32, 3 * count, seed)
    return codes[formats.is_finite(F32, codes)][:count]


def floor_log2(size: Fraction) -> int:
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    return exponent - (size < Fraction(2) ** exponent)


def scale_exponent(size: Fraction, target: Format, rule: MxRule) -> int:
    """The exponent before clamping, from the definition of each rule."""
    largest = formats.fraction(target, target.max_finite)
    emax = floor_log2(largest)
    if rule in ("rceil", "rceil-div"):
        top = np.float32(float(largest))
        with np.errstate(under="ignore"):
            number = np.float32(float(size))
            ratio = number * (np.float32(1) / top) if rule == "rceil" else number / top
        size, emax = Fraction(float(ratio)), 0
        if not size:
            return -127
    if rule == "even":
        # Half a unit in the last place of the element's precision, in the binade of `size`; subnormal numbers belong to
        # the lowest.
        size += Fraction(2) ** (max(floor_log2(size), -126) - target.mantissa_bits - 1)
    exponent = floor_log2(size)
    up = rule not in ("floor", "even") and size != Fraction(2) ** exponent
    if rule in ("floor", "even", "ceil"):
        exponent = max(exponent, -127)  # torchao reads the exponent field, whose least value this is
        up = up and (exponent > -127 or rule == "ceil")
    return exponent + up - emax


@pytest.mark.sample(3)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_mx_scales_against_rationals(target: Format, rule: MxRule) -> None:
    amax = finite(1500, 5) & 0x7FFFFFFF
    amax = torch.cat([amax[amax > 0], torch.tensor([1, 0x400000, 0x400001, 0x7FFFFF, 0x800000, 0x7F000000])])
    got = block_scaling.mx_scale(amax, target=target, rule=rule)
    for code, scale in zip(amax.tolist(), got.tolist(), strict=True):
        size = formats.fraction(F32, code)
        expected = min(max(scale_exponent(size, target, rule), -127), 127) + 127
        if rule == "even" and size + Fraction(2) ** (floor_log2(size) - target.mantissa_bits - 1) >= 2**128:
            expected = 0xFF
        assert scale == expected, hex(code)


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_mx_elements_against_rationals(target: Format) -> None:
    """Each element is x / scale, rounded once."""
    x = finite(32 * 40, 9).reshape(4, 320)
    codes, scales = block_scaling.mx_quantize(x, target=target)
    for block, found, scale in zip(x.reshape(-1, 32), codes.reshape(-1, 32), scales.flatten().tolist(), strict=True):
        factor = formats.fraction(UE8M0, scale)
        for code, element in zip(block.tolist(), found.tolist(), strict=True):
            value = formats.fraction(F32, code) / factor
            assert element == round_fraction(target, value, "rn", satfinite=True, negative=code >> 31 == 1), hex(code)


def test_blocks_that_are_special() -> None:
    """Zeros keep their signs with the smallest scale. A NaN or an infinity makes the whole block NaN."""
    x = torch.zeros(4, 32, dtype=torch.int64)
    x[0, 3] = 1 << 31
    x[1, 5], x[2, 7], x[3, 0] = NAN, INFINITY, 0x3F800000
    for target, nan in ((E4M3, 0x7F), (E5M2, 0x7F), (E2M3, 0x1F), (E3M2, 0x1F), (E2M1, 0x7)):
        for rule in RULES:
            codes, scales = block_scaling.mx_quantize(x, target=target, rule=rule)
            assert scales.flatten().tolist()[:3] == [0, 0xFF, 0xFF], rule
            assert codes[0].tolist() == [0, 0, 0, 1 << target.sign_shift] + [0] * 28
            assert set(codes[1].tolist()) == set(codes[2].tolist()) == {nan}
    assert block_scaling.mx_quantize(x[3:], target=E4M3)[1].item() == 127 - 8


def test_rules_differ_for_a_maximum_just_beyond_the_largest() -> None:
    """449, if 448 is the largest: OCP's scale saturates it, and other rules double the scale. 1.75 * 256 is 448
    itself."""
    amax = torch.tensor([0x43E08000, 0x43E00000])  # 449, 448
    scales = {rule: block_scaling.mx_scale(amax, target=E4M3, rule=rule).tolist() for rule in RULES}
    assert scales == {
        "floor": [127, 127], "ceil": [128, 128], "even": [127, 127], "rceil": [128, 127], "rceil-div": [128, 127],
    }  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_product_and_quotient_agree_on_scales(target: Format) -> None:
    """For numbers around the largest, where they could differ, and in all binades. The slow test has every
    significand."""
    largest = formats.encode(F32, formats.fraction(target, target.max_finite))
    fields = torch.arange(0, 254)[:, None] << 23
    amax = (fields + (largest & 0x7FFFFF) + torch.arange(-64, 65)).flatten()
    amax = amax[amax >= 0]
    product = block_scaling.mx_scale(amax, target=target, rule="rceil")
    assert torch.equal(product, block_scaling.mx_scale(amax, target=target, rule="rceil-div"))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_product_and_quotient_agree_on_every_significand(target: Format) -> None:
    """2^23 numbers of a normal binade and as many subnormal ones; takes a minute."""
    for start in (0, 0x3F800000):
        for part in range(8):
            amax = torch.arange(1 << 20) + start + (part << 20)
            product = block_scaling.mx_scale(amax, target=target, rule="rceil")
            assert torch.equal(product, block_scaling.mx_scale(amax, target=target, rule="rceil-div"))


@pytest.mark.parametrize("source", [E4M3, E5M2, E2M3, E3M2, E2M1], ids=str)
def test_mx_dequantize_against_rationals(source: Format) -> None:
    every = list(formats.finite_codes(source))
    codes = torch.tensor(every * 32).reshape(-1, 32)
    scales = torch.linspace(0, 254, len(codes)).long()[:, None]
    got = block_scaling.mx_dequantize(codes, scales, source=source, target=BF16)
    for row, scale, found in zip(codes, scales.flatten().tolist(), got, strict=True):
        for code, element in zip(row.tolist(), found.tolist(), strict=True):
            exact = formats.fraction(source, code) * formats.fraction(UE8M0, scale)
            assert element == round_fraction(BF16, exact, "rn", negative=code >> source.sign_shift == 1)
    nan = block_scaling.mx_dequantize(codes, torch.full_like(scales, 0xFF), source=source)
    assert set(nan.flatten().tolist()) == {NAN}


def by_numpy(block: np.ndarray, encode: float, rule: Nvfp4Rule) -> tuple[list[int], int]:
    """One block by numpy's float32 and ml_dtypes' casts, as the libraries' sources compute it."""
    one, six, whole = np.float32(1), np.float32(6), np.float32(encode)
    sizes = np.abs(block)
    with np.errstate(all="ignore"):
        if rule == "torchao":
            amax = np.max(sizes)
            decode = np.clip(amax / six / (one / whole), np.float32(2.0**-6), np.float32(448))
        else:
            numbers = sizes[~np.isnan(sizes)]
            amax = numbers.max() if len(numbers) else np.float32(np.nan)
            if rule == "transformer-engine":
                amax = np.fmax(amax, np.float32(0))
            decode = {
                "divide": lambda: amax / six * whole,
                "transformer-engine": lambda: amax * (whole * (one / six)),
                "flashinfer": lambda: whole * (amax * (one / six)),
            }[rule]()
            decode = decode if np.isnan(decode) else np.fmin(decode, np.float32(448))
        scale = np.float32(decode).astype(ml_dtypes.float8_e4m3fn)
        wide = scale.astype(np.float32)
        if rule == "torchao":
            scaled = block / (one / whole * wide)
        elif rule == "divide":
            scaled = block * (whole / wide if wide != 0 else np.float32(0))
        else:
            factor = one / (wide * (one / whole))
            if rule == "transformer-engine":
                factor = factor if np.isnan(factor) else np.fmin(factor, np.finfo(np.float32).max)
            elif wide == 0:
                factor = np.float32(0)
            scaled = block * factor
        clamped = np.clip(scaled, np.float32(-6), six)
    codes = clamped.astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 0xF
    return [7 if np.isnan(v) else int(c) for v, c in zip(scaled, codes, strict=True)], int(scale.view(np.uint8)) & 0x7F


# Largest magnitudes whose scale is within an ulp of a tie of e4m3, by encode scale: the order of roundings decides.
NEAR_TIES = {
    float(np.float32(13.7)): (0x3F93273E, 0x415939ED, 0x3FAF2EB8, 0x40BD3274),
    float(np.float32(11.3)): (0x4083AE71, 0x4165616A),
    float(np.float32(27.1)): (0x41069CCF, 0x40DBA188, 0x4170E2B8),
}


def test_libraries_differ_near_a_tie() -> None:
    """Any two rules give different scales for one of these magnitudes."""
    apart = set()
    for encode, sizes in NEAR_TIES.items():
        x = torch.tensor(sizes)[:, None].expand(-1, 16)
        scales = {r: block_scaling.nvfp4_quantize(x, encode_scale=encode, rule=r)[1].flatten() for r in NVFP4_RULES}
        assert torch.stack(list(scales.values())).unique(dim=0).shape[0] > 1
        apart |= {(r, q) for r in NVFP4_RULES for q in NVFP4_RULES if not torch.equal(scales[r], scales[q])}
    assert len(apart) == 12


@pytest.mark.sample(3)
@pytest.mark.parametrize("encode", [1.0, 24.0, 1.5, 2.0**-20, *NEAR_TIES])
@pytest.mark.parametrize("rule", NVFP4_RULES)
def test_nvfp4_against_numpy(rule: Nvfp4Rule, encode: float) -> None:
    """Random blocks of moderate and of any size, zeros, one NaN, only NaN, an infinity, and blocks that are too
    small."""
    rng = np.random.default_rng(3)
    blocks = (rng.normal(size=(400, 16)) * np.exp2(rng.integers(-20, 12, size=(400, 1)))).astype(np.float32)
    blocks[:100] = patterns(F32, 1600, 4).numpy().astype(np.uint32).view(np.float32).reshape(100, 16)
    blocks[100], blocks[101], blocks[102, 3], blocks[103, 4] = 0, np.nan, np.nan, np.inf
    blocks[104] = 1e-30
    for n, size in enumerate(NEAR_TIES.get(encode, ())):
        blocks[105 + n] = np.uint32(size).view(np.float32)
    x = torch.from_numpy(blocks.view(np.int32).astype(np.int64) & 0xFFFFFFFF)
    codes, scales = block_scaling.nvfp4_quantize(x, encode_scale=encode, rule=rule)
    for n, block in enumerate(blocks):
        expected, scale = by_numpy(block, encode, rule)
        assert (scales[n].item(), codes[n].tolist()) == (scale, expected), (n, block)


def test_libraries_differ_on_a_block_too_small_for_its_scale() -> None:
    x = torch.full((1, 16), formats.encode(F32, 2.0**-40))
    answers = {r: block_scaling.nvfp4_quantize(x, encode_scale=1.0, rule=r) for r in NVFP4_RULES}
    found = {rule: (scale.item(), codes[0, 0].item()) for rule, (codes, scale) in answers.items()}
    assert found == {"divide": (0, 0), "flashinfer": (0, 0), "transformer-engine": (0, 7), "torchao": (0x08, 0)}


def test_nvfp4_dequantize_rounds_twice() -> None:
    """Against rationals: the product with the decode scale is rounded to float32, then to bfloat16."""
    codes = torch.arange(256).reshape(16, 16) % 16
    scales = torch.arange(0, 0x7F, 8)[:, None]
    decode = float(np.float32(1 / 1536))
    got = block_scaling.nvfp4_dequantize(codes, scales, decode_scale=decode, target=BF16)
    for row, scale, found in zip(codes, scales.flatten().tolist(), got, strict=True):
        for code, element in zip(row.tolist(), found.tolist(), strict=True):
            exact = formats.fraction(E2M1, code) * formats.fraction(E4M3, scale) * Fraction(decode)
            single = formats.fraction(F32, round_fraction(F32, exact, "rn"))
            assert element == round_fraction(BF16, single, "rn", negative=code >> 3 == 1)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (128, 4), (130, 9), (300, 4)])
def test_scale_tiles(rows: int, columns: int) -> None:
    """Every scale is where cuBLAS's formula puts it, padding is zero, and the inverse function returns the scales."""
    scales = torch.arange(1, rows * columns + 1).reshape(rows, columns)
    tiled = block_scaling.tiled_scales(scales)
    tiles = -(-columns // 4)
    assert tiled.shape == (-(-rows // 128) * tiles * 512,)
    for row in range(rows):
        for column in range(columns):
            tile = row // 128 * tiles + column // 4
            place = tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4
            assert tiled[place] == scales[row, column]
    assert int((tiled == 0).sum()) == len(tiled) - rows * columns
    assert torch.equal(block_scaling.untiled_scales(tiled, rows=rows, columns=columns), scales)


def test_rows_with_incomplete_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 40 elements are no whole number of blocks of 32"):
        block_scaling.mx_quantize(torch.zeros(2, 40, dtype=torch.int64), target=E4M3)
