'''The instruction set: one module for each family, one short function for each instruction.

**To add an instruction**, write one decorated function in a module of this package, or add a decorator to an existing
function. Nothing else needs registering: every module of this package is loaded.

    @instruction("add{.rnd}{.ftz}{.sat}.f32", "d, a, b", section="9.7.3.3", rnd=".rn .rz .rm .rp", contracts="add")
    def add_f32(a: int, b: int, rnd: int, ftz: int, sat: int) -> int:
        """Sum, rounded once. NaN is 0x7fffffff; ..."""

*The pattern* is written as in the ISA: `.x` is required, `{.x}` optional. A name that is also a keyword argument
(`rnd`, `type`, `dtype`, `cmp`, ...) is a group, and stands for one of the alternatives given there. Any other name is
literal; an optional one such as `{.ftz}` is a flag. As for ptxas, types must come in the order of the pattern, other
modifiers in any order. For alternatives that exclude each other write `excludes=[".sat .relu"]`, or two rows, as the
ISA does. A form that differs only in its operands (`setp` with and without a third source) has its own row.

*The operands* are `destination, source, source`; the names of the sources are the first parameters of the function. The
default type is the first type of the pattern for the destination and the last for sources. `b:u32` gives another type,
by name of a type or of a group (`a:type`); `d:wide type` is the type of twice the width; `c:bits s32` is any register
of 32 bits, read as s32. `p:pred|q?:pred` are two destinations, the second optional: the function runs once for each,
with the parameter `result` 0 or 1. `c:const b32` must be a constant. `reads="cc"` and `writes="cc"` add the carry flag
as last source (a parameter `cc`) and last result. `a.part` takes a selector of that kind (a parameter `asel`, see
`selectors`); `-a` may be negated (a parameter `aneg`).

*The parameters after the sources* are constants, which LLVM folds. A group's name gets the code of the chosen modifier
(`modifiers.CODES`; the first alternative's if none was written), a flag's name 0 or 1. `width` and `signed` (`dwidth`,
`asigned`, ... for groups `dtype`, `atype`) describe the chosen type. A parameter with a default (`relu: int = 0`) keeps
it in rows without such a modifier, unless the row gives a value: `given={"bits": 8}`.

*The function* computes on bit patterns as `ptxdiff.emulator.numeric.bits` describes: read its docstring first, it is
short. The machine extends sources and truncates the result to the destination's width; the function need not mask.
Sources of types `s*` arrive sign-extended, all others zero-extended; 64-bit ones are always read as signed. Mark
helpers that several definitions share with `@scalar`. A definition may call another one. It must give the same result
in Python and in numba; `tests/emulator/isa/test_forms.py` compares the two for every form.

*Legality*: `requires=80` (that target and later) or names, `requires="100a 103a"` (`100f`: the family);
`needs={"relu": 80}` for single modifiers, by spelling, types included.

*Further arguments*: `approximate=True` marks an approximate instruction, whose bits are those of one GPU generation;
`rounded=` is the model that rounds to nearest (`emulate(..., approximate="rounded")`). `contracts="mul"|"add"|"sub"`:
ptxas may fuse the instruction if no rounding modifier (group `rnd`) is written. `relaxed=True`: registers may be wider
than the operand (cvt). `small="b c"`: constants at these operands must be in 0 to 255. `braces="a"`: ptxas also takes
these operands between braces, with any type of their size (see `ptxdiff.emulator.binding.resolver`). `undefined=`: the
rule for undefined bits, "all" (default) or another one of `definedness`. `section`: the section of the PTX ISA.

Operations of the machine itself (vector moves, branches, memory) are declared with `operation`. A binder checks their
operands (`binds`, in `ptxdiff.emulator.binding` or `ptxdiff.emulator.kernel`), and a runner executes them (`runs`, in
`ptxdiff.emulator.machine` or `ptxdiff.emulator.kernel`). What others must know of it (whether it has effects, waits,
orders threads, exchanges values, ends a thread, ...) is stated there too, as `facts=Facts(...)`; an operation without
them is taken for one that has effects. Opcodes without a meaning for a single element are in `other_threads`.'''

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
