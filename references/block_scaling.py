"""Block-scaled quantisation: OCP MX (blocks of 32, ue8m0 scales) and NVFP4 (blocks of 16, e4m3 scales), and back.

Functions take int64 codes of float32 (converted exactly from the format in memory) in tensors [..., N], and return
codes of elements [..., N] and of scales [..., N / block]. Elements are rounded to nearest even and saturate; -0 is
kept.

**MX** (OCP Microscaling 1.0, 6.3; the other rules are torchao's `ScaleCalculationMode` and cuBLAS's "1D block
scaling"). With amax the largest magnitude of the block and the element format's largest number max = m * 2^emax, the
scale is

| rule | scale |
|---|---|
| `floor` | 2^(floor(log2 amax) - emax): OCP's. Elements above max saturate |
| `ceil` | 2^(ceil(log2 amax) - emax) |
| `even` | `floor` of amax + half of an element's last place, which may make it an infinity (torchao) |
| `rceil` | the least power of two not below amax * fl(1 / max), a product rounded to float32 |
| `rceil-div` | the same for the rounded quotient amax / max |

clamped to 2^-127 to 2^127. A NaN or an infinity in the block makes the scale NaN (0xff) and every element NaN: 0x7f in
e4m3 and e5m2, and in formats without NaN the largest positive number, as in PTX's cvt. An all-zero block has the scale
for amax 0: 2^-127, code 0; its elements are zeros with their signs. `rceil` and `rceil-div` give the same scales, as
the tests show. Elements are x * 2^-scale, rounded once: a product below float32's normal numbers is far below half of
any element format's smallest.

**NVFP4**: max = 6; `encode` is the scale of the whole tensor, about 448 * 6 / amax of the tensor.

| rule | block scale, to e4m3, saturating at 448 | factor of the elements |
|---|---|---|
| `divide` | (amax / 6) * encode | encode / scale, 0 for scale 0; two roundings |
| `transformer-engine` | amax * (encode * fl(1 / 6)) | 1 / (scale * fl(1 / encode)), at most the largest float32 |
| `flashinfer` | encode * (amax * fl(1 / 6)) | 1 / (scale * fl(1 / encode)), 0 for scale 0 |
| `torchao` | (amax / 6) / g, at least 2^-6, with g = fl(1 / encode) | none: the quotient x / (g * scale) |

Every operation is rounded to float32. So a block whose scale underflows to 0 gives zeros in `divide` and `flashinfer`,
+-6 for all elements that are large enough in `transformer-engine`, and ordinary elements in `torchao`.

FlashInfer and TensorRT-LLM use `rcp.approx.ftz`, whose last bit no specification defines; here its results are
correctly rounded. An approximate reciprocal can change only elements within an ulp of a tie. In `divide`,
`transformer-engine` and `flashinfer`, `max` ignores a NaN in the block, and the NaN element becomes +6. In `torchao` it
makes the scale NaN and every element +6, as PTX's conversion does. A block with only NaN has the scale NaN, except in
`transformer-engine`, where it is 0, because the maximum starts at 0. An infinity makes the scale 448; elements saturate
as usual, and the infinity becomes 6.

Sources: OCP Microscaling Formats 1.0; cuBLAS, narrow precision data types; torchao, prototype/mx_formats;
TransformerEngine, common/cast/nvfp4; FlashInfer and TensorRT-LLM, cvt_warp_fp16_to_fp4; PTX ISA, tcgen05 scale
layouts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ptxdiff.references import arithmetic, conversion
from ptxdiff.references.formats import E2M1, E4M3, F32, UE8M0, Format, encode, fraction
from ptxdiff.references.lazily import torch

if TYPE_CHECKING:
    from torch import Tensor

MxRule = Literal["floor", "ceil", "even", "rceil", "rceil-div"]
Nvfp4Rule = Literal["divide", "transformer-engine", "flashinfer", "torchao"]

MX_BLOCK = 32
NVFP4_BLOCK = 16
_INFINITY = 0x7F800000


def _blocks(x: Tensor, size: int) -> Tensor:
    if x.shape[-1] % size:
        raise ValueError(f"rows of {x.shape[-1]} elements are no whole number of blocks of {size}")
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


def largest_exponent(target: Format) -> int:
    """The exponent emax of a format's largest finite number."""
    return (target.max_finite >> target.mantissa_bits) - target.bias


def mx_scale(amax: Tensor, *, target: Format, rule: MxRule = "floor") -> Tensor:
    """ue8m0 codes of the scales of blocks.

    `amax`: float32 codes of their largest magnitudes, NaN for a block with NaN.
    """
    emax = largest_exponent(target)
    if rule in ("rceil", "rceil-div"):
        largest = fraction(target, target.max_finite)
        divisor = torch.full_like(amax, encode(F32, largest))
        if rule == "rceil":
            one = torch.full_like(amax, encode(F32, 1.0))
            ratio = arithmetic.mul(amax, arithmetic.div(one, divisor))
        else:
            ratio = arithmetic.div(amax, divisor)
        scale = conversion.convert(ratio, source=F32, target=UE8M0, rounding="rp", satfinite=True)
    else:
        if rule == "even":
            amax = torch.where(amax < _INFINITY, amax + (1 << (22 - target.mantissa_bits)), amax)
        exponent = amax >> 23
        if rule == "ceil":
            exponent = exponent + ((amax & 0x7FFFFF) != 0).to(torch.int64)
        scale = (exponent - emax).clamp(0, 254)
    return torch.where(amax < _INFINITY, scale, UE8M0.code_mask)


def mx_quantize(x: Tensor, *, target: Format, rule: MxRule = "floor") -> tuple[Tensor, Tensor]:
    """(codes of `target`, ue8m0 codes) of float32 codes."""
    blocks = _blocks(x, MX_BLOCK)
    scale = mx_scale((blocks & 0x7FFFFFFF).amax(-1), target=target, rule=rule)
    inverse = torch.where(scale == 0xFF, 0xFF, 254 - scale)
    factor = conversion.convert(inverse, source=UE8M0, target=F32).unsqueeze(-1)
    scaled = arithmetic.mul(blocks, factor.expand_as(blocks))
    codes = conversion.convert(scaled, source=F32, target=target, satfinite=True)
    return codes.reshape(x.shape), scale


def mx_dequantize(codes: Tensor, scale: Tensor, *, source: Format, target: Format = F32) -> Tensor:
    """Element times scale, rounded once to `target`; a NaN scale makes the block NaN (OCP Microscaling 1.0, 6.1)."""
    blocks = _blocks(codes, MX_BLOCK)
    product = arithmetic.product(blocks, scale.unsqueeze(-1).expand_as(blocks), left=source, right=UE8M0, fmt=target)
    return product.reshape(codes.shape)


def nvfp4_quantize(x: Tensor, *, encode_scale: float, rule: Nvfp4Rule = "divide") -> tuple[Tensor, Tensor]:
    """(e2m1 codes, e4m3 codes of the scales) of float32 codes; `encode_scale` is a float32 number."""
    blocks = _blocks(x, NVFP4_BLOCK)
    sizes = blocks & 0x7FFFFFFF
    amax = sizes.amax(-1)
    if rule != "torchao":
        numbers = torch.where(sizes > _INFINITY, 0, sizes).amax(-1)
        nothing_but_nan = (sizes > _INFINITY).all(-1) & (rule != "transformer-engine")
        amax = torch.where(nothing_but_nan, amax, numbers)

    def constant(value: float) -> Tensor:
        return torch.full_like(amax, encode(F32, value))

    six, one, whole = constant(6.0), constant(1.0), constant(encode_scale)
    sixth, inverse_encode = arithmetic.div(one, six), arithmetic.div(one, whole)
    decode = {
        "divide": lambda: arithmetic.mul(arithmetic.div(amax, six), whole),
        "transformer-engine": lambda: arithmetic.mul(amax, arithmetic.mul(whole, sixth)),
        "flashinfer": lambda: arithmetic.mul(whole, arithmetic.mul(amax, sixth)),
        "torchao": lambda: arithmetic.div(arithmetic.div(amax, six), inverse_encode),
    }[rule]()
    if rule == "torchao":
        decode = torch.where(decode > _INFINITY, decode, decode.clamp(min=encode(F32, 2.0**-6)))
    scale = conversion.convert(decode, source=F32, target=E4M3, satfinite=True)
    wide = conversion.convert(scale, source=E4M3, target=F32)
    if rule == "torchao":
        divisor = arithmetic.mul(inverse_encode, wide).unsqueeze(-1).expand_as(blocks)
        scaled = arithmetic.div(blocks, divisor)
    else:
        if rule == "divide":
            factor = arithmetic.div(whole, wide)
        else:
            factor = arithmetic.div(one, arithmetic.mul(wide, inverse_encode))
        at_zero = F32.max_finite if rule == "transformer-engine" else 0
        limited = torch.where(factor == _INFINITY, F32.max_finite, factor)
        factor = torch.where(wide == 0, at_zero, limited)
        scaled = arithmetic.mul(blocks, factor.unsqueeze(-1).expand_as(blocks))
    return conversion.to_e2m1(scaled).reshape(x.shape), scale


def nvfp4_dequantize(codes: Tensor, scale: Tensor, *, decode_scale: float, target: Format) -> Tensor:
    """e2m1 times e4m3, exact in float32, times the tensor's decode scale, rounded, and rounded again to `target`.

    A NaN scale makes its block NaN.
    """
    blocks = _blocks(codes, NVFP4_BLOCK)
    product = arithmetic.product(blocks, scale.unsqueeze(-1).expand_as(blocks), left=E2M1, right=E4M3, fmt=F32)
    whole = arithmetic.mul(product, torch.full_like(product, encode(F32, decode_scale)))
    return conversion.convert(whole, source=F32, target=target).reshape(codes.shape)


def tiled_scales(scale: Tensor, *, fill: int = 0) -> Tensor:
    """Scales [M, K] in the order in which tensor cores read them: 1-d, in tiles of 128 rows and 4 columns.

    M is padded to a multiple of 128 and K to one of 4, with `fill`. Tiles follow each other along a row of tiles first.
    In the 512 bytes of a tile, row r and column c are at offset 16 * (r % 32) + 4 * (r // 32) + c: rows 32 apart are
    neighbouring 4-byte words. Sources: cuBLAS, 1D block scaling factors layout; PTX ISA, tcgen05.mma scale factors.
    """
    m, k = scale.shape
    rows, columns = -(-m // 128), -(-k // 4)
    padded = torch.nn.functional.pad(scale, (0, columns * 4 - k, 0, rows * 128 - m), value=fill)
    return padded.view(rows, 4, 32, columns, 4).permute(0, 3, 2, 1, 4).reshape(-1)


def untiled_scales(tiled: Tensor, *, rows: int, columns: int) -> Tensor:
    """The scales [rows, columns] of `tiled_scales`, without its padding."""
    tiles = tiled.view(-(-rows // 128), -(-columns // 4), 32, 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(-(-rows // 128) * 128, -(-columns // 4) * 4)[:rows, :columns]
