"""Reductions by bulk copies to tensors (ISA 9.7.9.27.1.3): which element types they have, and what they compute.

The tensor map says the type, so a kernel's text does not. The arithmetic is that of the reductions by bulk copies of
bytes (ISA 9.7.9.25.5.1), whose forms name the type.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxdiff.emulator.isa import asynchronous, float32, float_extremes, half  # noqa: F401  declare what is found here
from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.kernel.memory.access import update_of

_FORM = ("reduce", "async", "bulk", "global", "shared::cta", "bulk_group")
_TYPES = {2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 7: "f32", 10: "bf16"}
"""By the code of an element's type in a tensor map: the type of PTX."""
_OF_OPERATION = {
    **dict.fromkeys(("add",), ("u32", "s32", "u64", "f32", "f16", "bf16")),
    **dict.fromkeys(("min", "max"), ("u32", "s32", "u64", "s64", "f16", "bf16")),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    **dict.fromkeys(("and", "or", "xor"), ("u32", "s32", "u64", "s64")),
}
"""The table of the ISA. Types of bits are those of integers of their width: a map has no others."""
ILLEGAL_ON_A_DEVICE = {("and", 5), ("or", 5), ("xor", 5)}
"""Operations and codes of types that the table has, and for which an H200 raises an illegal instruction."""


def in_the_table(operation: str, element: int) -> bool:
    """Whether the ISA has a reduction of elements whose type has a code in a tensor map."""
    return _TYPES.get(element, "") in _OF_OPERATION[operation]


def reduction(operation: str, element: int) -> Callable[..., int] | str:
    """The new code of an element from the old one and that of shared memory; or an error message.

    element: the code of the elements' type in the tensor map.
    """
    name = _TYPES.get(element, "")
    if not in_the_table(operation, element):
        kinds = ", ".join(f".{kind}" for kind in _OF_OPERATION[operation])
        what = f".{name}" if name else f"the type of code {element}"
        return f"a reduction .{operation} of a tensor whose elements are {what}: it has {kinds}"
    if (operation, element) in ILLEGAL_ON_A_DEVICE:
        what = f"a reduction .{operation} of a tensor whose elements are .{name}"
        return f"{what}: an H200 raises an illegal instruction for it, though the ISA has .b{name[1:]}"
    if operation in ("and", "or", "xor"):
        name = f"b{name[1:]}"
    modifiers = (operation, "noftz", name) if operation == "add" and name.endswith("f16") else (operation, name)
    return update_of(find("cp", (*_FORM, *modifiers))[0])
