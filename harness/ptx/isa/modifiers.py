"""Numbers for modifiers, as scalar definitions receive them.

A definition's parameter named like a modifier group gets the code of the modifier written, or of the group's
first alternative when it was left out; a parameter named like a flag (`ftz`) gets 0 or 1.
"""

from __future__ import annotations

RN, RZ, RM, RP, RNA, RS = 0, 1, 2, 3, 4, 5
EQ, NE, LT, LE, GT, GE = 0, 1, 2, 3, 4, 5
LO, LS, HI, HS = 6, 7, 8, 9
EQU, NEU, LTU, LEU, GTU, GEU, NUM, NAN = 10, 11, 12, 13, 14, 15, 16, 17
AND, OR, XOR = 0, 1, 2

CODES: dict[str, int] = {
    "rn": RN, "rz": RZ, "rm": RM, "rp": RP, "rna": RNA, "rs": RS,
    "rni": RN, "rzi": RZ, "rmi": RM, "rpi": RP,
    "eq": EQ, "ne": NE, "lt": LT, "le": LE, "gt": GT, "ge": GE,
    "lo": LO, "ls": LS, "hi": HI, "hs": HS,
    "equ": EQU, "neu": NEU, "ltu": LTU, "leu": LEU, "gtu": GTU, "geu": GEU, "num": NUM, "nan": NAN,
    "and": AND, "or": OR, "xor": XOR,
    "f4e": 1, "b4e": 2, "rc8": 3, "ecl": 4, "ecr": 5, "rc16": 6,
    "wrap": 0, "clamp": 1,
    "finite": 0, "infinite": 1, "number": 2, "notanumber": 3, "normal": 4, "subnormal": 5,
}  # fmt: skip
"""Modifier to code. Add a row for a new modifier; codes need only differ within one group."""

VECTORS = frozenset({"v2", "v4", "v8"})
"""Vector sizes; their order against types matters as that of types does."""
