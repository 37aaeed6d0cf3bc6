"""Triton functions that call asm on packs, each in another way of naming the asm or the pack.

Those that move elements have the numbers 4 and 16 in their code.
"""

import dataclasses

import triton
import triton.language as tl

from tests import support

from . import packed_helpers
from .packed_helpers import halves

ASM, CONSTRAINTS = tl.constexpr("mov.b32 $0, $1;"), tl.constexpr("=r,r")
FOUR = tl.constexpr(4)
renamed, halved, resized = tl.inline_asm_elementwise, tl.split, tl.reshape


@triton.jit
def of_four_by_itself(x):
    return tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=4)


@triton.jit
def of_two(x):
    return tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=2)


@triton.jit
def shifted(x):
    y = tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x], dtype=tl.uint32, is_pure=True, pack=1)
    return (y >> 16) * 8 + 4


@triton.jit
def of_four(x):
    return (of_four_by_itself(x) >> 2) + 16


@triton.jit
def of_four_and_one(x):
    return of_four_by_itself(x) + shifted(x)


@triton.jit
def of_four_and_two(x):
    return of_four(x) + of_two(x)


@triton.jit
def by_a_global(x):
    return tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=FOUR) >> 2


@triton.jit
def by_another_name(x):
    return renamed(ASM, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=4) >> 2


@dataclasses.dataclass(frozen=True)
class Settings:
    pack: int


SETTINGS = Settings(4)


@triton.jit
def by_operands(x):
    even, odd = tl.split(tl.reshape(x, (x.shape[0] // 2, 2)))
    both = tl.inline_asm_elementwise(
        "and.b32 $0, $1, $2;", "=r,r,r", [even, odd], dtype=tl.uint32, is_pure=True, pack=1
    )
    return tl.interleave(both, both)


@triton.jit
def through_a_module(x):
    return packed_helpers.halves(x) + 4


@triton.jit
def through_a_package(x):
    return support.inputs.packed_helpers.halves(x) + 4


@triton.jit
def without_asm(x):
    return x * 4


@triton.jit
def by_an_argument(x, PACK: tl.constexpr):
    y = tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=PACK)
    return (y >> 16) + 4


@triton.jit
def by_a_default(x, PACK: tl.constexpr = 4):
    y = tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=PACK)
    return y >> 16


@triton.jit
def by_a_sum(x):
    y = tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=FOUR * FOUR)
    return y >> 16


@triton.jit
def assigned(x):
    PACK: tl.constexpr = 4
    y = tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=PACK)
    return y >> 16


@triton.jit
def without_a_call(x):
    asm: tl.constexpr = tl.inline_asm_elementwise
    return asm(ASM, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=4) >> 16


@triton.jit
def given_to(x):
    return of_given_asm(x, tl.inline_asm_elementwise) >> 16


@triton.jit
def of_given_asm(x, ASM: tl.constexpr):
    return ASM("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.uint8, is_pure=True, pack=4)


@triton.jit
def by_an_alias_of_split(x):
    even, odd = halved(resized(x, (x.shape[0] // 4, 2, 2))[:, 0])
    return tl.inline_asm_elementwise(
        "and.b32 $0, $1, $2;", "=r,r,r", [even, odd], dtype=tl.uint32, is_pure=True, pack=1
    )


@triton.jit
def by_a_sum_of_all(x):
    y = tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x], dtype=tl.uint32, is_pure=True, pack=1)
    return tl.broadcast_to(tl.sum(y, 0) + 4, y.shape)


@triton.jit
def by_an_axis(x):
    y = tl.inline_asm_elementwise(
        "and.b32 $0, $1, $2;", "=r,r,r", [x[:, None], x[None, :]], dtype=tl.uint32, is_pure=True, pack=1
    )
    return tl.max(y, 1) + 4


@triton.jit
def by_an_exchange(x):
    asm: tl.constexpr = "shfl.sync.bfly.b32 $0, $1, 4, 31, -1;"
    return tl.inline_asm_elementwise(asm, CONSTRAINTS, [x], dtype=tl.uint32, is_pure=True, pack=1)


@triton.jit
def again(x, PACK: tl.constexpr):
    y = tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=PACK)
    if PACK < 4:
        y = again(y, PACK * 2)
    return y


@triton.jit
def of_given_functions(x, FUNCTIONS: tl.constexpr):
    return FUNCTIONS[0](shifted(x))


@triton.jit
def by_settings(x):
    return tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=SETTINGS.pack)


@triton.jit
def by_a_loop(x):
    for PACK in tl.static_range(2, 5, 2):
        x = tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=PACK)
    return x


@triton.jit
def by_a_width(x):
    width: tl.constexpr = x.dtype.primitive_bitwidth
    return tl.inline_asm_elementwise(ASM, CONSTRAINTS, [x], dtype=tl.uint8, is_pure=True, pack=32 // width)


@triton.jit
def by_a_name_in_text(x):
    return getattr(packed_helpers, "halves")(shifted(x))  # noqa: B009


@triton.jit
def by_a_name_of_two_values(x):
    y = halves(shifted(x))  # noqa: F823 - Triton takes the global before the assignment
    halves = y + 1
    return halves * 2


@triton.jit
def through_globals(x):
    return globals()["of_two"](shifted(x))


@triton.jit
def of_a_given_module(x, MODULE: tl.constexpr):
    return MODULE.halves(shifted(x))


@triton.jit
def of_a_kept_module(x):
    module: tl.constexpr = packed_helpers
    return module.halves(shifted(x))
