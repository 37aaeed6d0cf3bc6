"""Rows for conversions: between floats, from and to integers, packed, narrow and stochastic."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ptxdiff.references import conversion, integer_max, rounding, stochastic
from ptxdiff.references.conversion import convert
from ptxdiff.references.formats import (
    BF16,
    BF16X2,
    E2M1X2,
    E2M1X4,
    E2M3X2,
    E2M3X4,
    E3M2X2,
    E3M2X4,
    E4M3X2,
    E4M3X4,
    E5M2X2,
    E5M2X4,
    F16,
    F16X2,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    TF32,
    U8,
    U16,
    U32,
    U64,
    UE8M0X2,
    Format,
    is_nan,
)
from tests.support.references.meeting import Row, any_nan, product_of, row, side_by_side, then

FLOATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
INTEGERS = {"s8": I8, "s16": I16, "s32": I32, "s64": I64, "u8": U8, "u16": U16, "u32": U32, "u64": U64}
MODES = ("rn", "rz", "rm", "rp")
PACKED = {
    "e2m1x2": E2M1X2, "e2m3x2": E2M3X2, "e3m2x2": E3M2X2, "e4m3x2": E4M3X2, "e5m2x2": E5M2X2, "f16x2": F16X2,
    "bf16x2": BF16X2, "ue8m0x2": UE8M0X2,
}  # fmt: skip


def between_floats() -> list[Row]:
    """Every pair of float formats, in every rounding, with `.ftz`, `.sat`, `.relu`, `.satfinite` if they exist."""
    rows = []
    for (to, target), (of, source) in [(t, s) for t in FLOATS.items() for s in FLOATS.items()]:
        if target.code_bits <= source.code_bits and target is not source:
            modes: tuple[str, ...] = MODES
        elif target is source:
            modes = ("rni", "rzi", "rmi", "rpi")
        else:
            modes = ("",)
        ftzs = ("", ".ftz") if F32 in (source, target) else ("",)
        sats = ("", ".sat") if BF16 not in (source, target) else ("",)
        for mode, ftz, sat in product_of(modes, ftzs, sats):
            form = f"cvt{'.' if mode else ''}{mode}{ftz}{sat}.{to}.{of}"
            if target is source:
                plain = partial(conversion.integral_value, fmt=source, rounding=mode[:2], ftz=bool(ftz))
                clamp = partial(rounding.saturate, source)
                # Rounding float64 to an integral value keeps the payload of a NaN on an H200; with .sat, NaN becomes
                # zero (ISA).
                agree = any_nan if source is F64 else None
                extra = {"agree": agree} if agree else {}
                reference = then(plain, clamp) if sat else plain
                rows.append(row(form, reference, [source], target, also=[conversion.integral_value], **extra))
                continue
            options: dict[str, Any] = {"rounding": mode or "rn", "ftz": bool(ftz), "sat": bool(sat)}
            reference = partial(convert, source=source, target=target, **options)
            rows.append(row(form, reference, [source], target))
    for (to, target), mode, (relu, satfinite) in [
        (t, m, r)
        for t in (("f16", F16), ("bf16", BF16))
        for m in ("rn", "rz")
        for r in product_of(("", ".relu"), ("", ".satfinite"))
    ]:
        options = {"rounding": mode, "relu": bool(relu), "satfinite": bool(satfinite)}
        single = partial(convert, source=F32, target=target, **options)
        if relu or satfinite:
            rows.append(row(f"cvt.{mode}{relu}{satfinite}.{to}.f32", single, [F32], target))
        pair = row(
            f"cvt.{mode}{relu}{satfinite}.{to}x2.f32",
            side_by_side(single),
            [F32, F32],
            PACKED[f"{to}x2"],
            also=[convert],
        )
        rows.append(pair)
    for mode, relu, satfinite in [
        *product_of(("rn", "rz"), ("", ".relu"), ("", ".satfinite")), ("rna", "", ""), ("rna", "", ".satfinite")
    ]:  # fmt: skip
        options = {"rounding": mode, "relu": bool(relu), "satfinite": bool(satfinite)}
        reference = partial(convert, source=F32, target=TF32, **options)
        target = "sm_100a" if satfinite else "sm_90a"
        # rna: an H200 adds half a unit in the last place and truncates. It does the same to a NaN, which may become
        # infinite or zero.
        on = (lambda x: ~is_nan(F32, x)) if mode == "rna" else None
        rows.append(row(f"cvt.{mode}{satfinite}{relu}.tf32.f32", reference, [F32], TF32, target=target, on=on))
    return rows


def with_integers() -> list[Row]:
    """Floats to integers and back, and integers to integers."""
    rows = []
    for (of, source), (to, target), mode in [
        (s, t, m) for s in FLOATS.items() for t in INTEGERS.items() for m in ("rni", "rzi", "rmi", "rpi")
    ]:
        for ftz in ("", ".ftz") if source is F32 else ("",):
            reference = partial(
                conversion.float_to_integer, source=source, target=target, rounding=mode[:2], ftz=bool(ftz)
            )
            rows.append(integer_row(f"cvt.{mode}{ftz}.{to}.{of}", reference, source, target))
    for (of, source), (to, target), mode in [
        (s, t, m) for s in INTEGERS.items() for t in FLOATS.items() for m in MODES
    ]:
        reference = partial(convert, source=source, target=target, rounding=mode)
        rows.append(integer_row(f"cvt.{mode}.{to}.{of}", reference, source, target))
    for (of, source), (to, target) in [(s, t) for s in INTEGERS.items() for t in INTEGERS.items()]:
        for sat in ("", ".sat") if saturates(source, target) else ("",):
            reference = partial(conversion.integer_to_integer, source=source, target=target, sat=bool(sat))
            rows.append(integer_row(f"cvt{sat}.{to}.{of}", reference, source, target))
    return rows


def saturates(source: Format, target: Format) -> bool:
    """Whether some value of the source is outside the target's range. Otherwise the ISA forbids .sat."""
    spare = target.code_bits - target.has_sign >= source.code_bits - source.has_sign
    return not (spare and (target.has_sign or not source.has_sign))


def integer_row(form: str, reference: Any, source: Format, target: Format) -> Row:
    """A row for a byte in a wider register. Conversions of bfloat16 do not accept a wider register, and get a byte."""
    text = None
    if BF16 in (source, target) and target.code_bits == 8:
        text = f"{{ .reg .b8 t; {form} t, $1; mov.b32 $0, {{t, t, t, t}}; }}"
    if BF16 in (source, target) and source.code_bits == 8:
        text = f"{{ .reg .b8 t, u; mov.b16 {{t, u}}, $1; {form} $0, t; }}"
    return row(form, reference, [source], target, text=text)


def narrow() -> list[Row]:
    """Packed narrow formats, both ways. For `.e2m1x2` the register is a byte."""
    rows = []
    for name, (mode, relu) in [
        (n, m) for n in ("e2m1x2", "e2m3x2", "e3m2x2", "e4m3x2", "e5m2x2") for m in product_of(("rn",), ("", ".relu"))
    ]:
        fmt = PACKED[name]
        options: dict[str, Any] = {"target": fmt.single, "satfinite": True, "relu": bool(relu)}
        form = f"cvt.{mode}{relu}.satfinite.{name}.f32"
        text = f"{{ .reg .b8 t; {form} t, $1, $2; mov.b32 $0, {{t, t, t, t}}; }}" if name == "e2m1x2" else None
        pair = side_by_side(partial(convert, source=F32, **options))
        rows.append(row(form, pair, [F32, F32], fmt, text=text, also=[convert], target="sm_100a"))
        for source, wide in (("f16x2", F16X2), ("bf16x2", BF16X2)):
            form = f"cvt.{mode}{relu}.satfinite.{name}.{source}"
            text = f"{{ .reg .b8 t; {form} t, $1; mov.b32 $0, {{t, t, t, t}}; }}" if name == "e2m1x2" else None
            reference = partial(convert, source=wide.single, **options)
            rows.append(row(form, reference, [wide], fmt, text=text, target="sm_100a"))
        form = f"cvt.{mode}{relu}.f16x2.{name}"
        text = "{ .reg .b8 t, u; mov.b16 {t, u}, $1; " + f"{form} $0, t; }}" if name == "e2m1x2" else None
        reference = partial(convert, source=fmt.single, target=F16, relu=bool(relu))
        rows.append(row(form, reference, [fmt], F16X2, text=text, target="sm_100a"))
    text = "{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $1, $2; mov.b32 $0, {t, t, t, t}; }"
    table = side_by_side(conversion.to_e2m1)
    rows.append(
        row("e2m1x2 by table", table, [F32, F32], E2M1X2, text=text, also=[conversion.to_e2m1], target="sm_100a")
    )
    for mode, satfinite in product_of(("rz", "rp"), ("", ".satfinite")):
        options = {"rounding": mode, "target": UE8M0X2.single, "satfinite": bool(satfinite)}
        pair = side_by_side(partial(convert, source=F32, **options))
        form = f"cvt.{mode}{satfinite}.ue8m0x2"
        rows.append(row(f"{form}.f32", pair, [F32, F32], UE8M0X2, also=[convert], target="sm_100a"))
        rows.append(
            row(f"{form}.bf16x2", partial(convert, source=BF16, **options), [BF16X2], UE8M0X2, target="sm_100a")
        )
    up = partial(convert, source=UE8M0X2.single, target=BF16)
    rows.append(row("cvt.rn.bf16x2.ue8m0x2", up, [UE8M0X2], BF16X2, target="sm_100a"))
    return rows


def drawn(target: Format, options: dict[str, bool]) -> Any:
    """A reference of `cvt.rs`: the sources, first the one for the top of the result, and then the random bits."""

    def convert_each(*codes: Tensor) -> Tensor:
        *sources, rbits = codes
        shares = stochastic.share(rbits, target=target).unbind(-1)
        found = [
            stochastic.convert(x, bits, target=target, **options)
            for x, bits in zip(reversed(sources), shares, strict=True)
        ]
        return torch.stack(found, -1).reshape(-1)

    convert_each.__module__ = "meeting"
    return convert_each


def stochastically() -> list[Row]:
    """Specification only: `cvt.rs` needs a Blackwell GPU."""
    rows = []
    pairs: list[tuple[str, Format, tuple[str, ...]]] = [
        ("f16x2", F16X2, ("", ".satfinite")),
        ("bf16x2", BF16X2, ("", ".satfinite")),
    ]
    fours = [("e4m3x4", E4M3X4), ("e5m2x4", E5M2X4), ("e2m3x4", E2M3X4), ("e3m2x4", E3M2X4), ("e2m1x4", E2M1X4)]
    for name, fmt, satfinites in [*pairs, *((n, f, (".satfinite",)) for n, f in fours)]:
        for relu, satfinite in product_of(("", ".relu"), satfinites):
            reference = drawn(fmt.single, {"relu": bool(relu), "satfinite": bool(satfinite)})
            form = f"cvt.rs{relu}{satfinite}.{name}.f32"
            count = fmt.codes_per_unit
            sources = ", ".join(f"${k + 1}" for k in range(count))
            sources = sources if count == 2 else f"{{{sources}}}"
            also = [stochastic.convert, stochastic.share, stochastic.random_bits]
            text = f"{form} $0, {sources}, ${count + 1};"
            rows.append(row(form, reference, [F32] * count + [U32], fmt, text=text, also=also, target="sm_100a"))
    return rows


def mixed() -> list[Row]:
    """uint8 to int32, and the maximum of that and a float, as in Triton's documentation."""
    text = "{{ cvt.u32.u8 $0, $2; .reg .f32 t; cvt.rn.f32.u8 t, $2; max{}.f32 $1, t, $3; }}"
    return [
        Row(
            f"u8 and max{nan}", text.format(nan), partial(integer_max.convert_and_max, nan=bool(nan)), (U8, F32),
            (I32, F32), frozenset({"integer_max.convert_and_max"}),
        )
        for nan in ("", ".NaN")
    ]  # fmt: skip


ROWS = between_floats() + with_integers() + narrow() + stochastically() + mixed()
