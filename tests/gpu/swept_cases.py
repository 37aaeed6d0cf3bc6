"""Cases with mistakes that only a sweep over everything is sure to meet."""

from harness import Case, asm, exact, ulp
from references import arithmetic, exponential, reciprocal
from references.formats import F16, F32


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

products = Case(
    inputs={"a": F16, "b": F16},
    outputs={"y": F16},
    reference=small_product,
    variants={"right": asm("mul.rn.f16x2 $0, $1, $2;", "=r,r,r", pack=2, match=exact())},
)

# Of 64 bits of inputs, wrong for one product in 2^20.
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
