"""Small kernels of every kind, which `test_small_kernels.py` launches; each shows one thing that Triton can do."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def elementwise(x, y, n, B: tl.constexpr, OP: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    m = o < n
    a = tl.load(x + o, mask=m)
    if OP == "copy":
        r = a
    elif OP == "negate":
        r = -a
    elif OP == "square":
        r = a * a
    elif OP == "root":
        r = tl.sqrt_rn(a)
    elif OP == "third":
        r = tl.div_rn(a, 3.0)
    elif OP == "exp2":
        r = tl.exp2(a)
    elif OP == "floor":
        r = tl.floor(a)
    elif OP == "clamp":
        r = tl.clamp(a, -1.0, 1.0)
    elif OP == "high":
        r = tl.umulhi(a, 0x9E3779B9)
    elif OP == "popcount":
        r = libdevice.popc(a)
    elif OP == "round":
        r = libdevice.rint(a)
    elif OP == "hypot":
        r = libdevice.hypot(a, 1.0)
    elif OP == "shift":
        r = (a << 3) ^ (a >> 5)
    else:
        r = tl.where(a > 0, a, 0)
    tl.store(y + o, r, mask=m)


@triton.jit
def convert(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n).to(y.dtype.element_ty), mask=o < n)


@triton.jit
def hinted(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.max_contiguous(tl.multiple_of(tl.arange(0, B), B), B)
    a = tl.load(x + o, mask=o < n, other=7, eviction_policy="evict_first")
    a += tl.load(x + o, mask=o < n, other=7, eviction_policy="evict_last")
    a += tl.load(x + o, mask=o < n, other=7, cache_modifier=".cg")
    a += tl.load(x + o, mask=o < n, other=7, volatile=True)
    tl.store(y + o, a, mask=o < n, cache_modifier=".cs")
    tl.store(y + o, a + 1, mask=o < n, eviction_policy="evict_first")


@triton.jit
def hinted_twice(x, y, n, B: tl.constexpr):
    """A cache operator and an eviction policy on one load, which Triton emits and ptxas refuses."""
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n, eviction_policy="evict_first", cache_modifier=".cg"), mask=o < n)


@triton.jit
def scan(x, y, B: tl.constexpr, KIND: tl.constexpr, REVERSE: tl.constexpr):
    o = tl.arange(0, B)
    a = tl.load(x + o)
    if KIND == "sum":
        r = tl.cumsum(a, 0, reverse=REVERSE)
    elif KIND == "product":
        r = tl.cumprod(a, 0, reverse=REVERSE)
    else:
        r = tl.associative_scan(a, 0, greatest, reverse=REVERSE)
    tl.store(y + o, r)


@triton.jit
def greatest(a, b):
    return tl.maximum(a, b)


@triton.jit
def pairwise(a, i, b, j):
    take = (a > b) | ((a == b) & (i < j))
    return tl.where(take, a, b), tl.where(take, i, j)


@triton.jit
def reduce(x, y, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, KIND: tl.constexpr):
    a = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    if KIND == "sum":
        r = tl.sum(a, AXIS)
    elif KIND == "max":
        r = tl.max(a, AXIS)
    elif KIND == "min":
        r = tl.min(a, AXIS)
    elif KIND == "xor":
        r = tl.xor_sum(a, AXIS)
    else:
        index = tl.broadcast_to(tl.arange(0, M)[:, None] if AXIS == 0 else tl.arange(0, N)[None, :], (M, N))
        r = tl.reduce((a, index), AXIS, pairwise)[1]
    tl.store(y + tl.arange(0, N if AXIS == 0 else M), r)


@triton.jit
def arranged(x, y, N: tl.constexpr, KIND: tl.constexpr):
    o = tl.arange(0, N)
    a = tl.load(x + o)
    if KIND == "sort":
        r = tl.sort(a, descending=True)
    elif KIND == "flip":
        r = tl.flip(a, 0)
    elif KIND == "gather":
        r = tl.gather(a, (o * 7 + 3) % N, 0)
    elif KIND == "topk":
        r = tl.topk(a, N)
    elif KIND == "interleave":
        r = tl.interleave(tl.reshape(a, (2, N // 2)).trans().split()[0], tl.reshape(a, (2, N // 2)).trans().split()[1])
    elif KIND == "cat":
        half = tl.load(x + tl.arange(0, N // 2))
        r = tl.cat(half, half + 1, can_reorder=True)
        r = tl.sort(r)
    else:
        r = tl.ravel(tl.permute(tl.reshape(a, (4, N // 16, 4)), (2, 0, 1)))
    tl.store(y + o, r)


@triton.jit
def counted(x, y, N: tl.constexpr, BINS: tl.constexpr):
    tl.store(y + tl.arange(0, BINS), tl.histogram(tl.load(x + tl.arange(0, N)), BINS))


@triton.jit
def atomic(x, y, old, n, B: tl.constexpr, OP: tl.constexpr, PLACES: tl.constexpr, SEM: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    m = o < n
    a = tl.load(x + o, mask=m)
    p = y + o % PLACES
    if OP == "add":
        r = tl.atomic_add(p, a, mask=m, sem=SEM)
    elif OP == "max":
        r = tl.atomic_max(p, a, mask=m, sem=SEM)
    elif OP == "min":
        r = tl.atomic_min(p, a, mask=m, sem=SEM)
    elif OP == "and":
        r = tl.atomic_and(p, a, mask=m, sem=SEM)
    elif OP == "or":
        r = tl.atomic_or(p, a, mask=m, sem=SEM)
    elif OP == "xor":
        r = tl.atomic_xor(p, a, mask=m, sem=SEM)
    elif OP == "xchg":
        r = tl.atomic_xchg(p, a, mask=m, sem=SEM)
    else:
        r = tl.atomic_cas(p, a * 0, a, sem=SEM)
    tl.store(old + o, r, mask=m)


@triton.jit
def collatz(x, y, n, B: tl.constexpr):
    for i in range(B):
        v = tl.load(x + i)
        steps = 0
        while v != 1:
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            steps += 1
        tl.store(y + i, steps)


@triton.jit(noinline=True)
def apart(a, b):
    return a * b + a


@triton.jit
def calls(x, y, B: tl.constexpr):
    row = tl.program_id(0)
    first = apart(tl.load(x + row), 3)
    if row % 2 == 0:
        first = apart(first, row)
    tl.store(y + row * B + tl.arange(0, B), tl.arange(0, B) + first)


@triton.jit
def random_numbers(seed, y, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.randint(seed, o))


@triton.jit
def uniform_numbers(seed, y, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.rand(seed, o))


@triton.jit
def cube(y, X, Y, extra, scale: tl.constexpr):
    i, j, k = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (k * Y + j) * X + i
    value = (i + 10 * j + 100 * k) * scale + tl.num_programs(2)
    if extra is not None:
        value += tl.load(extra)
    tl.store(y + at, value)


@triton.jit
def scalars(y, big, small, real, flag):
    tl.store(y, big + small)
    tl.store(y + 1, (real * 4).to(tl.int64))
    tl.store(y + 2, tl.where(flag, 5, 6).to(tl.int64))


@triton.jit
def branchy(x, y, n, B: tl.constexpr):
    row = tl.program_id(0)
    if row % 3 == 0:
        return
    o = tl.arange(0, B)
    a = tl.load(x + row * B + o)
    if row % 2 == 0:
        a += 1
    else:
        a *= 2
    tl.debug_barrier()
    tl.static_assert(B == 64)
    tl.static_print("")
    tl.store(y + row * B + o, a)


@triton.jit
def moved_through_memory(x, y, scratch, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(scratch + o, tl.load(x + o))
    tl.debug_barrier()
    tl.store(y + o, tl.load(scratch + (o ^ 64)))


@triton.jit
def described(x, y, M, N, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    target = tl.make_tensor_descriptor(y, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    target.store([0, 0], source.load([0, 0]))


@triton.jit
def product(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    at = i[:, None] * B + i[None, :]
    tl.store(y + at, tl.dot(tl.load(x + at), tl.load(x + at)))


@triton.autotune(configs=[triton.Config({"B": 64}), triton.Config({"B": 128})], key=["n"])
@triton.jit
def tuned(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)


@triton.jit
def of_small_blocks(x, y, n, B: tl.constexpr, MOST: tl.constexpr):
    tl.static_assert(B <= MOST, "too large here")
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)


_TWO = [triton.Config({"B": 256}), triton.Config({"B": 128})]
tuned_after_one_too_large = triton.autotune(configs=_TWO, key=["n"])(
    triton.heuristics({"MOST": lambda args: 128})(of_small_blocks)
)
tuned_to_none = triton.autotune(configs=_TWO, key=["n"])(triton.heuristics({"MOST": lambda args: 64})(of_small_blocks))
tuned_below_a_rule = triton.heuristics({"MOST": lambda args: args["n"]})(
    triton.autotune(configs=[triton.Config({"B": 64})], key=["n"])(of_small_blocks)
)


@triton.heuristics({"B": lambda args: 64 if args["n"] < 1000 else 256})
@triton.jit
def by_rule(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)


@triton.jit
def applied(x, y, n, FUNCTION: tl.constexpr, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, FUNCTION(tl.load(x + o, mask=o < n), 3), mask=o < n)


@triton.jit
def tupled(p, sizes, y, B: tl.constexpr):
    o = tl.arange(0, B)
    n, scale = sizes
    total = tl.zeros((B,), tl.float32)
    for i in tl.static_range(len(p)):
        total += tl.load(p[i] + o, mask=o < n, other=0.0)
    tl.store(y + o, total * scale, mask=o < n)
