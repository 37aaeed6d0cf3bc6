"""Cases with mistakes that only a sweep over all inputs is sure to find."""

from ptxdiff import Case, Meets, absolute, asm, exact, magnitude, ulp
from ptxdiff.references import arithmetic, dequantise, exponential, faithful, reciprocal
from ptxdiff.references.formats import F16, F16X2, F32, U8, U32


def product(a, b):
    return arithmetic.mul(a, b)


def small_product(a, b):
    return arithmetic.mul(a, b, fmt=F16)


def single(instruction, **options):
    return asm(instruction, "=&r,r", pack=1, **options)


def when(condition, change):
    """A reciprocal with another result where a predicate on the input holds."""
    return f"{{ .reg .pred p; rcp.rn.f32 $0, $1; setp.{condition}; @p {change}; }}"


reciprocals = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=reciprocal.correctly_rounded,
    nan="canonical",
    variants={
        "right": single("rcp.rn.f32 $0, $1;"),
        "one ulp at one input": single(when("eq.b32 p, $1, 0x40490fdb", "add.u32 $0, $0, 1")),
        "sign of one zero": single(when("eq.b32 p, $1, 0xff800000", "mov.b32 $0, 0")),
        "another NaN": single(when("eq.b32 p, $1, 0x7fc00001", "mov.b32 $0, 0xffc00000")),
        "dropped ftz": single("rcp.approx.f32 $0, $1;", match=ulp(1), ftz="required"),
        "approximate, ftz": single("rcp.approx.ftz.f32 $0, $1;", match=ulp(1), ftz="required"),
    },
)

powers = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=exponential.ex2,
    variants={"right": single("ex2.approx.ftz.f32 $0, $1;", match=ulp(2), ftz="required")},
)


# Most inputs lie outside the domain, and differ there by design: the variant gives 0.
ONE_TO_TWO = magnitude("x", 1, 1.999)
domains = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=exponential.ex2,
    variants={
        name: single(
            f"{{ .reg .pred p, below; .reg .f32 t; ex2.approx.ftz.f32 $0, $1; abs.f32 t, $1; "
            f"setp.lt.f32 below, t, 0f3F800000; setp.gt.and.f32 below, t, 0f00000000, below; @below mov.b32 $0, 0; "
            f"setp.eq.b32 p, $1, {place}; @p {change}; }}",
            match=ulp(2, on=ONE_TO_TWO), ftz="required",
        )
        for name, place, change in (
            ("right", "0x3f800000", "add.u32 $0, $0, 0"),
            ("wrong at one input", "0xbf8abcde", "add.u32 $0, $0, 4"),
            ("another sign at one input", "0x3fc00001", "xor.b32 $0, $0, 0x80000000"),
            ("no NaN at one input", "0x7f800123", "mov.b32 $0, 0x3f800000"),
        )
    },
)  # fmt: skip


meeting = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=exponential.ex2,
    variants={
        name: single(
            "{ .reg .pred p; ex2.approx.ftz.f32 $0, $1; and.b32 $0, $0, 0xfffffffe; "
            f"setp.eq.b32 p, $1, 0x3fabcdef; @p xor.b32 $0, $0, {fault}; }}",
            reference=lambda x: exponential.ex2(x) & ~1, match=ulp(100), ftz="required", nan="any",
            meets=Meets(ONE_TO_TWO, ulp(3)),
        )
        for name, fault in (("right", "0"), ("wrong at one input", "0x20"))
    },
)  # fmt: skip

# Under this bound nearly all results are many ulp from the reference, so every row has distances to count.
far = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=faithful.erf,
    variants={
        name: single(
            "{ .reg .pred p; .reg .f32 t; mul.rn.f32 t, $1, 0f3F906EBB; tanh.approx.f32 $0, t; "
            f"setp.eq.b32 p, $1, {place}; @p {change}; }}",
            match=absolute(0.05), nan="any",
        )
        for name, place, change in (
            ("right", "0", "mov.b32 $0, $0"),
            ("wrong at one input", "0x40000001", "mov.b32 $0, 0x3f600000"),
            ("infinite at one input", "0x3f000001", "mov.b32 $0, 0x7f800000"),
        )
    },
)  # fmt: skip

products = Case(
    inputs={"a": F16, "b": F16},
    outputs={"y": F16},
    reference=small_product,
    variants={"right": asm("mul.rn.f16x2 $0, $1, $2;", "=r,r,r", pack=2, match=exact())},
)

# The inputs have 64 bits; "seldom" is wrong for one product in 2^20.
sampled = Case(
    inputs={"a": F32, "b": F32},
    outputs={"y": F32},
    reference=product,
    variants={
        "right": asm("mul.rn.f32 $0, $1, $2;", "=&r,r,r", pack=1),
        "seldom": asm(
            "{ .reg .pred p; .reg .b32 t; mul.rn.f32 $0, $1, $2; xor.b32 t, $1, $2; and.b32 t, t, 0xfffff;"
            " setp.eq.b32 p, t, 0x12345; @p xor.b32 $0, $0, 1; }",
            "=&r,r,r",
            pack=1,
        ),
    },
)


def fused(a, b, c):
    return arithmetic.fma(a, b, c, fmt=F16)


# 48 bits of inputs: `ptxdiff sweep tests/gpu/swept_cases.py::triples::f16x2 --journal fma.jsonl` tries them all.
triples = Case(
    inputs={"a": F16, "b": F16, "c": F16},
    outputs={"d": F16},
    reference=fused,
    variants={"f16x2": asm("fma.rn.f16x2 $0, $1, $2, $3;", "=r,r,r,r", pack=2)},
)


def nibbles(q):
    """Eight 4-bit numbers minus 8 as four outputs of two."""
    return dequantise.interleaved(dequantise.integers(q, bits=4, width=32, zero=8), groups=4)


UNPACKED = "\n".join(
    f"shr.u32 t, $4, {4 * k}; lop3.b32 ${k}, t, 0x000f000f, 0x64006400, 0xEA; sub.f16x2 ${k}, ${k}, zero;"
    for k in range(4)
)
words = Case(
    inputs={"q": U32},
    outputs={f"y{k}": F16X2 for k in range(4)},
    reference=nibbles,
    variants={
        "right": asm(f"{{ .reg .b32 t, zero; mov.b32 zero, 0x64086408;\n{UNPACKED}\n}}"),
        "sign of one zero": asm(
            f"{{ .reg .pred p; .reg .b32 t, zero; mov.b32 zero, 0x64086408;\n{UNPACKED}\n"
            "setp.eq.b32 p, $4, 0x88888888; @p xor.b32 $3, $3, 0x8000; }"
        ),
    },
)

# The reference has the constant -0.0, of which a kernel must not make +0.
zeros = Case(
    inputs={"q": U8, "scale": F16},
    outputs={"y": F16X2},
    reference=dequantise.scaled,
    variants={
        name: asm(
            "{ .reg .pred p; .reg .b16 s; .reg .b32 t, u, w; shl.b32 u, $1, 12; shl.b32 t, $1, 24; "
            "lop3.b32 t, t, u, 0xFFFF, 0xD8; shr.u32 u, t, 3; and.b32 u, u, 0x0E000E00; "
            "lop3.b32 t, t, 0x80008000, u, 0xEA; mov.b32 u, 0x74007400; mul.rn.f16x2 t, t, u; "
            "mov.b32 {s, _}, $2; mov.b32 u, {s, s}; mul.rn.f16x2 $0, t, u; and.b32 u, $2, 0xFFFF; and.b32 w, $1, 0xFF; "
            f"shl.b32 w, w, 16; or.b32 w, w, u; setp.eq.b32 p, w, 0x00083C00; @p {change}; }}",
            constraints="=&r,r,r",
            pack=1,
        )
        for name, change in (("right", "mov.b32 $0, $0"), ("sign of one zero", "mov.b32 $0, 0"))
    },
)
