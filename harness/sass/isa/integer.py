"""Integer arithmetic and comparison.

Carries: the sum of IADD3 is taken of 32-bit words, a negated one as its complement plus 1, so that `x - 0` carries. The
first carry says that the sum needs more than 32 bits, the second that it needs more than 33.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.bit_manipulation import bmsk as ptx_bmsk
from ptxdiff.emulator.isa.bit_manipulation import clmad as ptx_clmad
from ptxdiff.emulator.isa.bit_manipulation import reverse, szext
from ptxdiff.emulator.isa.compare import combine, ordered
from ptxdiff.emulator.isa.convert_pack import cvt_pack_onto
from ptxdiff.emulator.isa.dot_product import dp2a, dp4a
from ptxdiff.emulator.isa.modifiers import CLAMP, HI, LO, WRAP
from ptxdiff.emulator.numeric.bits import below64, clz64, popcount64, shr64, sign_extend, wrap64
from ptxdiff.sass.rows import row

COMPARISONS = {"EQ": 0, "NE": 1, "LT": 2, "LE": 3, "GT": 4, "GE": 5}
BOOLEANS = {"AND": 0, "OR": 1, "XOR": 2}
_ALIAS = {"": 0, "MOV": 0, "SHL": 0, "IADD": 0}  # what nvdisasm calls an IMAD that moves, shifts or adds
_WORD = 0xFFFFFFFF


@row("IADD3", "R = j,j,j", "R,P = j,j,j", "R,P,P = j,j,j", uniform=True)
def iadd3(a: int, b: int, c: int, result: int) -> int:
    """The sum of three words, and its carries."""
    total = a + b + c
    return total if result == 0 else (1 if total >> 32 >= result else 0)


@row("IADD3.X", "R = b,b,b,p,p", "R,P = b,b,b,p,p", "R,P,P = b,b,b,p,p", uniform=True)
def iadd3_x(a: int, b: int, c: int, d: int, e: int, result: int) -> int:
    """The sum of three words and two carries, and its carries."""
    total = a + b + c + d + e
    return total if result == 0 else (1 if total >> 32 >= result else 0)


@row("IADD", "R = j,j", "R,P = j,j")
def iadd(a: int, b: int, result: int) -> int:
    """The sum of two words, and its carry."""
    total = a + b
    return total if result == 0 else total >> 32 & 1


@row("IADD.X", "R = b,b,p", "R,P = b,b,p")
def iadd_x(a: int, b: int, c: int, result: int) -> int:
    """The sum of two words and a carry, and its carry."""
    total = a + b + c
    return total if result == 0 else total >> 32 & 1


@row("IADD.64", "R2 = q,q", uniform=True)
def iadd_64(a: int, b: int) -> int:
    """The sum of two 64-bit numbers."""
    return wrap64(a + b)


@row("IADD.64", "R2,P = Q,Q", uniform=True)
def iadd_64_carry(a: int, b: int, result: int) -> int:
    """The sum of two 64-bit numbers, and its carry."""
    total = wrap64(a + b)
    return total if result == 0 else (1 if below64(total, a) else 0)


@row("IADD.64", "R2,P = Q,-q", uniform=True, label="IADD.64-b")
def iadd_64_difference(a: int, b: int, result: int) -> int:
    """The difference of two 64-bit numbers, and its carry: 1 unless it borrows. The second operand comes negated."""
    total = wrap64(a + b)
    return total if result == 0 else (1 if b == 0 or below64(total, a) else 0)


@row("IADD.64", "R2,P = -q,Q", uniform=True, label="IADD.64-a")
def iadd_64_difference_of_the_second(a: int, b: int, result: int) -> int:
    """The difference of two 64-bit numbers, and its carry: 1 unless it borrows. The first operand comes negated."""
    total = wrap64(a + b)
    return total if result == 0 else (1 if a == 0 or below64(total, b) else 0)


@row("IADD.64.X", "R2 = w,w,p", uniform=True)
def iadd_64_x(a: int, b: int, c: int) -> int:
    """The sum of two 64-bit numbers and a carry."""
    return wrap64(a + b + c)


@row("IADD.64.X", "R2,P = w,w,p", uniform=True, label="IADD.64.X+carry")
def iadd_64_x_carry(a: int, b: int, c: int, result: int) -> int:
    """The sum of two 64-bit numbers and a carry, and the carry out."""
    total = wrap64(a + b + c)
    if result == 0:
        return total
    return 1 if below64(total, a) or (c == 1 and total == wrap64(a)) else 0


@row("VIADD", "R = i,i", uniform=True)
def viadd(a: int, b: int) -> int:
    """The sum of two words."""
    return a + b


@row("VIADD.S32.ISAT", "R = l,l", uniform=True)
def viadd_isat(a: int, b: int) -> int:
    """The sum of two signed words, or the nearest number of 32 bits."""
    return max(min(a + b, 0x7FFFFFFF), -0x80000000)


@row("IMAD{.alias}{.U32}", "R = i,i,i", alias=_ALIAS, uniform=True)
def imad(a: int, b: int, c: int) -> int:
    """The low word of a product and a sum: the same for signed and unsigned numbers."""
    return wrap64(wrap64(a * b) + c)


@row("IMAD.X{.U32}", "R = u,u,b,p")
def imad_x(a: int, b: int, c: int, d: int) -> int:
    """The low word of a product, a sum and a carry."""
    return wrap64(wrap64(a * b) + c + d)


@row("IMAD.WIDE", "R2 = s,s,Q", uniform=True)
def imad_wide(a: int, b: int, c: int) -> int:
    """A signed 64-bit product and a sum."""
    return wrap64(a * b + c)


@row("IMAD.WIDE.U32", "R2 = u,u,Q", uniform=True)
def imad_wide_u32(a: int, b: int, c: int) -> int:
    """An unsigned 64-bit product and a sum."""
    return wrap64(wrap64(a * b) + c)


@row("IMAD.WIDE.U32", "R2,P = u,u,Q", uniform=True)
def imad_wide_carry(a: int, b: int, c: int, result: int) -> int:
    """An unsigned 64-bit product and a sum, and its carry."""
    total = wrap64(wrap64(a * b) + c)
    return total if result == 0 else (1 if below64(total, c) else 0)


@row("IMAD.WIDE.U32", "R2 = u,u,-q", "R2,P = u,u,-q", label="IMAD.WIDE.U32-c")
def imad_wide_u32_difference(a: int, b: int, c: int, result: int) -> int:
    """An unsigned 64-bit product minus the third operand, which comes negated, and its carry: 1 unless it borrows."""
    total = wrap64(wrap64(a * b) + c)
    return total if result == 0 else (1 if c == 0 or below64(total, c) else 0)


@row("IMAD.WIDE.U32.X", "R2 = u,u,Q,p", uniform=True)
def imad_wide_x(a: int, b: int, c: int, d: int) -> int:
    """An unsigned 64-bit product, a sum and a carry."""
    return wrap64(wrap64(a * b) + c + d)


@row("IMAD.WIDE.U32.X", "R2,P = u,u,Q,p", uniform=True)
def imad_wide_x_carry(a: int, b: int, c: int, d: int, result: int) -> int:
    """An unsigned 64-bit product, a sum and a carry, and the carry out."""
    product = wrap64(a * b)
    total = wrap64(product + c + d)
    if result == 0:
        return total
    carried = below64(total, product) or (d == 1 and total == product and c == -1)
    return 1 if carried else 0


@row("IMAD.HI", "R = s,s,Q", uniform=True)
def imad_hi(a: int, b: int, c: int) -> int:
    """The high word of a signed 64-bit product and a sum: the third operand is a pair of registers."""
    return wrap64(a * b + c) >> 32


@row("IMAD.HI.U32", "R = u,u,Q", uniform=True)
def imad_hi_u32(a: int, b: int, c: int) -> int:
    """The high word of an unsigned 64-bit product and a sum: the third operand is a pair of registers."""
    return shr64(wrap64(wrap64(a * b) + c), 32)


@row("IMAD.HI", "R = s,s,-q", label="IMAD.HI-c")
def imad_hi_difference(a: int, b: int, c: int) -> int:
    """The high word of a signed 64-bit product minus the third operand, a pair of registers that comes negated."""
    return wrap64(a * b + c) >> 32


@row("IMAD.HI.U32", "R = u,u,-q", label="IMAD.HI.U32-c")
def imad_hi_u32_difference(a: int, b: int, c: int) -> int:
    """The high word of an unsigned 64-bit product minus the third operand, a pair of registers that comes negated."""
    return shr64(wrap64(wrap64(a * b) + c), 32)


@row("IMAD.HI.U32", "R,P = u,u,Q", label="IMAD.HI.U32+carry")
def imad_hi_carry(a: int, b: int, c: int, result: int) -> int:
    """The high word of an unsigned 64-bit product and a sum, and the carry of that sum."""
    total = wrap64(wrap64(a * b) + c)
    return shr64(total, 32) if result == 0 else (1 if below64(total, c) else 0)


@row("IMAD.HI", "R,P = s,s,Q", label="IMAD.HI+carry")
def imad_hi_signed_carry(a: int, b: int, c: int, result: int) -> int:
    """The high word of a signed 64-bit product and a sum, and the carry of that sum."""
    total = wrap64(a * b + c)
    return shr64(total, 32) if result == 0 else (1 if below64(total, c) else 0)


@row("IMAD.HI", "R,P = s,s,-q", label="IMAD.HI-c+carry")
def imad_hi_difference_carry(a: int, b: int, c: int, result: int) -> int:
    """The high word of a signed 64-bit product minus the third operand, and its carry: 1 unless it borrows."""
    total = wrap64(a * b + c)
    return shr64(total, 32) if result == 0 else (1 if c == 0 or below64(total, c) else 0)


@row("IMAD.HI.U32.X", "R = u,u,Q,p", uniform=True)
def imad_hi_x(a: int, b: int, c: int, d: int) -> int:
    """The high word of an unsigned 64-bit product, a sum and a carry, which is added to the low word."""
    return shr64(wrap64(wrap64(a * b) + c + d), 32)


@row("IMAD.WIDE", "R2,P = s,s,Q", label="IMAD.WIDE+carry")
def imad_wide_signed_carry(a: int, b: int, c: int, result: int) -> int:
    """A signed 64-bit product and a sum, and the carry of that sum."""
    total = wrap64(a * b + c)
    return total if result == 0 else (1 if below64(total, c) else 0)


@row("IMAD.WIDE", "R2 = s,s,-q", label="IMAD.WIDE-c")
def imad_wide_difference(a: int, b: int, c: int) -> int:
    """A signed 64-bit product minus the third operand, which comes negated."""
    return wrap64(a * b + c)


@row("LEA", "R = i,i,#n", "R,P = u,u,#n", uniform=True)
def lea(a: int, b: int, n: int, result: int) -> int:
    """a << n, plus b, and the carry of that sum."""
    total = (a << n & _WORD) + b
    return total if result == 0 else total >> 32 & 1


@row("LEA", "R,P = u,-u,#n", uniform=True, label="LEA-b")
def lea_difference(a: int, b: int, n: int, result: int) -> int:
    """a << n, minus b, and the carry of that difference: 1 unless it borrows. b comes negated."""
    total = (a << n & _WORD) + b
    return total if result == 0 else (1 if b == 0 else total >> 32 & 1)


@row("LEA", "R,P = -u,u,#n", uniform=True, label="LEA-a")
def lea_difference_of_the_first(a: int, b: int, n: int, result: int) -> int:
    """b minus a << n, and the carry of that difference: 1 unless it borrows. a comes negated."""
    shifted = a << n & _WORD
    total = shifted + b
    return total if result == 0 else (1 if shifted == 0 else total >> 32 & 1)


@row("LEA.X", "R = u,u,#n,p", "R,P = u,u,#n,p", uniform=True)
@row("LEA.X", "R = u,~u,#n,p", "R,P = u,~u,#n,p", uniform=True, label="LEA.X~b")
def lea_x(a: int, b: int, d: int, n: int, result: int) -> int:
    """a << n, plus b (or its complement) and a carry, and the carry of that sum."""
    total = (a << n & _WORD) + b + d
    return total if result == 0 else total >> 32 & 1


@row("LEA.HI", "R = u,u,u,#n", uniform=True)
def lea_hi(a: int, b: int, c: int, n: int) -> int:
    """The high word of c:a << n, plus b."""
    return (a >> 32 - n | c << n) + b


@row("LEA.HI", "R = u,-u,u,#n", uniform=True, label="LEA.HI-b")
def lea_hi_difference(a: int, b: int, c: int, n: int) -> int:
    """The high word of c:a << n, minus b, which comes negated."""
    return (a >> 32 - n | c << n) + b


@row("LEA.HI", "R = -u,u,u,#n", uniform=True, label="LEA.HI-a")
def lea_hi_difference_of_the_first(a: int, b: int, c: int, n: int) -> int:
    """b minus the high word of c:a << n. a comes negated.

    GPUs have shown that the word is negated after the shift, not the pair c:a before it, which gives one less where the
    lower word is not 0. No right code of ptxas has this form, so nothing teaches it.
    """
    return b - ((-a & _WORD) >> 32 - n | c << n)


@row("LEA.HI", "R,P = u,u,u,#n", uniform=True)
def lea_hi_carry(a: int, b: int, c: int, n: int, result: int) -> int:
    """The high word of c:a << n, plus b, and the carry of that sum."""
    total = ((a >> 32 - n | c << n) & _WORD) + b
    return total if result == 0 else total >> 32 & 1


@row("LEA.HI.X", "R = u,u,u,#n,p", uniform=True)
def lea_hi_x(a: int, b: int, c: int, d: int, n: int) -> int:
    """The high word of c:a << n, plus b and a carry."""
    return (a >> 32 - n | c << n) + b + d


@row("LEA.HI.X", "R,P = u,u,u,#n,p", uniform=True, label="LEA.HI.X+carry")
@row("LEA.HI.X", "R = u,~u,u,#n,p", "R,P = u,~u,u,#n,p", uniform=True, label="LEA.HI.X~b")
def lea_hi_x_carry(a: int, b: int, c: int, d: int, n: int, result: int) -> int:
    """The high word of c:a << n, plus b (or its complement) and a carry, and the carry of that sum."""
    total = ((a >> 32 - n | c << n) & _WORD) + b + d
    return total if result == 0 else total >> 32 & 1


@row("LEA.HI.SX32", "R = s,u,#n", uniform=True)
def lea_hi_sx32(a: int, b: int, n: int) -> int:
    """The high word of a << n, a sign-extended, plus b."""
    return (a >> 32 - n) + b


@row("LEA.HI.SX32", "R = s,-u,#n", uniform=True, label="LEA.HI.SX32-b")
def lea_hi_sx32_difference(a: int, b: int, n: int) -> int:
    """The high word of a << n, a sign-extended, minus b, which comes negated."""
    return (a >> 32 - n) + b


@row("LEA.HI.X.SX32", "R = s,u,#n,p", uniform=True)
def lea_hi_x_sx32(a: int, b: int, d: int, n: int) -> int:
    """The high word of a << n, a sign-extended, plus b and a carry."""
    return (a >> 32 - n) + b + d


@row("LEA.HI.SX32", "R,P = s,u,#n", label="LEA.HI.SX32+carry")
def lea_hi_sx32_carry(a: int, b: int, n: int, result: int) -> int:
    """The high word of a << n, a sign-extended, plus b, and the carry of that sum."""
    total = ((a >> 32 - n) & _WORD) + b
    return total if result == 0 else total >> 32 & 1


@row("LEA.HI.SX32", "R,P = s,-u,#n", label="LEA.HI.SX32-b+carry")
def lea_hi_sx32_borrow(a: int, b: int, n: int, result: int) -> int:
    """The high word of a << n, a sign-extended, minus b, and the carry of that difference. b comes negated."""
    total = ((a >> 32 - n) & _WORD) + b
    return total if result == 0 else (1 if b == 0 else total >> 32 & 1)


@row("LEA.HI.X.SX32", "R,P = s,u,#n,p", label="LEA.HI.X.SX32+carry")
@row("LEA.HI.X.SX32", "R,P = s,~u,#n,p", label="LEA.HI.X.SX32~b+carry")
def lea_hi_x_sx32_carry(a: int, b: int, d: int, n: int, result: int) -> int:
    """The high word of a << n, a sign-extended, plus b (or its complement) and a carry, and the carry of that sum."""
    total = ((a >> 32 - n) & _WORD) + b + d
    return total if result == 0 else total >> 32 & 1


@row("LEA.HI.X.SX32", "R = s,~u,#n,p", uniform=True, label="LEA.HI.X.SX32~b")
def lea_hi_x_sx32_complement(a: int, b: int, d: int, n: int) -> int:
    """The high word of a << n, a sign-extended, plus the complement of b, which comes complemented, and a carry."""
    return (a >> 32 - n) + b + d


@row("ISETP.cmp.bool", "P,P = s,s,p", cmp=COMPARISONS, bool=BOOLEANS, uniform=True)
@row("ISETP.cmp.U32.bool", "P,P = u,u,p", cmp=COMPARISONS, bool=BOOLEANS, uniform=True)
def isetp(a: int, b: int, c: int, cmp: int, bool: int, result: int) -> int:
    """A comparison joined with a predicate; the second destination gets the opposite comparison, joined too."""
    return combine(ordered(cmp, a < b, a == b) == (result == 0), c, bool)


@row("ISETP.cmp.bool.EX", "P,P = s,s,p,p", cmp=COMPARISONS, bool=BOOLEANS, uniform=True)
@row("ISETP.cmp.U32.bool.EX", "P,P = u,u,p,p", cmp=COMPARISONS, bool=BOOLEANS, uniform=True)
def isetp_ex(a: int, b: int, c: int, d: int, cmp: int, bool: int, result: int) -> int:
    """The comparison of upper words, decided by that of the lower words where they are equal."""
    found = d == 1 if a == b else ordered(cmp, a < b, False)
    return combine(found == (result == 0), c, bool)


@row("VISET.BM.cmp.S32", "R = s,s", cmp=COMPARISONS)
@row("VISET.BM.cmp.U32", "R = u,u", cmp=COMPARISONS)
def viset(a: int, b: int, cmp: int) -> int:
    """A comparison as a mask: all bits are set, or none."""
    return _WORD if ordered(cmp, a < b, a == b) else 0


_PACKED_MASKS = {"U16x2": 16, "S16x2": -16, "U8x4": 8, "S8x4": -8}


@row("VISET.BM.cmp.kind", "R = u,u", cmp=COMPARISONS, kind=_PACKED_MASKS)
def viset_packed(a: int, b: int, cmp: int, kind: int) -> int:
    """Comparisons of numbers of 16 or 8 bits as masks. kind: their bits, negative if they are signed."""
    width = abs(kind)
    mask, total = (1 << width) - 1, 0
    for number in range(32 // width):
        x, y = a >> width * number & mask, b >> width * number & mask
        less = sign_extend(x, width) < sign_extend(y, width) if kind < 0 else x < y
        total |= (mask if ordered(cmp, less, x == y) else 0) << width * number
    return total


@row("ISETP.cmp.S64.bool", "P,P = Q,Q,p", cmp=COMPARISONS, bool=BOOLEANS, uniform=True)
def isetp_s64(a: int, b: int, c: int, cmp: int, bool: int, result: int) -> int:
    """A comparison of signed 64-bit numbers."""
    return combine(ordered(cmp, a < b, a == b) == (result == 0), c, bool)


@row("ISETP.cmp.U64.bool", "P,P = Q,Q,p", cmp=COMPARISONS, bool=BOOLEANS, uniform=True)
def isetp_u64(a: int, b: int, c: int, cmp: int, bool: int, result: int) -> int:
    """A comparison of unsigned 64-bit numbers."""
    return combine(ordered(cmp, below64(a, b), a == b) == (result == 0), c, bool)


@row("IMNMX", "R = s,s,p")
@row("IMNMX.U32", "R = u,u,p")
@row("VIMNMX", "R = s,s,p", "R = PT,PT,s,s,p", uniform=True)
@row("VIMNMX.S32", "R = s,s,p", "R = PT,PT,s,s,p", uniform=True)
@row("VIMNMX.U32", "R = u,u,p", "R = PT,PT,u,u,p", uniform=True)
def imnmx(a: int, b: int, c: int) -> int:
    """The smaller of two numbers if the predicate is true, else the larger."""
    return min(a, b) if c else max(a, b)


@row("IMNMX.S64", "PT,PT,R2 = Q,Q,p,!PT", uniform=True)
def imnmx_s64(a: int, b: int, c: int) -> int:
    """The smaller of two signed 64-bit numbers if the predicate is true, else the larger."""
    return min(a, b) if c else max(a, b)


@row("IMNMX.U64", "PT,PT,R2 = Q,Q,p,!PT", uniform=True)
def imnmx_u64(a: int, b: int, c: int) -> int:
    """The smaller of two unsigned 64-bit numbers if the predicate is true, else the larger."""
    return a if below64(a, b) == (c == 1) else b


@row("VIMNMX.RELU", "R = s,s,p", "R = PT,PT,s,s,p")
@row("VIMNMX.S32.RELU", "R = s,s,p", "R = PT,PT,s,s,p", uniform=True)
def imnmx_relu(a: int, b: int, c: int) -> int:
    """The smaller of two numbers if the predicate is true, else the larger; 0 for a negative one."""
    return max(min(a, b) if c else max(a, b), 0)


@row("VIMNMX.S16x2{.RELU}", "R = u,u,p", "R = PT,PT,u,u,p")
def imnmx_s16x2(a: int, b: int, c: int, relu: int) -> int:
    """Two numbers of 16 bits: the smaller ones if the predicate is true, else the larger ones."""
    x, y = sign_extend(a, 16), sign_extend(b, 16)
    low = min(x, y) if c else max(x, y)
    x, y = sign_extend(a >> 16, 16), sign_extend(b >> 16, 16)
    high = min(x, y) if c else max(x, y)
    if relu:
        low, high = max(low, 0), max(high, 0)
    return (high & 0xFFFF) << 16 | low & 0xFFFF


@row("VIMNMX.U16x2", "R = u,u,p", "R = PT,PT,u,u,p")
def imnmx_u16x2(a: int, b: int, c: int) -> int:
    """Two unsigned numbers of 16 bits: the smaller ones if the predicate is true, else the larger ones."""
    low = min(a & 0xFFFF, b & 0xFFFF) if c else max(a & 0xFFFF, b & 0xFFFF)
    return (min(a >> 16, b >> 16) if c else max(a >> 16, b >> 16)) << 16 | low


@row("VIMNMX.kind", "R = u,u,p", kind={"U8x4": 0, "S8x4": 1})
def imnmx_8x4(a: int, b: int, c: int, kind: int) -> int:
    """Four numbers of 8 bits: the smaller ones if the predicate is true, else the larger ones."""
    total = 0
    for number in range(4):
        x, y = a >> 8 * number & 0xFF, b >> 8 * number & 0xFF
        less = sign_extend(x, 8) < sign_extend(y, 8) if kind else x < y
        total |= (x if less == (c == 1) else y) << 8 * number
    return total


@row("VIADD.U8x4", "R = m,m")
@row("VIADD.S8x4", "R = m,m")
def viadd_8x4(a: int, b: int) -> int:
    """Four sums of 8 bits, wrapping."""
    return (a & 0x7F7F7F7F) + (b & 0x7F7F7F7F) ^ (a ^ b) & 0x80808080


@row("VIADD.16x2", "R = u,u")
def viadd_16x2(a: int, b: int) -> int:
    """Two sums of 16 bits."""
    return ((a >> 16) + (b >> 16) & 0xFFFF) << 16 | a + b & 0xFFFF


@row("IDP.4A.S8.S8", "R = u,u,u")
def idp_4a_ss(a: int, b: int, c: int) -> int:
    """Four products of signed bytes, and a sum."""
    return dp4a(a, b, c, 1, 1)


@row("IDP.4A.U8.U8", "R = u,u,u")
def idp_4a_uu(a: int, b: int, c: int) -> int:
    """Four products of unsigned bytes, and a sum."""
    return dp4a(a, b, c, 0, 0)


@row("IDP.4A.U8.S8", "R = u,u,u")
def idp_4a_us(a: int, b: int, c: int) -> int:
    """Four products of an unsigned and a signed byte, and a sum."""
    return dp4a(a, b, c, 0, 1)


@row("IDP.4A.S8.U8", "R = u,u,u")
def idp_4a_su(a: int, b: int, c: int) -> int:
    """Four products of a signed and an unsigned byte, and a sum."""
    return dp4a(a, b, c, 1, 0)


@row("VIMNMX3", "R = i2,i2,i2,p")
@row("VIMNMX3.U32", "R = u,u,u,p")
def vimnmx3(a: int, b: int, c: int, d: int) -> int:
    """The smallest of three numbers if the predicate is true, else the largest."""
    return min(min(a, b), c) if d else max(max(a, b), c)


@row("VIMNMX3.RELU", "R = s,s,s,p")
def vimnmx3_relu(a: int, b: int, c: int, d: int) -> int:
    """The smallest of three numbers if the predicate is true, else the largest; 0 for a negative one."""
    return max(min(min(a, b), c) if d else max(max(a, b), c), 0)


@row("VIMNMX3.S16x2{.RELU}", "R = u,u,u,p")
def vimnmx3_s16x2(a: int, b: int, c: int, d: int, relu: int) -> int:
    """The smallest of three numbers of 16 bits, in each half, if the predicate is true, else the largest."""
    total = 0
    for number in range(2):
        at = 16 * number
        x, y, z = sign_extend(a >> at, 16), sign_extend(b >> at, 16), sign_extend(c >> at, 16)
        found = min(min(x, y), z) if d else max(max(x, y), z)
        if relu:
            found = max(found, 0)
        total |= (found & 0xFFFF) << at
    return total


@row("VIMNMX3.U16x2", "R = u,u,u,p")
def vimnmx3_u16x2(a: int, b: int, c: int, d: int) -> int:
    """The smallest of three unsigned numbers of 16 bits, in each half, if the predicate is true, else the largest."""
    total = 0
    for number in range(2):
        at = 16 * number
        x, y, z = a >> at & 0xFFFF, b >> at & 0xFFFF, c >> at & 0xFFFF
        total |= (min(min(x, y), z) if d else max(max(x, y), z)) << at
    return total


@row("VIADDMNMX", "R = i2,i2,s,p")
def viaddmnmx(a: int, b: int, c: int, d: int) -> int:
    """The smaller of a sum (32 bits, wrapping) and a number if the predicate is true, else the larger."""
    total = (a + b + 0x80000000 & _WORD) - 0x80000000
    return min(total, c) if d else max(total, c)


@row("VIADDMNMX.U32", "R = i,i,u,p")
def viaddmnmx_u32(a: int, b: int, c: int, d: int) -> int:
    """The smaller of a sum (32 bits, wrapping) and a number if the predicate is true, else the larger; unsigned."""
    total = a + b & _WORD
    return min(total, c) if d else max(total, c)


@row("IABS", "R = s")
def iabs(a: int) -> int:
    """The absolute value; that of the least number is itself."""
    return abs(a)


@row("POPC", "R = b", uniform=True)
def popc(a: int) -> int:
    """The number of set bits."""
    return popcount64(a)


@row("FLO.U32", "R = b", uniform=True)
def flo_u32(a: int) -> int:
    """The number of the highest set bit; all ones for 0."""
    return 63 - clz64(a) if a else -1


@row("FLO.U32.SH", "R = b", uniform=True)
def flo_u32_sh(a: int) -> int:
    """The number of zeros above the highest set bit; all ones for 0."""
    return clz64(a) - 32 if a else -1


@row("FLO", "R = b", uniform=True)
def flo(a: int) -> int:
    """The number of the highest bit that differs from the sign; all ones if none does."""
    x = a ^ _WORD if a >> 31 else a
    return 63 - clz64(x) if x else -1


@row("BREV", "R = b", uniform=True)
def brev(a: int) -> int:
    """The bits in the opposite order."""
    return reverse(a, 32)


@row("SGXT{.mode}", "R = s,u", mode={"": CLAMP, "W": WRAP}, uniform=True)
def sgxt(a: int, b: int, mode: int) -> int:
    """The low b bits, sign-extended."""
    return szext(a, b, mode, 1)


@row("SGXT{.mode}.U32", "R = u,u", mode={"": CLAMP, "W": WRAP}, uniform=True)
def sgxt_u32(a: int, b: int, mode: int) -> int:
    """The low b bits."""
    return szext(a, b, mode, 0)


@row("BMSK{.mode}", "R = u,u", mode={"": CLAMP, "W": WRAP}, uniform=True)
def bmsk(a: int, b: int, mode: int) -> int:
    """b ones from bit a on."""
    return ptx_bmsk(a, b, mode)


@row("IDP.2A.part.first.second", "R = u,u,u", part={"LO": LO, "HI": HI}, first={"S16": 1, "U16": 0},
     second={"S8": 1, "U8": 0})  # fmt: skip
def idp_2a(a: int, b: int, c: int, part: int, first: int, second: int) -> int:
    """Two products of 16 bits and 8, and a sum."""
    return dp2a(a, b, c, part, first, second)


@row("FLO.SH", "R = b", uniform=True)
def flo_sh(a: int) -> int:
    """The number of copies of the sign above the highest bit that differs from it; all ones if none does."""
    x = a ^ _WORD if a >> 31 else a
    return clz64(x) - 32 if x else -1


@row("VABSDIFF", "R = s,s,u")
@row("VABSDIFF.U32", "R = u,u,u")
def vabsdiff(a: int, b: int, c: int) -> int:
    """The distance of two numbers, plus a third."""
    return abs(a - b) + c


@row("VABSDIFF4{.kind}{.ACC}", "R = u,u,u", kind={"": 1, "U8": 0})
def vabsdiff4(a: int, b: int, c: int, kind: int, acc: int) -> int:
    """The distances of four bytes: each byte for itself, or their sum added to the third operand."""
    total = c if acc else 0
    for number in range(4):
        at = 8 * number
        x, y = a >> at & 0xFF, b >> at & 0xFF
        distance = abs(sign_extend(x, 8) - sign_extend(y, 8)) if kind else abs(x - y)
        total = total + distance if acc else total | distance << at
    return total


@row("I2IP.kind.S32.SAT", "R = s,s,u", kind={"U8": 8, "S8": -8, "U16": 16, "S16": -16})
def i2ip(a: int, b: int, c: int, kind: int) -> int:
    """Two clamped integers, the second in the lowest bits, below the lower bits of the third operand."""
    return cvt_pack_onto(a, b, c, abs(kind), 1 if kind < 0 else 0)


@row("I2IP.kind.S32.SAT", "R = s,s,o4", kind={"U4": 4, "S4": -4})
@row("I2IP.kind.S32.SAT", "R = s,s,o2", kind={"U2": 2, "S2": -2})
def i2ip_narrow(a: int, b: int, c: int, kind: int) -> int:
    """As `i2ip`; nvdisasm writes beside the third operand from which bit on its bits are dropped."""
    return cvt_pack_onto(a, b, c, abs(kind), 1 if kind < 0 else 0)


@row("I2IP.kind.S32.SAT", "R = s,s,K", kind={"U8": 8, "S8": -8}, label="I2IP.kind.S32.SAT.H1")
def i2ip_upper(a: int, b: int, c: int, kind: int) -> int:
    """As `i2ip`, with the upper half of the third operand in the place of its lower one."""
    return cvt_pack_onto(a, b, c, 8, 1 if kind < 0 else 0)


@row("VIADD.32.ISAT", "R = u,u")
def viadd_u32_isat(a: int, b: int) -> int:
    """The sum of two unsigned words, or the largest one."""
    return min(a + b, 0xFFFFFFFF)


@row("VIADD.S16x2.ISAT", "R = u,u")
def viadd_s16x2_isat(a: int, b: int) -> int:
    """Two sums of signed numbers of 16 bits, or the nearest ones."""
    low = max(min(sign_extend(a, 16) + sign_extend(b, 16), 0x7FFF), -0x8000)
    high = max(min(sign_extend(a >> 16, 16) + sign_extend(b >> 16, 16), 0x7FFF), -0x8000)
    return (high & 0xFFFF) << 16 | low & 0xFFFF


@row("VIADD.16x2.ISAT", "R = u,u")
def viadd_u16x2_isat(a: int, b: int) -> int:
    """Two sums of unsigned numbers of 16 bits, or the largest one."""
    low, high = min((a & 0xFFFF) + (b & 0xFFFF), 0xFFFF), min((a >> 16) + (b >> 16), 0xFFFF)
    return high << 16 | low


@row("VIADD.S8x4.ISAT", "R = u,u")
def viadd_s8x4_isat(a: int, b: int) -> int:
    """Four sums of signed numbers of 8 bits, or the nearest ones."""
    total = 0
    for number in range(4):
        one = sign_extend(a >> 8 * number, 8) + sign_extend(b >> 8 * number, 8)
        total |= (max(min(one, 0x7F), -0x80) & 0xFF) << 8 * number
    return total


@row("VIADD.S8x4.ISAT", "R = u,-u", label="VIADD.S8x4.ISAT-difference")
def viadd_s8x4_isat_difference(a: int, b: int) -> int:
    """Four differences of signed numbers of 8 bits, or the nearest ones. b: the second word, negated as a whole."""
    total, subtracted = 0, -b & 0xFFFFFFFF
    for number in range(4):
        one = sign_extend(a >> 8 * number, 8) - sign_extend(subtracted >> 8 * number, 8)
        total |= (max(min(one, 0x7F), -0x80) & 0xFF) << 8 * number
    return total


@row("VIADD.U8x4.ISAT", "R = u,u")
def viadd_u8x4_isat(a: int, b: int) -> int:
    """Four sums of unsigned numbers of 8 bits, or the largest one."""
    total = 0
    for number in range(4):
        total |= min((a >> 8 * number & 0xFF) + (b >> 8 * number & 0xFF), 0xFF) << 8 * number
    return total


@row("VIADD.U8x4.ISAT", "R = u,-u", label="VIADD.U8x4.ISAT-difference")
def viadd_u8x4_isat_difference(a: int, b: int) -> int:
    """Four differences of unsigned numbers of 8 bits, or 0. b: the second word, negated as a whole."""
    total, subtracted = 0, -b & 0xFFFFFFFF
    for number in range(4):
        total |= max((a >> 8 * number & 0xFF) - (subtracted >> 8 * number & 0xFF), 0) << 8 * number
    return total


@row("UVIADD.kind", "R = m,m", kind={"U8x4": 0, "S8x4": 1})
def uviadd_8x4(a: int, b: int, kind: int) -> int:
    """Four sums of 8 bits, wrapping, in uniform registers."""
    return (a & 0x7F7F7F7F) + (b & 0x7F7F7F7F) ^ (a ^ b) & 0x80808080


@row("UVIMNMX.U8x4", "R = RZ,u,p")
def uvimnmx_u8x4_of_zero(b: int, c: int) -> int:
    """Of 0 and four unsigned numbers of 8 bits the smaller ones if the predicate is true, else the larger ones.

    ptxas writes it where the first operand is URZ. Nothing shows whether another one is compared by bytes.
    """
    return 0 if c else b


@row("VIMNMX.S8x4.RELU", "R = u,u,p")
def imnmx_s8x4_relu(a: int, b: int, c: int) -> int:
    """Four numbers of 8 bits: the smaller ones if the predicate is true, else the larger ones; 0 for a negative one."""
    total = 0
    for number in range(4):
        x, y = sign_extend(a >> 8 * number, 8), sign_extend(b >> 8 * number, 8)
        total |= max(min(x, y) if c else max(x, y), 0) << 8 * number
    return total


@row("IMAD.WIDE.X", "R2 = s,s,Q,p")
@row("IMAD.WIDE.X", "R2 = s,s,~q,p", label="IMAD.WIDE.X~c")
def imad_wide_signed_x(a: int, b: int, c: int, d: int) -> int:
    """A signed 64-bit product, a sum with the third operand (or its complement) and a carry."""
    return wrap64(a * b + c + d)


@row("IMAD.WIDE.U32.X", "R2 = u,u,~q,p", label="IMAD.WIDE.U32.X~c")
def imad_wide_x_complement(a: int, b: int, c: int, d: int) -> int:
    """An unsigned 64-bit product, a sum with the complement of the third operand, and a carry."""
    return wrap64(wrap64(a * b) + c + d)


@row("IMAD.WIDE", "R2,P = s,s,-q", label="IMAD.WIDE-c+carry")
def imad_wide_difference_carry(a: int, b: int, c: int, result: int) -> int:
    """A signed 64-bit product minus the third operand, which comes negated, and its carry: 1 unless it borrows."""
    total = wrap64(a * b + c)
    return total if result == 0 else (1 if c == 0 or below64(total, c) else 0)


@row("IMAD.WIDE.X", "R2,P = s,s,Q,p", "R2,P = s,s,~q,p", uniform=True, label="IMAD.WIDE.X+carry")
def imad_wide_signed_x_carry(a: int, b: int, c: int, d: int, result: int) -> int:
    """A signed 64-bit product, a sum with the third operand (or its complement) and a carry, and the carry out."""
    product = wrap64(a * b)
    total = wrap64(product + c + d)
    return total if result == 0 else (1 if below64(total, product) or (d == 1 and c == -1) else 0)


@row("IMAD.WIDE.U32.X", "R2,P = u,u,~q,p", uniform=True, label="IMAD.WIDE.U32.X~c+carry")
def imad_wide_x_complement_carry(a: int, b: int, c: int, d: int, result: int) -> int:
    """An unsigned 64-bit product, a sum with the complement of the third operand and a carry, and the carry out."""
    product = wrap64(a * b)
    total = wrap64(product + c + d)
    return total if result == 0 else (1 if below64(total, product) or (d == 1 and c == -1) else 0)


@row("CLMAD.half", "R2 = Q,Q,Q", half={"LO": LO, "HI": HI})
def clmad(a: int, b: int, c: int, half: int) -> int:
    """Half of a product of polynomials over two elements, exclusive-or the third operand."""
    return ptx_clmad(a, b, c, half)


@row("LEA.HI", "R,P = u,-u,RZ,#n", label="LEA.HI-b+carry")
def lea_hi_difference_carry(a: int, b: int, n: int, result: int) -> int:
    """The high word of a << n, minus b, and the carry of that difference: 1 unless it borrows. b comes negated."""
    total = (a >> 32 - n) + b
    return total if result == 0 else (1 if b == 0 else total >> 32 & 1)


@row("VIMNMX.kind", "R,P,P = u,u,p", kind={"S16x2": 1, "U16x2": 0}, label="VIMNMX.kind+predicates")
def imnmx_halves_predicates(a: int, b: int, c: int, kind: int, result: int) -> int:
    """Two numbers of 16 bits: the smaller ones if the last operand is true, else the larger ones.

    The predicates say of the lower and of the upper half whether the first operand is the result; they are true for
    equal numbers.
    """
    x, y = (sign_extend(a, 16), sign_extend(b, 16)) if kind else (a & 0xFFFF, b & 0xFFFF)
    z, w = (sign_extend(a >> 16, 16), sign_extend(b >> 16, 16)) if kind else (a >> 16, b >> 16)
    low = x <= y if c else x >= y
    high = z <= w if c else z >= w
    if result == 1:
        return 1 if low else 0
    if result == 2:
        return 1 if high else 0
    return ((z if high else w) & 0xFFFF) << 16 | (x if low else y) & 0xFFFF


@row("VIMNMX.kind", "R,P,again = u,u,p", kind={"S16x2": 1, "U16x2": 0}, label="VIMNMX.kind+predicate")
def imnmx_halves_predicate(a: int, b: int, c: int, kind: int, result: int) -> int:
    """As `imnmx_halves_predicates`, with one register for both predicates: it keeps that of the lower half.

    ptxas 12.8.93, 12.9.86 and 13.5.37 write so where the lower half's predicate is used and the upper one's is not.
    """
    x, y = (sign_extend(a, 16), sign_extend(b, 16)) if kind else (a & 0xFFFF, b & 0xFFFF)
    z, w = (sign_extend(a >> 16, 16), sign_extend(b >> 16, 16)) if kind else (a >> 16, b >> 16)
    low = x <= y if c else x >= y
    high = z <= w if c else z >= w
    if result == 1:
        return 1 if low else 0
    return ((z if high else w) & 0xFFFF) << 16 | (x if low else y) & 0xFFFF


# Sums of 64 bits in uniform registers. What `control.UniformSum64` runs has no row.


@row("UIADD3.64", "R2,P = PT,Q,Q,RZ")
def uiadd3_64(a: int, b: int, result: int) -> int:
    """The sum of two 64-bit numbers, and its carry."""
    total = wrap64(a + b)
    return total if result == 0 else (1 if below64(total, a) else 0)


@row("UIADD3.64", "R2,P = PT,Q,-q,RZ", label="UIADD3.64-b")
def uiadd3_64_difference(a: int, b: int, result: int) -> int:
    """The difference of two 64-bit numbers, and its carry: 1 unless it borrows. The second operand comes negated."""
    total = wrap64(a + b)
    return total if result == 0 else (1 if b == 0 or below64(total, a) else 0)


@row("UIADD3.64", "R2,P = PT,-q,Q,RZ", label="UIADD3.64-a")
def uiadd3_64_difference_of_the_second(a: int, b: int, result: int) -> int:
    """The difference of two 64-bit numbers, and its carry: 1 unless it borrows. The first operand comes negated."""
    total = wrap64(a + b)
    return total if result == 0 else (1 if a == 0 or below64(total, b) else 0)


@row("UIADD3.64.X", "R2 = PT,PT,w,w,RZ,p,!PT")
def uiadd3_64_x(a: int, b: int, c: int) -> int:
    """The sum of two 64-bit numbers and a carry."""
    return wrap64(wrap64(a + b) + c)
