"""The codes of modifiers that scalar definitions receive.

A parameter with the name of a modifier group gets the code of the written modifier, or of the group's first alternative
if none was written. A parameter with the name of a flag (`ftz`) gets 0 or 1.
"""

from __future__ import annotations

from ptxdiff.emulator.numeric.floatbits import BF16, F16, F32, F64
from ptxdiff.emulator.text.types import NARROW

RN, RZ, RM, RP, RNA, RS = 0, 1, 2, 3, 4, 5
EQ, NE, LT, LE, GT, GE = 0, 1, 2, 3, 4, 5
LO, LS, HI, HS = 6, 7, 8, 9
EQU, NEU, LTU, LEU, GTU, GEU, NUM, NAN = 10, 11, 12, 13, 14, 15, 16, 17
AND, OR, XOR = 0, 1, 2
WRAP, CLAMP = 0, 1
LEFT, RIGHT = 0, 1
U32, S32 = 0, 1
ADD, MIN, MAX = 0, 1, 2
SHR7, SHR15 = 7, 15
F4E, B4E, RC8, ECL, ECR, RC16 = 1, 2, 3, 4, 5, 6

CODES: dict[str, int] = {
    "rn": RN, "rz": RZ, "rm": RM, "rp": RP, "rna": RNA, "rs": RS,
    "rni": RN, "rzi": RZ, "rmi": RM, "rpi": RP,
    "eq": EQ, "ne": NE, "lt": LT, "le": LE, "gt": GT, "ge": GE,
    "lo": LO, "ls": LS, "hi": HI, "hs": HS,
    "equ": EQU, "neu": NEU, "ltu": LTU, "leu": LEU, "gtu": GTU, "geu": GEU, "num": NUM, "nan": NAN,
    "and": AND, "or": OR, "xor": XOR,
    "f4e": F4E, "b4e": B4E, "rc8": RC8, "ecl": ECL, "ecr": ECR, "rc16": RC16,
    "wrap": WRAP, "clamp": CLAMP, "l": LEFT, "r": RIGHT,
    "add": ADD, "min": MIN, "max": MAX, "shr7": SHR7, "shr15": SHR15,
    "u32": U32, "s32": S32, "f32": F32, "f16": F16, "bf16": BF16, "f64": F64,
    "u16": U32, "s16": S32, "f16x2": F16, "bf16x2": BF16, "f32x2": F32,
    # Packed integers: the bits of an element, and 32 more if it is signed.
    "u16x2": 16, "s16x2": 48, "u8x4": 8, "s8x4": 40,
    **{name: narrow.code for narrow in NARROW if narrow.code is not None for name in narrow.types},
    "finite": 0, "infinite": 1, "number": 2, "notanumber": 3, "normal": 4, "subnormal": 5,
}  # fmt: skip
"""The code of each modifier. Add a row for a new modifier; codes must differ only within one group."""

VECTORS = frozenset({"v2", "v4", "v8"})
"""Vector sizes. As for types, their order in the spelling matters."""

_IGNORED = (
    frozenset({"finite", "infinite", "number", "notanumber", "normal", "subnormal"}),
    frozenset({"acc::f32"}),
    frozenset({"assume_large"}),
    frozenset({"box_dim", "element_stride", "elemtype", "fill_mode", "global_address", "global_dim", "global_stride"})
    | {"interleave_layout", "rank", "swizzle_atomicity", "swizzle_mode"},
)
_LAYOUTS = {"ldmatrix": frozenset({"row", "col"})}
"""Words that ptxas ignores on one instruction."""
_ELEMENTS = frozenset({"b8x16", "b6x16_p32", "b4x16_p64"})
_WITH_ELEMENTS = frozenset({"ldmatrix", "tcgen05"})
NEWER = {"assume_large": 90}
"""Modifiers that the assembler for targets below a number does not have."""
_NO_NUMBERS = frozenset({"pred", "texref", "samplerref", "surfref"})
_WITH_FLOATS = frozenset(
    {"abs", "add", "cos", "cvt", "ex2", "fma", "lg2", "max", "min", "mul", "neg", "rcp", "rsqrt", "set", "setp", "sin"}
    | {"sqrt", "sub", "tanh"}
)


def heeded(opcode: str, modifiers: tuple[str, ...]) -> tuple[str, ...]:
    """The modifiers without those that ptxas (12.9, 13.4) accepts and ignores: the code is the same without them.

    Ignored are one modifier of each group that some other instruction has (classes of testp, fields of a tensor map),
    and types that are no numbers on instructions that may have float operands, except products of integers. Ignored are
    also any elements of tensor copies (`.b8x16`) on instructions that copy no matrices.
    """
    if opcode not in _WITH_ELEMENTS and not _ELEMENTS.isdisjoint(modifiers):
        modifiers = tuple(m for m in modifiers if m not in _ELEMENTS)
    for group in _IGNORED[opcode == "testp" : 3 if opcode == "tensormap" else None]:
        if sum(m in group for m in modifiers) == 1:
            modifiers = tuple(m for m in modifiers if m not in group)
    if opcode in _LAYOUTS and sum(m in _LAYOUTS[opcode] for m in modifiers) == 1:
        modifiers = tuple(m for m in modifiers if m not in _LAYOUTS[opcode])
    if opcode in _WITH_FLOATS and {"lo", "hi", "wide"}.isdisjoint(modifiers):
        modifiers = tuple(m for m in modifiers if m not in _NO_NUMBERS)
    return modifiers
