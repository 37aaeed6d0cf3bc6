"""Each mistake that NVIDIA's guide to inline PTX in CUDA warns of, newly written, and the same code without the
mistake."""

import pytest

from ptxdiff.lint.files import lint_text

# The section of the guide, the rule, the mistake, and the repaired text.
MISTAKES = [
    (
        "namespace conflicts", "declaration-outside-braces",
        'asm(".reg .u32 t;\\n mul.lo.u32 t, %1, %1;\\n mul.lo.u32 %0, t, %1;" : "=&r"(y) : "r"(x));',
        'asm("{.reg .u32 t;\\n mul.lo.u32 t, %1, %1;\\n mul.lo.u32 %0, t, %1;}" : "=r"(y) : "r"(x));',
    ),
    (
        "incorrect optimization: the statement may move", "pure-clock",
        'asm("mov.u32 %0, %%clock;" : "=r"(x));', 'asm volatile("mov.u32 %0, %%clock;" : "=r"(x) :: "memory");',
    ),
    (
        "incorrect optimization: memory that the compiler holds in registers", "memory-clobber",
        'asm volatile("st.u32 [%0], 1;" :: "l"(p));', 'asm volatile("st.u32 [%0], 1;" :: "l"(p) : "memory");',
    ),
    (
        "incorrect PTX, which the compiler passes on", "undeclared-register",
        'asm("mov.u32 %0, %n1;" : "=r"(n) : "r"(1));', 'asm("neg.s32 %0, %1;" : "=r"(n) : "r"(1));',
    ),
    (
        "an operand that is not there", "operand-out-of-range",
        'asm("add.s32 %0, %1, %2;" : "=r"(i) : "r"(j));', 'asm("add.s32 %0, %1, %2;" : "=r"(i) : "r"(j), "r"(k));',
    ),
    (
        "several letters in a constraint", "constraint-letters",
        'asm("add.s32 %0, %1, %2;" : "=r"(i) : "rf"(j), "r"(k));',
        'asm("add.s32 %0, %1, %2;" : "=r"(i) : "r"(j), "r"(k));',
    ),
    (
        "an operand of another width than its constraint", "operand-type",
        'asm("cvt.rn.f32.f64 %0, %1;" : "=f"(y) : "f"(x));', 'asm("cvt.rn.f32.f64 %0, %1;" : "=f"(y) : "d"(x));',
    ),
    (
        "a special register without its second percent sign", "percent-escape",
        'asm volatile("mov.u32 %0, %laneid;" : "=r"(x));', 'asm volatile("mov.u32 %0, %%laneid;" : "=r"(x));',
    ),
]  # fmt: skip


def rules_of(text):
    return {f.rule for f in lint_text("kernel.cu", text.encode()).findings}


@pytest.mark.parametrize(("section", "rule", "wrong", "right"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_the_mistake_is_found_and_its_repair_is_not(section, rule, wrong, right):
    assert rule in rules_of(wrong)
    assert rules_of(right) == set()
