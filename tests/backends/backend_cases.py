"""Cases for the tests of backends."""

import triton
import triton.language as tl

from ptxdiff.model.case import Case
from ptxdiff.model.variants import asm, kernel, plain
from ptxdiff.references.formats import BF16, E2M1X2, F32, I32, U8
from tests.support.documented import EIGHT, FIVE, U8_MAX

E2M1 = """
{
    .reg .b8 tmp<4>;
    cvt.rn.satfinite.e2m1x2.f32 tmp0, $5, $1;
    cvt.rn.satfinite.e2m1x2.f32 tmp1, $6, $2;
    cvt.rn.satfinite.e2m1x2.f32 tmp2, $7, $3;
    cvt.rn.satfinite.e2m1x2.f32 tmp3, $8, $4;
    mov.b32 $0, {tmp0, tmp1, tmp2, tmp3};
}
"""


@triton.jit
def add(x, y):
    return x + y


@triton.jit
def scaled(x, y, FACTOR: tl.constexpr = 2.0):
    return x * FACTOR + y * 0.0


@triton.jit
def convert_and_maximum(a, b):
    converted = a.to(tl.int32)
    # max.f32 returns the operand that is a number.
    return converted, tl.maximum(converted.to(tl.float32), b)


@triton.jit
def copy_rows(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr, SHIFT: tl.constexpr = 0):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < N
    values = tl.load(x_ptr + row * N + offsets, mask=mask)
    tl.store(y_ptr + row * N + offsets + SHIFT, values, mask=mask)


@triton.jit
def half_written(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < M * N // 2
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def writes_its_input(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < M * N
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)
    tl.store(x_ptr, 1.0)


@triton.jit
def add_in_place(x_ptr, d_ptr, N, FIRST: tl.constexpr, BEYOND: tl.constexpr, TO: tl.constexpr):
    i = tl.program_id(0) * 64 + tl.arange(0, 64)
    m = (i >= FIRST) & (i < N + BEYOND)
    total = tl.load(x_ptr + i, mask=m) + tl.load(d_ptr + i, mask=i < N, other=1)
    tl.store(x_ptr + i, total, mask=m)
    if TO:
        tl.store(d_ptr + i, total, mask=i < N)


def unknown(*codes):
    """A reference that these tests never call."""
    raise AssertionError("a backend does not judge")


addition = Case(
    inputs={"x": F32, "y": F32},
    outputs={"z": F32},
    reference=unknown,
    carry={"z": "x"},
    variants={
        "asm": asm("add.rn.f32 $0, $1, $2;"),
        "plain": plain(add),
        "scaled": plain(scaled, constants={"FACTOR": 3.0}),
        "misspelt": asm("ad.rn.f32 $0, $1, $2;", constraints="=r,r,r"),
        "one too few": asm("add.rn.f32 $0, $1, $1;", constraints="=r,r"),
        "product and sum": asm("{ .reg .f32 p; mul.f32 p, $1, $2; add.f32 $0, p, $1; }", "=r,r,r", pack=1),
        "wide": asm({2: ("{ .reg .b64 a, b, c; mov.b64 a, {$2, $3}; mov.b64 b, {$4, $5}; add.rn.f32x2 c, a, b; "
                         "mov.b64 {$0, $1}, c; }", "=&r,=&r,r,r,r,r")}),
    },
)  # fmt: skip

maximum = Case(
    inputs={"a": U8, "b": F32},
    outputs={"c": I32, "d": F32},
    reference=unknown,
    carry={"d": "b"},
    variants={
        "documented": asm(U8_MAX, f"{EIGHT},{FIVE}", pack=4),
        "clobbers": asm(U8_MAX, f"{EIGHT.replace('=r', '=&r')},{FIVE}", pack=4),
        "plain": plain(convert_and_maximum),
    },
)

conversion = Case(
    inputs={"low": F32, "high": F32},
    outputs={"q": E2M1X2},
    reference=unknown,
    variants={"cvt": asm(E2M1, pack=4)},
)


def one_program_a_row(sizes):
    return (sizes["M"],)


rows = Case(
    inputs={"x_ptr": BF16["M", "N"]},
    outputs={"y_ptr": BF16["M", "N"]},
    reference=unknown,
    sizes=[{"M": 5, "N": 40}],
    variants={
        "copy": kernel(copy_rows, grid=one_program_a_row, meta={"BLOCK": 64}),
        "shifted": kernel(copy_rows, grid=one_program_a_row, meta={"BLOCK": 64, "SHIFT": 8}),
        "far": kernel(copy_rows, grid=one_program_a_row, meta={"BLOCK": 64, "SHIFT": 1 << 40}),
        "half": kernel(half_written, grid=(1,), meta={"BLOCK": 256}),
        "input": kernel(writes_its_input, grid=(1,), meta={"BLOCK": 256}),
        "no block": kernel(copy_rows, grid=(1,)),
    },
)


def adds(first=0, beyond=0, to=False):
    return kernel(add_in_place, grid="ceil(N/64)", meta={"FIRST": first, "BEYOND": beyond, "TO": to})


in_place = Case(
    inputs={"x_ptr": I32["N"], "d_ptr": I32["N"]},
    outputs={"x_ptr": I32["N"]},
    reference=unknown,
    sizes=[{"N": 200}],
    variants={"right": adds(), "not all": adds(first=3), "beyond": adds(beyond=2), "input": adds(to=True)},
)
