"""Kernels and asm blocks with approximate instructions, as people write them: on the emulator, and on a device."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def softmax(x, y, N, scale, B: tl.constexpr):
    """Rows scaled and normalised, by powers of 2."""
    row = tl.program_id(0)
    i = tl.arange(0, B)
    a = tl.load(x + row * N + i, mask=i < N, other=-float("inf")) * (scale * 1.4426950408889634)
    e = tl.exp2(a - tl.max(a, 0))
    tl.store(y + row * N + i, e / tl.sum(e, 0), mask=i < N)


@triton.jit
def log_softmax(x, y, N, scale, B: tl.constexpr):
    """With natural exponentials and logarithm."""
    row = tl.program_id(0)
    i = tl.arange(0, B)
    a = tl.load(x + row * N + i, mask=i < N, other=-float("inf")) * scale
    a -= tl.max(a, 0)
    tl.store(y + row * N + i, a - tl.log(tl.sum(tl.exp(a), 0)), mask=i < N)


@triton.jit
def one_instruction(a, TEXT: tl.constexpr):
    return tl.inline_asm_elementwise(TEXT, "=r,r", [a], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def activation(x, y, n, B: tl.constexpr, KIND: tl.constexpr):
    """One activation of every element."""
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o, mask=o < n, other=0.0)
    if KIND == "sigmoid":
        r = tl.sigmoid(a)
    elif KIND == "silu":
        r = a / (1.0 + tl.exp(-a))
    elif KIND == "silu by reciprocal":
        r = a * one_instruction(1.0 + tl.exp2(-1.4426950408889634 * a), "rcp.approx.ftz.f32 $0, $1;")
    elif KIND == "silu by tanh":
        half = 0.5 * a
        r = half + half * one_instruction(half, "tanh.approx.f32 $0, $1;")
    elif KIND == "gelu by tanh":
        inner = 0.7978845608028654 * (a + 0.044715 * a * a * a)
        r = 0.5 * a * (1.0 + one_instruction(inner, "tanh.approx.f32 $0, $1;"))
    elif KIND == "gelu":
        r = 0.5 * a * (1.0 + libdevice.erf(a * 0.7071067811865476))
    elif KIND == "tanh":
        r = libdevice.tanh(a)
    elif KIND == "mish":
        r = a * libdevice.tanh(libdevice.log1p(tl.exp(a)))
    else:
        r = tl.maximum(a, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(a)))
    tl.store(y + o, r, mask=o < n)


@triton.jit
def library(x, y, n, B: tl.constexpr, KIND: tl.constexpr):
    """Functions of libdevice and of tl.math that end in approximate instructions."""
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o, mask=o < n, other=1.0)
    if KIND == "rsqrt":
        r = tl.rsqrt(tl.abs(a))
    elif KIND == "sqrt":
        r = tl.sqrt(tl.abs(a))
    elif KIND == "exp":
        r = tl.math.exp(a)
    elif KIND == "log2":
        r = tl.math.log2(tl.abs(a))
    elif KIND == "sin":
        r = tl.math.sin(a) + tl.math.cos(a)
    elif KIND == "pow":
        r = libdevice.pow(tl.abs(a), 0.37)
    elif KIND == "fast_sin":
        r = libdevice.fast_sinf(a) + libdevice.fast_cosf(a)
    elif KIND == "fast_tan":
        r = libdevice.fast_tanf(a)
    elif KIND == "fast_exp":
        r = libdevice.fast_expf(a) + libdevice.fast_exp10f(0.5 * a)
    elif KIND == "fast_log":
        r = libdevice.fast_logf(tl.abs(a)) + libdevice.fast_log10f(tl.abs(a)) + libdevice.fast_log2f(tl.abs(a))
    elif KIND == "fast_pow":
        r = libdevice.fast_powf(tl.abs(a), 0.37)
    else:
        r = libdevice.fast_dividef(a, a + 3.0)
    tl.store(y + o, r, mask=o < n)


@triton.jit
def rms_norm_rotary(x, w, y, N, eps, B: tl.constexpr):
    """A row divided by its root mean square, then halves of it turned by angles that its position gives."""
    row = tl.program_id(0)
    i = tl.arange(0, B)
    half = N // 2
    m = i < half
    first = tl.load(x + row * N + i, mask=m, other=0.0)
    second = tl.load(x + row * N + half + i, mask=m, other=0.0)
    scale = tl.rsqrt((tl.sum(first * first, 0) + tl.sum(second * second, 0)) / N + eps)
    first *= scale * tl.load(w + i, mask=m, other=0.0)
    second *= scale * tl.load(w + half + i, mask=m, other=0.0)
    angle = row * 37 * tl.exp2(-13.287712379549449 * (2 * i).to(tl.float32) / N)
    cos = one_instruction(angle, "cos.approx.ftz.f32 $0, $1;")
    sin = one_instruction(angle, "sin.approx.ftz.f32 $0, $1;")
    tl.store(y + row * N + i, first * cos - second * sin, mask=m)
    tl.store(y + row * N + half + i, second * cos + first * sin, mask=m)


@triton.jit
def dropout(x, y, n, p, seed, B: tl.constexpr):
    """Kept elements divided by how many are kept, after a sigmoid."""
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.sigmoid(tl.load(x + o, mask=o < n, other=0.0))
    tl.store(y + o, tl.where(tl.rand(seed, o) > p, a / (1.0 - p), 0.0), mask=o < n)


@triton.jit
def layer_norm(x, w, b, y, N, eps, B: tl.constexpr):
    """Through an approximate square root and a division."""
    row = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < N
    a = tl.load(x + row * N + i, mask=m, other=0.0)
    apart = tl.where(m, a - tl.sum(a, 0) / N, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(apart * apart, 0) / N + eps)
    r = apart * scale * tl.load(w + i, mask=m, other=0.0) + tl.load(b + i, mask=m, other=0.0)
    tl.store(y + row * N + i, r, mask=m)


@triton.jit
def of_one(x, y, n, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr, B: tl.constexpr):
    """An asm block of one operand on every element."""
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o, mask=o < n)
    r = tl.inline_asm_elementwise(TEXT, CONSTRAINTS, [a], dtype=y.dtype.element_ty, is_pure=True, pack=PACK)
    tl.store(y + o, r, mask=o < n)


@triton.jit
def of_two(x, z, y, n, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr, B: tl.constexpr):
    """An asm block of two operands on every pair of elements."""
    o = tl.program_id(0) * B + tl.arange(0, B)
    a, b = tl.load(x + o, mask=o < n), tl.load(z + o, mask=o < n)
    r = tl.inline_asm_elementwise(TEXT, CONSTRAINTS, [a, b], dtype=y.dtype.element_ty, is_pure=True, pack=PACK)
    tl.store(y + o, r, mask=o < n)


ELEMENTWISE, ROWS = 4096, (8, 1000)
ACTIVATIONS = (
    "sigmoid", "silu", "silu by reciprocal", "silu by tanh", "gelu by tanh", "gelu", "tanh", "mish", "softplus"
)  # fmt: skip
LIBRARY = (
    "rsqrt", "sqrt", "exp", "log2", "sin", "pow",
    "fast_sin", "fast_tan", "fast_exp", "fast_log", "fast_pow", "fast_divide",
)  # fmt: skip
LAUNCHES = {
    "softmax": (softmax, "rows", (), (1000, 0.125)),
    "log softmax": (log_softmax, "rows", (), (1000, 1.5)),
    **{k: (activation, k, (), (ELEMENTWISE,)) for k in ACTIVATIONS},
    **{f"library {k}": (library, k, (), (ELEMENTWISE,)) for k in LIBRARY},
    "RMS norm with rotary embedding": (rms_norm_rotary, "rows", ("w",), (1000, 1e-6)),
    "dropout": (dropout, "elements", (), (ELEMENTWISE, 0.25, 1234)),
    "layer norm": (layer_norm, "rows", ("w", "b"), (1000, 1e-5)),
}
"""By name: the kernel, what it works on (rows, elements, or a kind of elements), weights, and the last arguments."""


def launch(name, start, device="cpu", **options):
    """Launch a kernel on the same inputs every time and return its output tensor. `start(kernel, grid)` returns the
    function to call."""
    import torch

    kernel, over, weights, last = LAUNCHES[name]
    generator = torch.Generator().manual_seed(7)
    shape = ROWS if over == "rows" else (ELEMENTWISE,)
    x = torch.randn(shape, generator=generator) * 4.0
    if over != "rows":
        x[:8] = torch.tensor([0.0, -0.0, 88.5, -88.5, 1e-40, -1e-40, 1e30, -1e30])
    more = [torch.randn(ROWS[1], generator=generator) for _ in weights]
    y = torch.zeros(shape, device=device)
    meta = {"B": 1024} | ({} if over in ("rows", "elements") else {"KIND": over})
    grid = (ROWS[0] if over == "rows" else ELEMENTWISE // 1024,)
    arguments = [x.to(device), *(t.to(device) for t in more), y, *last]
    start(kernel, grid)(*arguments, **meta, enable_fp_fusion=False, **options)
    return y.cpu()


def _float(form: str, count: int = 1) -> tuple[str, str, str, int, int]:
    return f"{form} {', '.join(f'${i}' for i in range(count + 1))};", ",".join(["=r"] + ["r"] * count), "f4", 1, count


SNIPPETS = {
    **{
        form: _float(form)
        for form in (
            "rcp.approx.f32", "rcp.approx.ftz.f32", "rsqrt.approx.f32", "rsqrt.approx.ftz.f32", "sqrt.approx.f32",
            "sqrt.approx.ftz.f32", "sin.approx.f32", "sin.approx.ftz.f32", "cos.approx.f32", "cos.approx.ftz.f32",
            "lg2.approx.f32", "lg2.approx.ftz.f32", "ex2.approx.f32", "ex2.approx.ftz.f32", "tanh.approx.f32",
        )
    },
    **{f: _float(f, 2) for f in ("div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32")},
    "tanh f16": ("tanh.approx.f16x2 $0, $1;", "=r,r", "f2", 2, 1),
    "tanh f16, one": ("tanh.approx.f16 $0, $1;", "=h,h", "f2", 1, 1),
    "ex2 f16": ("ex2.approx.f16x2 $0, $1;", "=r,r", "f2", 2, 1),
    "tanh bf16": ("tanh.approx.bf16x2 $0, $1;", "=r,r", "bf16", 2, 1),
    "ex2 bf16": ("ex2.approx.ftz.bf16x2 $0, $1;", "=r,r", "bf16", 2, 1),
    "rcp f64": ("rcp.approx.ftz.f64 $0, $1;", "=d,d", "f8", 1, 1),
    "rsqrt f64": ("rsqrt.approx.f64 $0, $1;", "=d,d", "f8", 1, 1),
    "rsqrt f64, flushed": ("rsqrt.approx.ftz.f64 $0, $1;", "=d,d", "f8", 1, 1),
    "sigmoid by tanh": (
        "{ .reg .f32 t; mul.rn.f32 t, $1, 0.5; tanh.approx.f32 t, t; fma.rn.f32 $0, t, 0.5, 0.5; }",
        "=f,f", "f4", 1, 1,
    ),
    "sigmoid": (
        "{ .reg .f32 t; mul.rn.f32 t, $1, 0fBFB8AA3B; ex2.approx.ftz.f32 t, t; add.rn.f32 t, t, 0f3F800000; "
        "rcp.approx.ftz.f32 $0, t; }",
        "=f,f", "f4", 1, 1,
    ),
    "exponential": ("{ .reg .f32 t; mul.rn.f32 t, $1, 0f3FB8AA3B; ex2.approx.f32 $0, t; }", "=f,f", "f4", 1, 1),
    "natural logarithm": ("{ .reg .f32 t; lg2.approx.f32 t, $1; mul.rn.f32 $0, t, 0f3F317218; }", "=f,f", "f4", 1, 1),
    "power": (
        "{ .reg .f32 t; lg2.approx.ftz.f32 t, $1; mul.rn.f32 t, t, $2; ex2.approx.ftz.f32 $0, t; }",
        "=f,f,f", "f4", 1, 2,
    ),
    "one step of Newton": (
        "{ .reg .f32 r, e, n; rcp.approx.ftz.f32 r, $1; neg.f32 n, $1; fma.rn.f32 e, n, r, 0f3F800000; "
        "fma.rn.f32 $0, e, r, r; }",
        "=f,f", "f4", 1, 1,
    ),
    "tangent": (
        "{ .reg .f32 s, c; sin.approx.f32 s, $1; cos.approx.f32 c, $1; div.full.f32 $0, s, c; }", "=f,f", "f4", 1, 1
    ),
    "a vector's direction": (
        "{ .reg .f32 t; mul.rn.f32 t, $1, $1; fma.rn.f32 t, $2, $2, t; rsqrt.approx.f32 t, t; mul.rn.f32 $0, $1, t; }",
        "=f,f,f", "f4", 1, 2,
    ),
    "sigmoid f16": (
        "{ .reg .b32 t, h; mov.b32 h, 0x38003800; mul.rn.f16x2 t, $1, h; tanh.approx.f16x2 t, t; "
        "fma.rn.f16x2 $0, t, h, h; }",
        "=r,r", "f2", 2, 1,
    ),
}  # fmt: skip
"""By name: asm, constraints, element type (numpy's, or bf16), elements of a call, and operands."""


def operands(kind, count):
    """Bit patterns for a snippet: random numbers of ordinary magnitude, random bits, and both ends of each exponent."""
    import numpy as np

    width = {"f4": 32, "f8": 64}.get(kind, 16)
    fraction = {"f4": 23, "f8": 52, "f2": 10, "bf16": 7}[kind]
    dtype = np.dtype(f"u{width // 8}")
    rng = np.random.default_rng(11)
    ends = [e << fraction for e in range(1 << width - 1 - fraction)]
    ends = [(a + d) % (1 << width - 1) for a in ends for d in (-1, 0, 1)]
    ends += [a | 1 << width - 1 for a in ends]
    columns = []
    for _ in range(count):
        usual = rng.standard_normal(16384) * 3.0
        if kind == "bf16":
            near = (usual.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        else:
            near = usual.astype(kind).view(dtype)
        bits = rng.integers(0, 1 << 63, 16384, np.uint64) << np.uint64(1)
        drawn = (bits >> np.uint64(64 - width)).astype(dtype)
        few = rng.permutation(np.array(ends, dtype))
        both = np.concatenate([near, drawn, few])
        columns.append(both[: len(both) // 2 * 2])
    return columns
