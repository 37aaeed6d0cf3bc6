"""Logic, shifts, permutations, selection and moves."""

from __future__ import annotations

from ptxdiff.emulator.isa.logic import by_table
from ptxdiff.emulator.isa.modifiers import CODES
from ptxdiff.emulator.isa.shift import prmt_mode
from ptxdiff.emulator.numeric.bits import shl64, shr64
from ptxdiff.sass.rows import row


@row("LOP3.LUT", "R = u,u,u,#lut,!PT", uniform=True)
def lop3(a: int, b: int, c: int, lut: int) -> int:
    """Any function of three bits."""
    return by_table(a, b, c, lut)


@row("PLOP3.LUT", "P,P = p,p,p,#lut,#lut2", "P,P = z,z,z,#lut,#lut2", uniform=True)
def plop3(a: int, b: int, c: int, lut: int, lut2: int, result: int) -> int:
    """Two functions of three predicates."""
    return by_table(a, b, c, lut if result == 0 else lut2) & 1


@row("SHF.side{.W}.type{.HI}", "R = u,u,u", side={"L": 0, "R": 1}, type={"U32": 0, "S32": 1, "U64": 2, "S64": 3},
     uniform=True)  # fmt: skip
def shf(a: int, b: int, c: int, side: int, type: int, w: int, hi: int) -> int:
    """A word of c:a shifted by b bits; more than the type's bits count as that many, or with .W modulo that many.

    Since Volta the shift is one of 64 bits whatever the type; a signed type repeats the sign of c.
    """
    bits = 64 if type >= 2 else 32
    by = b & bits - 1 if w else min(b, bits)
    x = shl64(c, 32) | a
    if side == 0:
        found = shl64(x, by) if by < 64 else 0
    elif type & 1:
        found = x >> min(by, 63)
    else:
        found = shr64(x, by) if by < 64 else 0
    return shr64(found, 32) if hi else found


@row("PRMT", "R = u,u,u", uniform=True)
def prmt(a: int, b: int, c: int) -> int:
    """Four bytes of c:a, chosen by the nibbles of b; a nibble's highest bit asks for the byte's sign, repeated."""
    x = shl64(c, 32) | a
    found = 0
    for i in range(4):
        nibble = b >> 4 * i & 15
        byte = shr64(x, 8 * (nibble & 7)) & 255
        if nibble & 8:
            byte = 255 if byte & 128 else 0
        found |= byte << 8 * i
    return found


_MODES = {word: CODES[word.lower()] for word in ("F4E", "B4E", "RC8", "ECL", "ECR", "RC16")}


@row("PRMT.mode", "R = u,u,u", mode=_MODES)
def prmt_in_mode(a: int, b: int, c: int, mode: int) -> int:
    """Four bytes of c:a, in a pattern that starts at the byte in the low two bits of b."""
    return prmt_mode(a, c, b, mode)


@row("SEL", "R = u,u,p", uniform=True)
@row("FSEL", "R = f,f,p", uniform=True)
def sel(a: int, b: int, c: int) -> int:
    """One of two words. FSEL's signs are changed before; it flushes and quiets nothing."""
    return a if c else b


@row("SEL.64", "R2 = Q,Q,p", uniform=True)
def sel_64(a: int, b: int, c: int) -> int:
    """One of two 64-bit numbers."""
    return a if c else b


@row("MOV", "R = u", uniform=True)
def mov(a: int) -> int:
    """The word."""
    return a


@row("MOV.64", "R2 = Q", uniform=True)
def mov_64(a: int) -> int:
    """The 64-bit number."""
    return a


@row("LOP3.LUT", "P,R = u,u,u,#lut,p", uniform=True)
def lop3_or(a: int, b: int, c: int, d: int, lut: int, result: int) -> int:
    """Any function of three bits, and whether a bit of the result is set or a predicate is true."""
    found = by_table(a, b, c, lut) & 0xFFFFFFFF
    return (1 if found else d) if result == 0 else found


@row("LOP3.LUT.PAND", "P,R = u,u,u,#lut,p", uniform=True)
def lop3_and(a: int, b: int, c: int, d: int, lut: int, result: int) -> int:
    """Any function of three bits, and whether a bit of the result is set and a predicate is true."""
    found = by_table(a, b, c, lut) & 0xFFFFFFFF
    return (d if found else 0) if result == 0 else found


@row("LOP3.LUT", "R = u,u,u,#lut,p-", label="LOP3.LUT+p")
@row("LOP3.LUT.PAND", "R = u,u,u,#lut,p", label="LOP3.LUT.PAND+p")
def lop3_alone(a: int, b: int, c: int, d: int, lut: int) -> int:
    """Any function of three bits. The predicate would matter for a second destination alone."""
    return by_table(a, b, c, lut)
