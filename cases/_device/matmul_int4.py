"""A product of float16 with 4-bit weights, four in a word of 16 bits, which are widened before the tensor cores.

For words of 8 bits Triton permutes k among the lanes, which would change the order of the sums. Triton 3.6 also does so
if `join` comes before the product. So the loop widens the weights of its next step: Triton does not look beyond a value
that a loop carries.
"""

import triton
import triton.language as tl

# The asm of int4_to_f16.less8. Of two words in a register, nibble k of both is output k.
WIDENED = tl.constexpr("""{
    .reg .b32 t, low, high, sixteenth;
    mov.b32 low, 0x64086408;  mov.b32 high, 0xD480D480;  mov.b32 sixteenth, 0x2C002C00;   // 1032, -72, 1/16
    lop3.b32 $0, $4, 0x000F000F, 0x64006400, 0xEA;
    lop3.b32 $1, $4, 0x00F000F0, 0x64006400, 0xEA;
    shr.u32 t, $4, 8;
    lop3.b32 $2, t, 0x000F000F, 0x64006400, 0xEA;
    lop3.b32 $3, t, 0x00F000F0, 0x64006400, 0xEA;
    sub.f16x2 $0, $0, low;  fma.rn.f16x2 $1, $1, sixteenth, high;
    sub.f16x2 $2, $2, low;  fma.rn.f16x2 $3, $3, sixteenth, high;
}""")


@triton.jit
def nibble(q, k: tl.constexpr):
    """One of the four numbers of a word, minus 8."""
    return (((q >> (4 * k)) & 15).to(tl.int32) - 8).to(tl.float16)


@triton.jit
def widened(q, LOP3: tl.constexpr):
    """The four numbers of each word, the lowest first, along the last dimension."""
    if LOP3:
        a, b, c, d = tl.inline_asm_elementwise(
            WIDENED, "=&r,=&r,=&r,=&r,r", [q], dtype=(tl.float16,) * 4, is_pure=True, pack=2
        )
    else:
        a, b, c, d = nibble(q, 0), nibble(q, 1), nibble(q, 2), nibble(q, 3)
    return tl.join(tl.join(a, c), tl.join(b, d))


@triton.jit
def weights(q, n, k, K, N, TILE: tl.constexpr, LOP3: tl.constexpr):
    """Rows k of one tile of b; zeros where q has no such row or column."""
    word = n * (TILE // 4) + tl.arange(0, TILE // 4)[None, :]
    inside = (k[:, None] < K) & (word < N // 4)
    words = tl.load(q + k[:, None] * (N // 4) + word, mask=inside, other=0x8888)
    return tl.reshape(widened(words, LOP3), (k.shape[0], TILE))


@triton.jit
def product(a, q, d, M, N, K, TILE: tl.constexpr, STEP: tl.constexpr, LOP3: tl.constexpr):
    """One tile of d = a b, where a word of q has four neighbours in a row of b."""
    m = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    n = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    k = tl.arange(0, STEP)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    right = weights(q, tl.program_id(1), k, K, N, TILE, LOP3)
    for _ in range(0, K, STEP):
        left = tl.load(a + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0)
        total = tl.dot(left, right, total)
        k += STEP
        right = weights(q, tl.program_id(1), k, K, N, TILE, LOP3)
    tl.store(d + m * N + n, total, mask=(m < M) & (n < N))
