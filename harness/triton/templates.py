"""The kernels that the harness itself launches: one skeleton for every number of inputs and outputs.

All tensors of an elementwise variant have one shape, counted in storage units. Each invocation gets one unit of each
input, and computes it with inline asm or with a user's `@triton.jit` function.

In the loop context, the outputs named in CARRY become inputs of the next step, and the outputs of the last step are
stored, as in the code of a running maximum. The number of steps is a run-time value, so that the loop is not unrolled.

Only compiler processes and the gpu backend import this module. It imports triton.
"""

# This is Triton's language, not Python's: no star expressions, no types, no conditional tuples.
# ruff: noqa: RUF005, SIM108
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _as_tuple(result):
    if isinstance(result, tl.tuple):
        return result
    else:  # noqa: RET505 - Triton compiles the statements after an `if`, so an early return is none
        return (result,)


@triton.jit
def _check_type(result: tl.constexpr, output: tl.constexpr):
    same: tl.constexpr = result == output or (result.is_int() and output.is_int())
    message: tl.constexpr = (
        "a result's type is not its output's: convert it in the function, with .to(...); codes of 8 bits and fewer are "
        "uint8, so a float8 takes .to(tl.uint8, bitcast=True)"
    )
    tl.static_assert(same, message)


@triton.jit
def _checked(results, outs):
    """The results of a user's function. Their types must equal the outputs' types: a store would round silently."""
    tl.static_assert(len(results) == len(outs), "the function does not return one tensor for each output of the case")
    for i in tl.static_range(len(outs)):
        _check_type(results[i].dtype, outs[i].dtype.element_ty)
    return results


@triton.jit
def _apply(
    xs, outs, constants,
    ASM: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr, PURE: tl.constexpr, FUNCTION: tl.constexpr,
):  # fmt: skip
    if FUNCTION is None:
        return tl.inline_asm_elementwise(
            ASM, CONSTRAINTS, xs, dtype=[p.dtype.element_ty for p in outs], is_pure=PURE, pack=PACK
        )
    else:  # noqa: RET505
        return _checked(_as_tuple(FUNCTION(*xs, *constants)), outs)


@triton.jit
def _carried(xs, ys, CARRY: tl.constexpr):
    """The next step's inputs: output number CARRY[i] for input i, or the input itself if CARRY[i] is -1."""
    following = ()
    for i in tl.static_range(len(xs)):
        if CARRY[i] < 0:
            following = following + (xs[i],)
        else:
            following = following + (ys[CARRY[i]].to(xs[i].dtype, bitcast=True),)
    return following


@triton.jit
def _map(
    ins, outs, in_offsets, out_offsets, mask, steps, constants,
    ASM: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr, PURE: tl.constexpr,
    FUNCTION: tl.constexpr, CARRY: tl.constexpr,
):  # fmt: skip
    xs = ()
    for i in tl.static_range(len(ins)):
        xs = xs + (tl.load(ins[i] + in_offsets[i], mask=mask),)
    if CARRY is None:
        ys = _apply(xs, outs, constants, ASM, CONSTRAINTS, PACK, PURE, FUNCTION)
    else:
        ys = [tl.zeros(mask.shape, p.dtype.element_ty) for p in outs]
        for _ in range(steps):
            ys = _apply(xs, outs, constants, ASM, CONSTRAINTS, PACK, PURE, FUNCTION)
            xs = _carried(xs, ys, CARRY)
    for i in tl.static_range(len(outs)):
        tl.store(outs[i] + out_offsets[i], ys[i], mask=mask)


@triton.jit(do_not_specialize=["steps"])
def elementwise_1d(
    ins, outs, n, steps, constants,
    ASM: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr, PURE: tl.constexpr,
    FUNCTION: tl.constexpr, CARRY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Contiguous tensors of n units, BLOCK of them in a program."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    _map(
        ins, outs, [offsets for p in ins], [offsets for p in outs], mask,
        steps, constants,
        ASM, CONSTRAINTS, PACK, PURE, FUNCTION, CARRY,
    )  # fmt: skip


@triton.jit(do_not_specialize=["steps"])
def elementwise_2d(
    ins, outs, rows, columns, in_strides, out_strides, steps, constants,
    ASM: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr, PURE: tl.constexpr,
    FUNCTION: tl.constexpr, CARRY: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """Tensors of rows x columns units, each with a row stride of its own, in tiles of BLOCK_ROWS x BLOCK_COLUMNS."""
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    column = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)[None, :]
    mask = (row < rows) & (column < columns)
    _map(
        ins, outs, [row * s + column for s in in_strides], [row * s + column for s in out_strides], mask,
        steps, constants,
        ASM, CONSTRAINTS, PACK, PURE, FUNCTION, CARRY,
    )  # fmt: skip


@triton.jit
def _bits(values):
    """The bits of all tensors, combined into uint32. A narrow result is repeated, so that every bit is unknown."""
    folded = _spread(_unsigned(values[0]))
    for i in tl.static_range(1, len(values)):
        folded = folded | _spread(_unsigned(values[i]))
    return folded


@triton.jit
def _spread(bits):
    width: tl.constexpr = bits.dtype.primitive_bitwidth
    if width == 32:
        return bits
    elif width == 16:  # noqa: RET505
        return bits.to(tl.uint32) * 0x10001
    else:
        return bits.to(tl.uint32) * 0x1010101


@triton.jit
def _unsigned(value):
    width: tl.constexpr = value.dtype.primitive_bitwidth
    tl.static_assert(width <= 32, "a loop in registers feeds results of up to 32 bits back")
    if width == 32:
        return value.to(tl.uint32, bitcast=True)
    elif width == 16:  # noqa: RET505
        return value.to(tl.uint16, bitcast=True)
    else:
        return value.to(tl.uint8, bitcast=True)


@triton.jit
def _held(first, results, zero):
    """The first inputs again, made to wait for the results: `zero` is 0 at run time, which the compiler cannot know."""
    waited = _bits(results) & zero.to(tl.uint32)
    following = ()
    for i in tl.static_range(len(first)):
        bits = _unsigned(first[i])
        following = following + ((bits | waited.to(bits.dtype)).to(first[i].dtype, bitcast=True),)
    return following


@triton.jit
def _alone(first, xs, second, zero, other, EVEN: tl.constexpr):
    """The instructions that `_held` adds. Operands alternate, because the compiler would merge equal instructions."""
    following = ()
    for i in tl.static_range(len(first)):
        bits = _unsigned(xs[i])
        if EVEN:
            bits = _unsigned(first[i]) | (bits & zero.to(bits.dtype))
        else:
            bits = second[i] ^ (bits & other.to(bits.dtype))
        following = following + (bits.to(first[i].dtype, bitcast=True),)
    return following


@triton.jit
def _clock(at):
    """The SM's clock, read after all threads of the block have arrived."""
    tl.debug_barrier()
    now = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l,r", [0], dtype=tl.int64, is_pure=False, pack=1)
    tl.store(at, now)
    tl.debug_barrier()


@triton.jit(do_not_specialize=["steps", "zero", "other"])
def in_registers(
    ins, outs, clocks, steps, zero, other, constants,
    ASM: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr, PURE: tl.constexpr,
    FUNCTION: tl.constexpr, CARRY: tl.constexpr, BARE: tl.constexpr, UNROLL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A variant applied steps * UNROLL times to BLOCK elements in registers, between two readings of the clock.

    Each application waits for the results of the previous one: they become its inputs (CARRY), or its inputs depend on
    them. BARE: the loop without the variant. zero, other: 0.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = ()
    for i in tl.static_range(len(ins)):
        first = first + (tl.load(ins[i] + at),)
    xs = first
    second = ()
    for i in tl.static_range(len(ins)):
        bits = _unsigned(first[i])
        second = second + (bits + other.to(bits.dtype),)
    _clock(clocks + 2 * tl.program_id(0))
    for _ in range(steps):
        for k in tl.static_range(UNROLL):
            if BARE:
                xs = _alone(first, xs, second, zero, other, k % 2 == 0)
            else:
                ys = _apply(xs, outs, constants, ASM, CONSTRAINTS, PACK, PURE, FUNCTION)
                if CARRY is None:
                    xs = _held(first, ys, zero)
                else:
                    xs = _carried(xs, ys, CARRY)
    _clock(clocks + 2 * tl.program_id(0) + 1)
    for i in tl.static_range(len(ins)):
        tl.store(ins[i] + at, xs[i], mask=zero != 0)  # never executed; it keeps the compiler from dropping the loop


@triton.jit
def empty():
    """Does nothing. Used to probe a target."""


@triton.jit
def ptxdiff_flush(x, out, n, BLOCK: tl.constexpr):
    """Reads n words and keeps none, so that the L2 holds other data, with no dirty lines to write back."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + at, mask=at < n, other=0))
    tl.store(out, total, mask=total != 0)  # the words are zeros: this only keeps the compiler from dropping the loads
