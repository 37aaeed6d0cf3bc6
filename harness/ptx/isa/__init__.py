'''The instruction set: one module a family, one short function an instruction.

**Adding an instruction** is one decorated function in one module of this package (or one more decorator on a
function that is there); nothing else is registered anywhere. A new module is found by being here.

    @instruction("add{.rnd}{.ftz}{.sat}.f32", "d, a, b", section="9.7.3.3", rnd=".rn .rz .rm .rp", contracts="add")
    def add_f32(a: int, b: int, rnd: int, ftz: int, sat: int) -> int:
        """Sum, rounded once. NaN is 0x7fffffff; ..."""

*The pattern* is written as the ISA writes it: `.x` must stand there, `{.x}` may. A name that is also a keyword
argument (`rnd`, `type`, `dtype`, `cmp`, ...) is a group and stands for one of the alternatives given there; any
other name is itself, and as `{.ftz}` a flag. As for ptxas, types must come in the order of the pattern, other
modifiers in any order. Alternatives that cannot stand together: `excludes=[".sat .relu"]`; or write two rows, as
the ISA does. A form that differs in its operands only (`setp` with and without a third source) is a row of its own.

*The operands* are `destination, source, source`; the names of the sources are the first parameters of the function.
The default type is the first type of the pattern for the destination and the last for sources; `b:u32` gives
another, by name of a type or of a group (`a:type`), `d:wide type` the one of twice the width, `c:bits s32` any
register of 32 bits, read as s32. `p:pred|q?:pred` are two destinations, of which the second may be left out: the
function runs once for each, with the parameter `result` 0 or 1. `c:const b32` must be a constant. `reads="cc"` /
`writes="cc"` add the carry flag as last source (a parameter `cc`) and last result. `a.part` takes a selector of that
kind (a parameter `asel`, see `selectors`), `-a` may be negated (a parameter `aneg`).

*The parameters after the sources* are constants, which LLVM folds away: a group's name gets the code of the chosen
modifier (`modifiers.CODES`; the first alternative's when it was left out), a flag's name 0 or 1, and `width` and
`signed` (`dwidth`, `asigned`, ... for groups `dtype`, `atype`) what the chosen type is. A parameter with a default
(`relu: int = 0`) takes it in rows that have no such modifier, or what the row says: `given={"bits": 8}`.

*The function* computes on bit patterns as `harness.ptx.numeric.bits` describes: read its docstring first, it is short.
The machine extends sources and cuts the result to the destination's width; the function need not mask. Sources typed
`s*` arrive sign-extended, all others zero-extended, and 64-bit ones always as the signed reading. Helpers that several
definitions share are marked `@scalar`. A definition may call another one. What both Python and numba run must mean the
same in both; `tests/ptx/test_isa_forms.py` holds the two together for every form.

*Legality*: `requires=80` (that target and later) or names, `requires="100a 103a"` (`100f`: the family);
`needs={"relu": 80}` for single modifiers, by spelling, types included.

*Further facts*: `approximate=True` for an approximate instruction: the bits are those of one generation's unit, and
`rounded=` is the model that rounds to nearest (`emulate(..., approximate="rounded")`). `contracts="mul"|"add"|"sub"`
where ptxas may fuse when no rounding modifier (group `rnd`) is written. `relaxed=True` where registers wider than the
operand are legal (cvt). `small="b c"` names operands at which a constant lies in 0 to 255, `braces="a"` those that
ptxas takes between braces too, and of any type of their size (see `harness.ptx.binding.braces`). `undefined=` says how
undefined bits pass: "all" (default) or another rule of `definedness`. `section` is that of the PTX ISA.

What the machine does itself (vector moves, branches, memory) is declared with `operation`. A binder checks its operands
(`binds`, in `harness.ptx.binding` or `harness.ptx.kernel`), and a runner executes it (`runs`, in `harness.ptx.machine`
or `harness.ptx.kernel`). Opcodes that mean nothing for one element are in `other_threads`.
'''

from __future__ import annotations

import importlib
import pkgutil

_loaded = False


def load() -> None:
    """Import every family, once."""
    global _loaded
    if _loaded:
        return
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    _loaded = True
