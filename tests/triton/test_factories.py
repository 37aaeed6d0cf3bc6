"""Kernels that a function of the case file makes: the compiling process finds them again, each with its own code."""

FACTORY = """
import triton
import triton.language as tl

from ptxdiff import Case, kernel, plain
from ptxdiff.references.formats import U32


def shifted(by):
    text = tl.constexpr(f"shr.u32 $0, $1, {by};")

    @triton.jit
    def function(x):
        return tl.inline_asm_elementwise(text, "=r,r", [x], dtype=tl.uint32, is_pure=True, pack=1)

    return function


def whole(by):
    function = shifted(by)

    @triton.jit
    def kernel(x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i, function(tl.load(x + i, mask=i < n, other=0)), mask=i < n)

    return kernel


elementwise = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=lambda x: x >> 4,
    variants={"four": plain(shifted(4)), "five": plain(shifted(5))}, source="a test",
)
kernels = Case(
    inputs={"x": U32["n"]}, outputs={"y": U32["n"]}, reference=lambda x: x >> 4, sizes=[{"n": 100}],
    variants={v: kernel(whole(by), grid="ceil(n/BLOCK)", meta={"BLOCK": 64}) for v, by in (("four", 4), ("five", 5))},
    source="a test",
)
"""


def test_each_function_of_a_factory_has_its_own_code(run_cases):
    """Both are called `function` and differ only in a closure's value, which makes one of them wrong."""
    result = run_cases(folder="cases", factory=FACTORY)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines_random(["*elementwise::five*codes differ*", "*kernels::five*codes differ*"])
    result.stdout.no_fnmatch_line("*::four*codes differ*")
