"""Short sequences of PTX that ptxas makes one machine instruction of, or joins in some other way.

They teach forms of machine instructions that no single form of PTX gives (`teaching`).
"""

from __future__ import annotations

from collections.abc import Iterator

_NamedSequence = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""A sequence: its name, its PTX, and the types of its outputs and of its inputs."""


def _addresses() -> Iterator[_NamedSequence]:
    """Addresses: a base and an index of 32 bits, widened and shifted."""
    for number in (1, 2, 3, 4):
        for kind, register in (("u64.u32", "b64"), ("s64.s32", "b64")):
            text = f"cvt.{kind} w, $2; shl.b64 w, w, {number}; add.u64 $0, $1, w;"
            yield f"address {kind} {number}", f"{{ .reg .b64 w; {text} }}", ("b64",), (register, "b32")


def _integer_extremes() -> Iterator[_NamedSequence]:
    """The largest and smallest of three integers, and of a sum or difference and a third."""
    for kind in ("u32", "s32"):
        for first, second in (("max", "max"), ("min", "min"), ("max", "min"), ("min", "max")):
            text = f"{first}.{kind} w, $1, $2; {second}.{kind} $0, w, $3;"
            yield f"{first} {second} {kind}", f"{{ .reg .b32 w; {text} }}", (kind,), (kind,) * 3
        for last in ("max", "min"):
            for operation in ("add", "sub"):
                text = f"{operation}.{kind} w, $1, $2; {last}.{kind} $0, w, $3;"
                yield f"{operation} {last} {kind}", f"{{ .reg .b32 w; {text} }}", (kind,), (kind,) * 3


def _shifts() -> Iterator[_NamedSequence]:
    """Shifts by a number taken modulo 32, and shifted numbers in an xor or a difference."""
    for shift, kind in (("shl.b32", "u32"), ("shr.u32", "u32"), ("shr.s32", "s32")):
        text = f"{{ .reg .b32 w; and.b32 w, $2, 31; {shift} $0, $1, w; }}"
        yield f"wrapped {shift}", text, (kind,), (kind, "u32")
        text = f"{{ .reg .b32 v, w; and.b32 w, $2, 31; {shift} v, $1, w; xor.b32 $0, v, $2; }}"
        yield f"wrapped {shift} and xor", text, (kind,), (kind, "u32")
    for kind in ("u32", "s32"):
        for by in (7, 16, 25):
            text = f"{{ .reg .b32 w; shr.{kind} w, $1, {by}; sub.u32 $0, w, $2; }}"
            yield f"shifted {kind} by {by} and sub", text, ("u32",), ("u32",) * 2


def _divisions_by_constants() -> Iterator[_NamedSequence]:
    """Quotients and remainders by a constant, which ptxas computes by products."""
    for number in (7, 100, 1000, 65537):
        for operation in ("div", "rem"):
            for kind in ("u32", "s32"):
                yield f"{operation}.{kind} by {number}", f"{operation}.{kind} $0, $1, {number};", (kind,), (kind,)


def _wide_constants() -> Iterator[_NamedSequence]:
    """Operations on 64 bits with a constant whose halves differ."""
    for number in (-1, 0x7FF8000000000000, -0x7FFFFFFFFFFFFFFF):
        yield f"add.s64 of {number}", f"add.s64 $0, $1, {number};", ("b64",), ("b64",)
        yield f"xor.b64 of {number}", f"xor.b64 $0, $1, {number};", ("b64",), ("b64",)
        yield f"max.s64 of {number}", f"max.s64 $0, $1, {number};", ("b64",), ("b64",)
        text = f"{{ .reg .pred p; setp.ne.u32 p, $2, 0; selp.b64 $0, $1, {number}, p; }}"
        yield f"selp.b64 of {number}", text, ("b64",), ("b64", "u32")


def _wide_carries() -> Iterator[_NamedSequence]:
    """Sums, differences and products of 64 and 128 bits, whose words are joined by carries."""
    for operation in ("add", "sub"):
        text = f"{operation}.cc.u64 $0, $2, $3; {operation}c.u64 $1, $4, $5;"
        yield f"{operation} with carry u64", text, ("b64",) * 2, ("b64",) * 4
        text = f"{{ .reg .b64 w; {operation}.cc.u64 w, $1, $2; {operation}c.u64 $0, $2, $1; }}"
        yield f"carry of {operation} u64", text, ("b64",), ("b64",) * 2
    for one, other in ((1, 2), (2, 1)):
        text = f"{{ .reg .b64 w; sub.cc.u64 w, ${one}, ${other}; subc.u64 $0, 0, 0; }}"
        yield f"borrow of {one} and {other} u64", text, ("b64",), ("b64",) * 2
        text = f"{{ .reg .b64 v, w; sub.cc.u64 v, $3, $4; subc.cc.u64 w, ${one}, ${other}; subc.u64 $0, 0, 0; }}"
        yield f"borrow of {one} and {other} u128", text, ("b64",), ("b64",) * 4
    for kind in ("u32", "u64"):
        text = f"{{ .reg .b{kind[1:]} w; mad.lo.cc.{kind} w, $1, $2, $3; madc.hi.{kind} $0, $1, $2, $4; }}"
        yield f"mad with carry {kind}", text, (f"b{kind[1:]}",), (f"b{kind[1:]}",) * 4
        text = f"{{ .reg .b{kind[1:]} w; mad.hi.cc.{kind} w, $1, $2, $3; addc.{kind} $0, w, $4; }}"
        yield f"carry of mad.hi {kind}", text, (f"b{kind[1:]}",), (f"b{kind[1:]}",) * 4


def _pairs_of_f32() -> Iterator[_NamedSequence]:
    """Operations on two f32 in a register: one number for both halves, and magnitudes."""
    for operation in ("add", "mul"):
        text = f"mov.b64 v, {{$1, $1}}; mov.b64 w, {{$2, $3}}; {operation}.rn.f32x2 $0, v, w;"
        yield f"{operation} f32x2 of one", f"{{ .reg .b64 v, w; {text} }}", ("b64",), ("f32",) * 3
        text = f"mov.b64 w, {{$2, $2}}; {operation}.rn.f32x2 $0, $1, w;"
        yield f"{operation} f32x2 by one", f"{{ .reg .b64 w; {text} }}", ("b64",), ("b64", "f32")
        text = f"mov.b64 {{p, q}}, $1; abs.f32 p, p; abs.f32 q, q; mov.b64 v, {{p, q}}; {operation}.rn.f32x2 $0, v, $2;"
        yield f"{operation} f32x2 of magnitudes", f"{{ .reg .b64 v; .reg .b32 p, q; {text} }}", ("b64",), ("b64",) * 2
    text = "mov.b64 w, {$3, $3}; fma.rn.f32x2 $0, $1, $2, w;"
    yield "fma f32x2 and one", f"{{ .reg .b64 w; {text} }}", ("b64",), ("b64", "b64", "f32")


def _upper_parts_of_products() -> Iterator[_NamedSequence]:
    """Shifts that leave a part of the upper half of a product of 64 bits."""
    for kind in ("u64", "s64"):
        text = f"{{ .reg .b64 w; mul.hi.{kind} w, $1, $2; shr.u64 $0, w, 32; }}"
        yield f"upper half of mul.hi.{kind}", text, ("b64",), ("b64",) * 2
        text = f"{{ .reg .b64 w; mad.hi.{kind} w, $1, $2, $3; shr.{kind} $0, w, 35; }}"
        yield f"upper part of mad.hi.{kind}", text, ("b64",), ("b64",) * 3
    text = "mad.lo.cc.u64 v, $1, $2, $3; madc.hi.u64 w, $1, $2, $3; shr.u64 w, w, 33; xor.b64 $0, v, w;"
    yield "upper part of madc.hi.u64", f"{{ .reg .b64 v, w; {text} }}", ("b64",), ("b64",) * 3
    text = "mad.lo.cc.u64 v, $1, $2, $3; madc.hi.u64 w, $1, $2, $4; shr.u64 w, w, 40; add.u64 $0, v, w;"
    yield "upper part of madc.hi.u64 and a fourth", f"{{ .reg .b64 v, w; {text} }}", ("b64",), ("b64",) * 4
    for operation in ("add", "sub"):  # the shifts above take away the bits in which a carry shows
        text = f"mul.lo.u64 v, $1, $2; mul.hi.u64 w, $1, $2; {operation}.cc.u64 v, v, $3; {operation}c.u64 w, w, $2;"
        text = f"{{ .reg .b64 v, w; {text} xor.b64 $0, v, w; }}"
        yield f"carry of mul.lo.u64 and {operation} to mul.hi.u64", text, ("b64",), ("b64",) * 3
    text = "shr.u64 x, $3, 62; mul.lo.u64 v, $1, $2; mul.hi.u64 w, $1, $2; sub.cc.u64 v, v, x; subc.u64 w, w, $2;"
    text = f"{{ .reg .b64 v, w, x; {text} xor.b64 $0, v, w; }}"  # x is often 0, whose difference does not borrow
    yield "carry of mul.lo.u64 and sub of bits to mul.hi.u64", text, ("b64",), ("b64",) * 3


def _signed_carries() -> Iterator[_NamedSequence]:
    """Carries into and out of the upper words of signed products, and out of shifted numbers."""
    text = "{ mad.lo.cc.u32 $0, $3, $4, $5; madc.hi.cc.s32 $1, $3, $4, $6; addc.u32 $2, $5, $6; }"
    yield "mad with two carries s32", text, ("b32",) * 3, ("b32",) * 4
    text = "{ mad.lo.cc.u32 $0, $3, $4, $5; madc.hi.cc.s32 $1, $3, $4, 0; addc.u32 $2, $5, 0; }"
    yield "mad and carry s32", text, ("b32",) * 3, ("b32",) * 3
    for by in (5, 12, 25):
        text = f"{{ .reg .b32 w; shr.s32 w, $2, {by}; add.cc.u32 $0, w, $3; addc.u32 $1, $3, 0; }}"
        yield f"shifted s32 by {by} and add with carry", text, ("u32",) * 2, ("u32",) * 2


def _carries_of_wide_products() -> Iterator[_NamedSequence]:
    """Sums and differences of a product and 64 bits, whose carry out is kept, after another carry or without one."""
    for kind in ("u32", "s32"):
        for operation in ("add", "sub"):
            text = f"mul.wide.{kind} w, $2, $3; {operation}.cc.u64 $0, w, $4; {operation}c.u64 $1, $5, 0;"
            yield f"carry of mul.wide.{kind} and {operation}", f"{{ .reg .b64 w; {text} }}", ("b64",) * 2, (
                "b32", "b32", "b64", "b64")  # fmt: skip
            text = f"mul.wide.{kind} w, $3, $4; {operation}.cc.u64 $0, $5, $6; {operation}c.cc.u64 $1, w, $7;"
            text = f"{{ .reg .b64 w; {text} {operation}c.u64 $2, $5, 0; }}"
            yield f"carries of mul.wide.{kind} and {operation}", text, ("b64",) * 3, ("b32",) * 2 + ("b64",) * 3
            text = f"mul.wide.{kind} w, $1, $2; {operation}.cc.u64 v, $3, $4; {operation}c.cc.u64 v, w, $5;"
            text = f"{{ .reg .b64 v, w; {text} {operation}c.u64 $0, $4, $3; }}"
            yield f"last carry of mul.wide.{kind} and {operation}", text, ("b64",), ("b32",) * 2 + ("b64",) * 3


def _shifted_sums() -> Iterator[_NamedSequence]:
    """Sums and differences of shifted numbers, and of products, with carries in and out."""
    for by in (4, 12, 28):
        for operation in ("add", "sub"):
            text = f"{operation}.cc.u32 $0, $2, $3; shl.b32 w, $4, {by}; {operation}c.u32 $1, w, $5;"
            yield f"{operation} of shl {by} with carry", f"{{ .reg .b32 w; {text} }}", ("b32",) * 2, ("b32",) * 4
            text = f"{operation}.cc.u32 $0, $3, $4; shl.b32 w, $5, {by}; {operation}c.cc.u32 $1, w, $6;"
            text = f"{text} {operation}c.u32 $2, $3, $4;"
            yield f"{operation} of shl {by} with carries", f"{{ .reg .b32 w; {text} }}", ("b32",) * 3, ("b32",) * 4
            text = f"cvt.u64.u32 w, $2; shl.b64 w, w, {by}; {operation}.cc.u64 $0, w, $3; {operation}c.u64 $1, $3, 0;"
            yield f"{operation} of shl u32 {by} and carry", f"{{ .reg .b64 w; {text} }}", ("b64",) * 2, ("b32", "b64")
            text = f"shr.s32 w, $3, {by}; {operation}.cc.u32 $0, $4, $5; {operation}c.cc.u32 $1, w, $6;"
            text = f"{text} {operation}c.u32 $2, $4, 0;"
            yield f"{operation} of shr s32 {by} with carries", f"{{ .reg .b32 w; {text} }}", ("b32",) * 3, ("b32",) * 4
        text = f"cvt.u64.u32 w, $1; shl.b64 w, w, {by}; sub.u64 $0, w, $2;"
        yield f"sub of shl u32 {by}", f"{{ .reg .b64 w; {text} }}", ("b64",), ("b32", "b64")
        for one, other in (("w", "$2"), ("$2", "w")):
            text = f"shl.b32 w, $1, {by}; sub.cc.u32 x, {one}, {other}; subc.u32 $0, $3, $4;"
            yield f"borrow of {one}-{other}, w shl {by}", f"{{ .reg .b32 w, x; {text} }}", ("b32",), ("b32",) * 4
    text = "mul.wide.u32 w, $1, $2; sub.u64 $0, w, $3;"
    yield "mul.wide.u32 and sub", f"{{ .reg .b64 w; {text} }}", ("b64",), ("b32", "b32", "b64")
    text = "shr.u32 v, $1, 3; mul.wide.u32 w, v, 12345; sub.u64 $0, w, $2;"
    yield "mul.wide.u32 by 12345 and sub", f"{{ .reg .b32 v; .reg .b64 w; {text} }}", ("b64",), ("b32", "b64")
    for kind in ("u32", "s32"):
        for operation in ("add", "sub"):
            for low in ("u32", "u64"):
                text = f"mul.wide.{kind} w, $4, $5; {operation}.cc.{low} $0, $2, $3; {operation}c.u64 $1, w, $6;"
                yield f"mul.wide.{kind} and {operation} with carry {low}", f"{{ .reg .b64 w; {text} }}", (
                    f"b{low[1:]}", "b64"), (f"b{low[1:]}",) * 2 + ("b32", "b32", "b64")  # fmt: skip
    text = "mul.wide.u32 w, $2, $3; sub.cc.u64 $0, w, $4; subc.u64 $1, $4, 0;"
    yield "mul.wide.u32 and sub with borrow", f"{{ .reg .b64 w; {text} }}", ("b64",) * 2, ("b32", "b32", "b64")


def _three_halves() -> Iterator[_NamedSequence]:
    """The largest and the smallest of three numbers, in each half of a register."""
    for operation in ("max", "min"):
        for kind in ("u16x2", "s16x2", "relu.s16x2", "relu.s32", "f16x2", "NaN.f16x2", "bf16x2", "NaN.bf16x2"):
            text = f"{operation}.{kind} w, $1, $2; {operation}.{kind} $0, w, $3;"
            yield f"{operation} of three {kind}", f"{{ .reg .b32 w; {text} }}", ("b32",), ("b32",) * 3
            text = f"{operation}.{kind} w, $2, $3; {operation}.{kind} $0, $1, w;"
            yield f"{operation} of one and two {kind}", f"{{ .reg .b32 w; {text} }}", ("b32",), ("b32",) * 3
        for kind in ("f16x2", "NaN.f16x2", "bf16x2", "NaN.bf16x2"):
            of = kind.split(".")[-1]
            for sign in ("neg", "abs"):
                text = f"{sign}.{of} v, $1; {operation}.{kind} w, $2, v; {operation}.{kind} $0, w, $3;"
                yield f"{operation} of {sign} of three {kind}", f"{{ .reg .b32 v, w; {text} }}", ("b32",), ("b32",) * 3
            text = (
                f"mov.b32 {{x, y}}, $1; mov.b32 v, {{y, y}}; {operation}.{kind} w, $2, v; {operation}.{kind} $0, w, $3;"
            )
            text = f"{{ .reg .b16 x, y; .reg .b32 v, w; {text} }}"
            yield f"{operation} of a half of three {kind}", text, ("b32",), ("b32",) * 3


def _negated_and_rounded() -> Iterator[_NamedSequence]:
    """Conversions of an f32 that was rounded to an integer, or negated."""
    for rounding in ("rni", "rzi", "rmi", "rpi"):
        for kind in ("s64", "u64"):
            for flush in ("", ".ftz"):
                text = f"cvt.{rounding}.ftz.f32.f32 w, $1; cvt.rzi{flush}.{kind}.f32 $0, w;"
                yield f"{kind} of {rounding}, rzi{flush}", f"{{ .reg .f32 w; {text} }}", ("b64",), ("f32",)
    for rounding in ("rn", "rz"):
        text = f"neg.f32 w, $1; cvt.{rounding}.bf16.f32 v, w; cvt.u32.u16 $0, v;"
        yield f"bf16 by {rounding} of neg.f32", f"{{ .reg .b16 v; .reg .f32 w; {text} }}", ("b32",), ("f32",)


def _joined_predicates() -> Iterator[_NamedSequence]:
    """Comparisons and logic whose result is joined with a predicate."""
    for join in ("or", "xor"):
        for comparison in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
            text = f"setp.ge.u32 p, $1, 7; set.{comparison}.{join}.f32.f32 $0, $2, $3, p;"
            yield f"set {comparison} {join} f32", f"{{ .reg .pred p; {text} }}", ("f32",), ("u32", "f32", "f32")
    for join in ("or", "and"):
        for table in (0x96, 0x2A):
            text = f"setp.ge.u32 q, $1, 7; lop3.{join}.b32 $0|p, $2, $3, $4, {table}, q;"
            yield f"lop3 {table} {join}", f"{{ .reg .pred p, q; {text} }}", ("b32",), ("u32", "b32", "b32", "b32")


def _converted_halves() -> Iterator[_NamedSequence]:
    """Conversions of one half of a register."""
    for half in ("low", "high"):
        chosen = "mov.b32 {v, w}, $1;" if half == "low" else "mov.b32 {w, v}, $1;"
        for conversion in ("f32.u16", "f32.s16", "f16.u16", "f16.s16"):
            to = conversion[:3]
            text = f"cvt.rn.{conversion} x, v; mov.b{to[1:]} y, x;"
            last = "mov.b32 $0, y;" if to == "f32" else "cvt.u32.u16 $0, y;"
            registers = f".reg .b16 v, w; .reg .b{to[1:]} x, y;"
            yield f"{half} half {conversion}", f"{{ {registers} {chosen} {text} {last} }}", ("b32",), ("b32",)
        text = f"{{ .reg .b16 v, w, x; {chosen} cvt.rn.bf16.f16 x, v; cvt.u32.u16 $0, x; }}"
        yield f"{half} half bf16.f16", text, ("b32",), ("b32",)


def _two_pairs_of_fp8_and_fp6() -> Iterator[_NamedSequence]:
    """Two conversions to pairs of e5m2, e4m3, e2m3 or e3m2 in one register, and four to pairs of e2m1."""
    for name in ("e5m2x2", "e4m3x2"):
        pairs = f"cvt.rn.satfinite.{name}.f32 v, $1, $2; cvt.rn.satfinite.{name}.f32 w, $3, $4;"
        text = f"{{ .reg .b16 v, w; {pairs} mov.b32 $0, {{v, w}}; }}"
        yield f"two {name}", text, ("b32",), ("f32",) * 4
        for kind in ("f16x2", "bf16x2"):
            for relu in ("", ".relu"):
                yield from _two_narrow(name, kind, relu)
    for relu in ("", ".relu"):
        for kind in ("f16x2", "bf16x2"):
            for name in ("e2m3x2", "e3m2x2"):
                yield from _two_narrow(name, kind, relu)
            yield _four_e2m1(f"{kind}{relu}", f"cvt.rn.satfinite{relu}.e2m1x2.{kind} {{to}}, {{of}};", "b32", "0123")
            yield _four_e2m1(f"{kind}{relu}", f"cvt.rn.satfinite{relu}.e2m1x2.{kind} {{to}}, {{of}};", "b32", "3120")
        for order in ("0123", "3120"):
            yield _four_e2m1(f"f32{relu}", f"cvt.rn.satfinite{relu}.e2m1x2.f32 {{to}}, $1, {{of}};", "f32", order)


def _two_narrow(name: str, kind: str, relu: str) -> Iterator[_NamedSequence]:
    """Two registers of two elements each, converted to two narrow numbers each and joined, and with an xor behind."""
    pairs = " ".join(f"cvt.rn.satfinite{relu}.{name}.{kind} {to}, ${n};" for n, to in ((1, "v"), (2, "w")))
    text = f"{{ .reg .b16 v, w; {pairs} mov.b32 $0, {{v, w}}; }}"
    yield f"two {name} from {kind}{relu}", text, ("b32",), ("b32",) * 2
    text = f"{{ .reg .b16 v, w; .reg .b32 x; {pairs} mov.b32 x, {{w, v}}; xor.b32 $0, x, $1; }}"
    yield f"two {name} from {kind}{relu} and xor", text, ("b32",), ("b32",) * 2


def _four_e2m1(of: str, conversion: str, kind: str, order: str) -> _NamedSequence:
    """Four conversions to pairs of e2m1, whose codes fill a register in some order of the inputs."""
    each = " ".join(conversion.format(to=f"c{k}", of=f"${int(n) + 1}") for k, n in enumerate(order))
    text = f"{{ .reg .b8 c0, c1, c2, c3; {each} mov.b32 $0, {{c0, c1, c2, c3}}; }}"
    return f"four e2m1x2 from {of} as {order}", text, ("b32",), (kind,) * 4


def _two_pairs_of_ue8m0() -> Iterator[_NamedSequence]:
    """Two conversions to pairs of ue8m0 in one register, and with an xor behind."""
    for rounding in ("rz", "rp", "rz.satfinite", "rp.satfinite"):
        for kind, given in (("bf16x2", ("$1", "$2")), ("f32", ("$1, $2", "$3, $4"))):
            pairs = " ".join(f"cvt.{rounding}.ue8m0x2.{kind} {to}, {of};" for to, of in zip("vw", given, strict=True))
            read = ("b32",) * 2 if kind == "bf16x2" else ("f32",) * 4
            yield f"two ue8m0x2 by {rounding} from {kind}", f"{{ .reg .b16 v, w; {pairs} mov.b32 $0, {{v, w}}; }}", (
                "b32",), read  # fmt: skip
            text = f"{{ .reg .b16 v, w; .reg .b32 x; {pairs} mov.b32 x, {{w, v}}; xor.b32 $0, x, $1; }}"
            yield f"two ue8m0x2 by {rounding} from {kind} and xor", text, ("b32",), read


def _saturated_differences() -> Iterator[_NamedSequence]:
    """Differences of four bytes and a constant, saturated."""
    for kind in ("u8x4", "s8x4"):
        for constant in ("0x80808080", "0x80007f01"):
            text = f"{{ .reg .b32 w; mov.b32 w, {constant}; sub.sat.{kind} $0, $1, w; }}"
            yield f"sub.sat.{kind} of {constant}", text, ("b32",), ("b32",)


def _two_pairs_of_s2f6() -> Iterator[_NamedSequence]:
    """Two conversions to pairs of s2f6 in one register, with and without a scale."""
    for relu in ("", ".relu"):
        for kind, given in (("bf16x2", ("$1", "$2")), ("f32", ("$1, $2", "$3, $4"))):
            for scaled, scale in (("", ""), (".scaled::n2::ue8m0", ", s")):
                operation = f"cvt.rn.satfinite{relu}{scaled}.s2f6x2.{kind}"
                pairs = " ".join(f"{operation} {to}, {of}{scale};" for to, of in zip("vw", given, strict=True))
                read = ("b32",) * 2 if kind == "bf16x2" else ("f32",) * 4
                taken = f"cvt.u16.u32 s, ${len(read) + 1};" if scaled else ""
                read = (*read, "b32") if scaled else read
                text = f"{{ .reg .b16 s, v, w; {taken} {pairs} mov.b32 $0, {{v, w}}; }}"
                yield f"two {'scaled ' if scaled else ''}s2f6x2 from {kind}{relu}", text, ("b32",), read


def _converted_and_packed() -> Iterator[_NamedSequence]:
    """Two numbers converted to integers, clamped to bytes and packed."""
    for sign in ("u8", "s8"):
        for rounding in ("rni", "rzi"):
            convert = f"cvt.{rounding}.s32.f32 v, $1; cvt.{rounding}.s32.f32 w, $2;"
            text = f"{{ .reg .b32 v, w; {convert} cvt.pack.sat.{sign}.s32.b32 $0, v, w, $3; }}"
            yield f"cvt.{rounding} and cvt.pack {sign}", text, ("b32",), ("f32", "f32", "b32")


def _extremes_with_predicates() -> Iterator[_NamedSequence]:
    """The larger and the smaller of two numbers, in each half of a register, and which halves are the first one's."""
    for operation in ("max", "min"):
        for kind in ("s16", "u16"):
            text = f"{operation}.{kind}x2 d, $1, $2; mov.b32 {{dl, dh}}, d; mov.b32 {{al, ah}}, $1;"
            text += f"setp.eq.{kind} l, dl, al; setp.eq.{kind} h, dh, ah; selp.b32 x, 0x9E3779B1, 0, h;"
            text += "selp.b32 y, 0x85EBCA6B, 0, l; add.u32 $0, d, x; add.u32 $0, $0, y;"
            registers = ".reg .pred h, l; .reg .b16 dl, dh, al, ah; .reg .b32 d, x, y;"
            yield f"{operation}.{kind}x2 with predicates", f"{{ {registers} {text} }}", ("b32",), ("b32",) * 2


def _borrows_of_shifted_numbers() -> Iterator[_NamedSequence]:
    """Borrows of a difference whose first number is shifted, and results that are kept beside their carry."""
    for by in (5, 16, 25):
        for kind in ("u32", "s32"):
            text = f"shr.{kind} w, $1, {by}; sub.cc.u32 x, w, $2; subc.u32 $0, $3, $4;"
            yield f"borrow of shr {kind} {by}", f"{{ .reg .b32 w, x; {text} }}", ("b32",), ("b32",) * 4
            text = f"shr.{kind} w, $2, {by}; sub.cc.u32 $0, w, $3; subc.u32 $1, $4, $5;"
            yield f"difference and borrow of shr {kind} {by}", f"{{ .reg .b32 w; {text} }}", ("b32",) * 2, ("b32",) * 4
        text = f"shr.u32 w, $2, {by}; add.cc.u32 $0, w, $3; addc.u32 $1, $4, $5;"
        yield f"sum and carry of shr u32 {by}", f"{{ .reg .b32 w; {text} }}", ("b32",) * 2, ("b32",) * 4
        text = f"shl.b32 w, $2, {by}; sub.cc.u32 $0, w, $3; subc.u32 $1, $4, $5;"
        yield f"difference and borrow of shl b32 {by}", f"{{ .reg .b32 w; {text} }}", ("b32",) * 2, ("b32",) * 4
    for operation in ("add", "sub"):  # each word is kept, and so is each carry
        text = f"{operation}.cc.u64 $0, $3, $4; {operation}c.cc.u64 $1, $4, $5; {operation}c.u64 $2, $5, $3;"
        yield f"{operation} of three u64 and their carries", text, ("b64",) * 3, ("b64",) * 3


def _between_others() -> Iterator[_NamedSequence]:
    """Instructions whose operand is a result, and whose result is an operand: all in uniform registers, if one is."""
    kinds = {"bfind.s32": "b32", "bfind.shiftamt.s32": "b32", "add.sat.s32": "b32", "sub.sat.s32": "b32"}
    kinds |= {f"{operation}.{kind}": f"b{kind[1:]}" for operation in ("max", "min") for kind in ("s64", "u64", "s32")}
    for rounding in ("rn", "rz", "rm", "rp"):
        kinds |= {f"cvt.{rounding}.f32.{kind}": "b32" for kind in ("s32", "u32")}
        kinds |= {f"cvt.{rounding}i.{kind}.f32": "b32" for kind in ("s32", "u32")}
    for form, kind in kinds.items():
        second = "" if form.startswith(("bfind", "cvt")) else ", $2"
        text = f"xor.{kind} v, $1, $2; {form} w, v{second}; "
        last = f"sub.u{kind[1:]} $0, w, $2;"
        yield f"{form} between others", f"{{ .reg .{kind} v, w; {text} {last} }}", (kind,), (kind,) * 2
        if kind == "b32":
            text = f"{{ .reg .b32 v, w; {text} cvt.rn.sat.f32.s32 $0, w; }}"
            yield f"{form} and saturated f32 between others", text, ("f32",), (kind,) * 2


def _exchanged_pairs_of_f32() -> Iterator[_NamedSequence]:
    """Operations on two f32 in a register, of which one pair has its halves exchanged."""
    exchanged = "mov.b64 {{x, y}}, {}; mov.b64 w, {{y, x}};"
    for rounding in ("rn", "rz", "rm", "rp"):
        for flush in ("", ".ftz"):
            how = f"{rounding}{flush}.f32x2"
            for operation in ("add", "mul"):
                for number, of in ((1, "itself"), (2, "another")):
                    text = f"{exchanged.format(f'${number}')} {operation}.{how} $0, $1, w;"
                    yield f"{operation}.{how} of {of} exchanged", f"{{ .reg .b32 x, y; .reg .b64 w; {text} }}", (
                        "b64",), ("b64",) * number  # fmt: skip
            for number, terms in ((2, "$1, w, $3"), (3, "$1, $2, w")):
                text = f"{exchanged.format(f'${number}')} fma.{how} $0, {terms};"
                yield f"fma.{how} with term {number} exchanged", f"{{ .reg .b32 x, y; .reg .b64 w; {text} }}", (
                    "b64",), ("b64",) * 3  # fmt: skip


def _constant_pairs_of_f32() -> Iterator[_NamedSequence]:
    """Operations on two f32 in a register and two constants of different signs, also with exchanged halves."""
    for constant in ("0xC0490FDB3F8CCCCD", "0x3FB504F3BF317218"):
        for rounding in ("rn", "rz", "rm", "rp"):
            for flush in ("", ".ftz"):
                how = f"{rounding}{flush}.f32x2"
                for made, order in (("", "{x, y}"), (" exchanged", "{y, x}")):
                    first = f"mov.b64 {{x, y}}, $1; mov.b64 w, {order}; mov.b64 c, {constant};"
                    for operation, terms in (
                        ("add", "w, c"),
                        ("mul", "w, c"),
                        ("fma", "w, $2, c"),
                        ("fma", "w, c, $2"),
                    ):
                        text = f"{{ .reg .b32 x, y; .reg .b64 c, w; {first} {operation}.{how} $0, {terms}; }}"
                        name = f"{operation}.{how}{made} of {terms}, c {constant}"
                        yield name, text, ("b64",), ("b64",) * (1 + (operation == "fma"))


def _constant_pairs() -> Iterator[_NamedSequence]:
    """Conversions of a constant pair to narrow numbers, alone and beside those of another pair."""
    for constant in ("0x3E003C00", "0xC2F77B81"):
        for kind in ("f16x2", "bf16x2"):
            for name in ("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "e2m1x2"):
                bits = "8" if name == "e2m1x2" else "16"
                for relu in ("", ".relu"):
                    convert = f"cvt.rn.satfinite{relu}.{name}.{kind}"
                    text = f"mov.b32 c, {constant}; {convert} v, c; cvt.u32.u{bits} w, v; xor.b32 $0, w, $1;"
                    text = f"{{ .reg .b{bits} v; .reg .b32 c, w; {text} }}"
                    yield f"{name}{relu} of {kind} {constant}", text, ("b32",), ("b32",)
                    if name in ("e4m3x2", "e5m2x2"):
                        text = f"mov.b32 c, {constant}; {convert} v, c; {convert} w, $1; mov.b32 $0, {{v, w}};"
                        text = f"{{ .reg .b16 v, w; .reg .b32 c; {text} }}"
                        yield f"{name}{relu} of {kind} {constant} and another", text, ("b32",), ("b32",)
        for rounding in ("rz", "rp", "rz.satfinite", "rp.satfinite"):
            text = f"mov.b32 c, {constant}; cvt.{rounding}.ue8m0x2.bf16x2 v, c; cvt.u32.u16 w, v; xor.b32 $0, w, $1;"
            text = f"{{ .reg .b16 v; .reg .b32 c, w; {text} }}"
            yield f"ue8m0x2 by {rounding} of bf16x2 {constant}", text, ("b32",), ("b32",)


def _lower_predicates() -> Iterator[_NamedSequence]:
    """The larger and the smaller of two numbers, in each half of a register, and whether the lower one is the first
    one's: ptxas gives both predicates one register."""
    for operation in ("max", "min"):
        for kind in ("s16", "u16"):
            text = f"{operation}.{kind}x2 d, $1, $2; mov.b32 {{dl, dh}}, d; mov.b32 {{al, ah}}, $1;"
            text += f"setp.eq.{kind} l, dl, al; selp.b32 x, 0x9E3779B1, 0, l; add.u32 $0, d, x;"
            registers = ".reg .pred l; .reg .b16 dl, dh, al, ah; .reg .b32 d, x;"
            yield f"{operation}.{kind}x2 with the lower predicate", f"{{ {registers} {text} }}", ("b32",), ("b32",) * 2


def _negated_words() -> Iterator[_NamedSequence]:
    """Negated numbers of 64 bits: in uniform registers, if one is."""
    text = "abs.s64 v, $1; abs.s64 w, $2; add.s64 $0, v, w;"
    yield "two abs.s64 between others", f"{{ .reg .b64 v, w; {text} }}", ("b64",), ("b64",) * 2
    text = "setp.lt.s64 p, $1, 0; neg.s64 w, $2; selp.b64 w, w, $2, p; add.u64 $0, w, $1;"
    yield "a chosen neg.s64 between others", f"{{ .reg .pred p; .reg .b64 w; {text} }}", ("b64",), ("b64",) * 2


def _upper_words_of_differences() -> Iterator[_NamedSequence]:
    """The upper word of a product of 64 bits and a sum or a difference; and a carry to a sum with a product."""
    for kind in ("s32", "u32"):
        for operation in ("add", "sub"):
            text = f"mul.wide.{kind} w, $1, $2; {operation}.u64 w, w, $3; mov.b64 {{l, $0}}, w;"
            text = f"{{ .reg .b32 l; .reg .b64 w; {text} }}"
            yield f"upper word of mul.wide.{kind} and {operation}", text, ("b32",), ("b32", "b32", "b64")
            widened = f"cvt.{kind[0]}64.{kind} v, $3; {operation}.u64 w, w, v;"
            text = f"{{ .reg .b32 l; .reg .b64 v, w; mul.wide.{kind} w, $1, $2; {widened} mov.b64 {{l, $0}}, w; }}"
            yield f"upper word of mul.wide.{kind} and {operation} of a word", text, ("b32",), ("b32",) * 3
    for operation in ("add", "sub"):
        for by in (4, 5):
            text = f"{operation}.cc.u32 v, $1, $2; mul.lo.u32 w, $3, {by}; {operation}c.u32 $0, w, $2;"
            yield f"carry of {operation} to a word times {by}", f"{{ .reg .b32 v, w; {text} }}", ("b32",), ("b32",) * 3


def _packed_onto_counters() -> Iterator[_NamedSequence]:
    """Two numbers packed onto the counter of a loop, which is a constant once the loop is unrolled.

    ptxas keeps the constant in the upper half of a register, beside half of something else.
    """
    for sign in ("s8", "u8"):
        for counter in ("c", "n"):
            for start, step in ((0, 1), (0x12345678, 0x01010101)):
                end = start + 3 * step
                loop = f"mov.b32 n, {start}; and.b32 m, {end}, {end | 1 << 30}; L: mov.b32 c, n; add.u32 n, n, {step}; "
                loop += "setp.lt.u32 p, n, m; @p bra L; cvt.u16.u32 h, $1; cvt.s32.u16 f, h;"
                for second in ("$2", counter):
                    text = f"{loop} cvt.pack.sat.{sign}.s32.b32 $0, f, {second}, {counter};"
                    text = f"{{ .reg .pred p; .reg .b16 h; .reg .b32 c, f, m, n; {text} }}"
                    yield f"cvt.pack {sign} of {second} onto {counter} from {start:#x}", text, ("b32",), ("b32",) * 2


def _distances_from_zero() -> Iterator[_NamedSequence]:
    """Distances of the bytes of a constant from 0, which is known late: in uniform registers."""
    for constant in ("0x01FF7F30", "0x80FF0001"):
        for more in ("", ".add"):
            text = f"vabsdiff4.u32.u32.u32{more} w, v, x, $1; xor.b32 $0, w, $2;"
            text = f"shr.u32 v, $1, 32; mov.b32 x, {constant}; {text}"
            yield f"vabsdiff4.u32{more} of 0 and {constant}", f"{{ .reg .b32 v, w, x; {text} }}", ("b32",), ("b32",) * 2


_GROUPS = (
    _addresses,
    _integer_extremes,
    _shifts,
    _divisions_by_constants,
    _wide_constants,
    _wide_carries,
    _pairs_of_f32,
    _upper_parts_of_products,
    _signed_carries,
    _carries_of_wide_products,
    _shifted_sums,
    _three_halves,
    _negated_and_rounded,
    _joined_predicates,
    _converted_halves,
    _two_pairs_of_fp8_and_fp6,
    _two_pairs_of_ue8m0,
    _saturated_differences,
    _two_pairs_of_s2f6,
    _converted_and_packed,
    _extremes_with_predicates,
    _borrows_of_shifted_numbers,
    _between_others,
    _exchanged_pairs_of_f32,
    _constant_pairs_of_f32,
    _constant_pairs,
    _lower_predicates,
    _negated_words,
    _upper_words_of_differences,
    _packed_onto_counters,
    _distances_from_zero,
)
"""The groups, in the order in which their kernels are assembled."""

SEQUENCES = {name: (text, outputs, inputs) for group in _GROUPS for name, text, outputs, inputs in group()}
"""Each sequence by its name: its PTX, with the types of its outputs and of its inputs."""
