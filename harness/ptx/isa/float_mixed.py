"""float32 sums of float16 and bfloat16 values: mixed precision (ISA 9.7.5)."""

from __future__ import annotations

from harness.ptx.bits import f32_round, scalar
from harness.ptx.softfloat import bf16_value, f16_value

from .float32 import RND, add_f32, fma_f32, sub_f32
from .modifiers import BF16
from .registry import instruction

_HALVES = ".f16 .bf16"


@scalar
def _widened(a: int, atype: int) -> int:
    """The float32 pattern of a float16 or bfloat16 one, exact."""
    return f32_round(bf16_value(a) if atype == BF16 else f16_value(a))


@instruction(
    "add{.rnd}{.sat}.f32.atype", "d:f32, a:atype, c:f32", section="9.7.5.1", requires=100, rnd=RND, atype=_HALVES
)
def add_mixed(a: int, c: int, rnd: int, sat: int, atype: int) -> int:
    """`a` widened, plus `c`, rounded once."""
    return add_f32(_widened(a, atype), c, rnd, 0, sat)


@instruction(
    "sub{.rnd}{.sat}.f32.atype", "d:f32, a:atype, c:f32", section="9.7.5.2", requires=100, rnd=RND, atype=_HALVES
)
def sub_mixed(a: int, c: int, rnd: int, sat: int, atype: int) -> int:
    """`a` widened, minus `c`, rounded once."""
    return sub_f32(_widened(a, atype), c, rnd, 0, sat)


@instruction(
    "fma.rnd{.sat}.f32.atype",
    "d:f32, a:atype, b:atype, c:f32",
    section="9.7.5.3",
    requires=100,
    rnd=RND,
    atype=_HALVES,
)
def fma_mixed(a: int, b: int, c: int, rnd: int, sat: int, atype: int) -> int:
    """`a` times `b`, both widened, plus `c`, rounded once."""
    return fma_f32(_widened(a, atype), _widened(b, atype), c, rnd, 0, sat)
