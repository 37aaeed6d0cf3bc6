"""Compute products of matrices as a target does: with its tensor cores, or with the instructions that ptxas writes
instead.

Each way takes tiles of codes, a: t x m x k, b: t x k x n, c: t x m x n, and returns the codes of d.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.numeric import tensorcore
from ptxdiff.emulator.numeric.tensorcore import BITS, FLOATS, MEASURED, Model
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.extras import require


@dataclass(frozen=True)
class Arithmetic:
    """How to compute a product: the types of d, a, b and c, the way, and its modifiers (.rnd, .satfinite, xor).

    `generation`: the GPU generation whose model gives the bits; "" for none. Hardware has confirmed `MEASURED`.
    """

    types: tuple[str, str, str, str]
    way: str
    model: Model | None = None
    generation: str = ""
    word: str = ""

    @property
    def confirmable(self) -> bool:
        """Whether the ledger's evidence for the form also applies to this arithmetic."""
        return self.generation in ("", MEASURED)

    def __call__(self, a: Array, b: Array, c: Array) -> Array:
        """The codes of d."""
        return _in_vectors(self, a, b, c) if self.way == "blocks" else _WAYS[self.way](self, a, b, c)


def arithmetic(types: tuple[str, str, str, str], generation: str, quads: bool, word: str) -> Arithmetic | None:
    """How a generation computes a product; None if that is not known. `quads`: m8n8k4 of float16."""
    a = types[1]
    if a == "b1" or a in ("s8", "u8", "s4", "u4", "f64"):
        return Arithmetic(types, {"b1": "bits", "f64": "double"}.get(a, "integers"), word=word)
    if quads and generation not in ("Volta", "Turing"):
        # ptxas (12.9, 13.4) calls its own __cuda_sm_8x_mma_* for all targets from sm_80 on.
        return Arithmetic(types, "quads")
    key = "volta" if quads else {"bf16": "f16", "f16": "f16", "tf32": "tf32"}.get(a, "f8")
    model = tensorcore.MODELS[generation].get(key)
    if model is None:
        return None
    return Arithmetic(types, "widened" if model.widened else "blocks", model, generation, word)


def _in_vectors(how: Arithmetic, a: Array, b: Array, c: Array) -> Array:
    """What `_blocks` defines, computed in the processor's vectors."""
    from ptxdiff.emulator.numeric import tensorcore_vectors  # which loads LLVM

    assert how.model is not None
    codes = [np.ascontiguousarray(x).astype(np.uint32, copy=False) for x in (a, b, c)]
    require("numba", "llvmlite", purpose="running matrix products")
    from ptxdiff.emulator.numeric import tensorcore_vectors

    return tensorcore_vectors.dot(codes[0], codes[1], codes[2], how.types, how.model)


def _blocks(how: Arithmetic, a: Array, b: Array, c: Array) -> Array:
    """The product on tensor cores."""
    assert how.model is not None
    codes = [np.ascontiguousarray(x).astype(np.uint32, copy=False) for x in (a, b, c)]
    return tensorcore.dot(codes[0], codes[1], codes[2], how.types, how.model)


def _widened(how: Arithmetic, a: Array, b: Array, c: Array) -> Array:
    """A product of 8-bit floats on tensor cores without such floats: two products of float16, and an addition.

    ptxas (12.9, 13.4) converts two bytes of each register to float16 at a time. So of every four k, the first two go to
    the first product, which starts at zero, and the others to the second; c is added last, rounded to nearest even.
    """
    k = np.arange(a.shape[2])
    order = np.concatenate([k[k % 4 < 2], k[k % 4 >= 2]])
    assert how.model is not None
    kind, a_type, b_type, c_type = how.types
    halves = Arithmetic((kind, "f16", "f16", c_type), "blocks", how.model.of(len(k) // 2), how.generation)
    part = halves(_HALVES[a_type][a[:, :, order]], _HALVES[b_type][b[:, order]], np.zeros_like(c))
    return _scalar("add", ("rn", kind), c.astype(np.uint16 if kind == "f16" else np.uint32), part)


def _halves(kind: str) -> Array:
    """The exact float16 value of each of the 256 codes of a format; subnormal codes become normal numbers."""
    exponent, fraction = FLOATS[kind].exponent, FLOATS[kind].fraction
    codes = np.arange(256)
    if exponent == 5:
        return (codes << 8).astype(np.uint16)
    field, low = codes >> fraction & (1 << exponent) - 1, codes & (1 << fraction) - 1
    size = np.where(field > 0, low | 1 << fraction, low) * 2.0 ** (np.maximum(field, 1) - FLOATS[kind].bias - fraction)
    found: Array = np.where(codes < 128, size, -size).astype(np.float16).view(np.uint16)
    found[codes & 127 == 127] = 0x7FFF
    return found


def _scalar(opcode: str, modifiers: tuple[str, ...], first: Array, *more: Array) -> Array:
    """Apply an instruction's definition to arrays; later ones are broadcast to the shape of the first."""
    function = find(opcode, modifiers)[0].array_function()
    rows = [np.ascontiguousarray(np.broadcast_to(x, first.shape)).reshape(-1) for x in (first, *more)]
    widths = [np.dtype(f"u{width // 8}") for width, _ in function.sources]
    flat = [row.astype(width, copy=False) for row, width in zip(rows, widths, strict=True)]
    found: Array = function(first.size, *flat).reshape(first.shape)
    return found


def _quads(how: Arithmetic, a: Array, b: Array, c: Array) -> Array:
    """m8n8k4 of float16 from sm_80 on: float32 arithmetic in the order of the function that ptxas calls."""
    d_type, _, _, c_type = how.types
    left, right = _scalar("cvt", ("f32", "f16"), a), _scalar("cvt", ("f32", "f16"), b)
    total = _scalar("cvt", ("f32", "f16"), c) if c_type == "f16" else np.ascontiguousarray(c)
    x = [np.ascontiguousarray(np.broadcast_to(left[:, :, k, None], c.shape)) for k in range(4)]
    y = [np.broadcast_to(right[:, k, None, :], c.shape) for k in range(4)]
    if d_type == "f32":
        chain: Array = np.zeros_like(total)
        for k in range(4):
            chain = _scalar("fma", ("rn", "f32"), x[k], y[k], chain)
        return _scalar("add", ("rn", "f32"), total, chain)
    for k in (0, 2):
        pair = _scalar("fma", ("rn", "f32"), x[k + 1], y[k + 1], _scalar("mul", ("rn", "f32"), x[k], y[k]))
        total = _scalar("add", ("rn", "f32"), total, pair)
    return _scalar("cvt", ("rn", "f16", "f32"), total)


def _double(how: Arithmetic, a: Array, b: Array, c: Array) -> Array:
    """float64: a fused multiply-add for each term, in order."""
    total = np.ascontiguousarray(c)
    for k in range(a.shape[2]):
        x = np.broadcast_to(a[:, :, k, None], total.shape)
        total = _scalar("fma", (how.word or "rn", "f64"), x, b[:, k, None, :], total)
    return total


def _integers(how: Arithmetic, a: Array, b: Array, c: Array) -> Array:
    left, right = (_number(x, kind) for x, kind in ((a, how.types[1]), (b, how.types[2])))
    return tensorcore.dot_integer(left, right, np.ascontiguousarray(c), how.word == "satfinite")


def _number(codes: Array, kind: str) -> Array:
    """Integers of 8 or 4 bits as float32, which represents them exactly."""
    half = 1 << BITS[kind] - 1
    numbers = codes.astype(np.int16)
    return ((numbers ^ half) - half if kind[0] == "s" else numbers).astype(np.float32)


def _bits(how: Arithmetic, a: Array, b: Array, c: Array) -> Array:
    left, right = a.astype(np.float32), b.astype(np.float32)
    return tensorcore.dot_bits(left, right, np.ascontiguousarray(c), how.word == "xor")


_HALVES = {kind: _halves(kind) for kind in ("e4m3", "e5m2")}
_WAYS: dict[str, Callable[[Arithmetic, Array, Array, Array], Array]] = {
    "blocks": _blocks, "widened": _widened, "quads": _quads, "double": _double, "integers": _integers, "bits": _bits,
}  # fmt: skip


def functions() -> tuple[Callable[..., object], ...]:
    """The functions of all ways, for a digest of their code."""
    return (*_WAYS.values(), _halves, _number, _scalar)
