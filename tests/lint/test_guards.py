"""Conditions on the target around a call: a stated target that lacks the instruction is a finding only without one."""

import pytest

from ptxdiff.lint.extract import extract
from ptxdiff.lint.files import lint_text

CALL = (
    'tl.inline_asm_elementwise("cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", "=h,f,f", [a], dtype=tl.float8e4nv, '
    "is_pure=True, pack=2)"
)


def lacking(text, target="sm_80", path="file.py"):
    return [f.message for f in lint_text(path, text.encode(), targets=[target]).findings if f.rule == "target-lacks"]


GUARDED = {
    "an if": "if capability >= 89:\n    y = {}",
    "the other branch of an if": "if capability < 89:\n    y = a\nelse:\n    y = {}",
    "a conditional expression": "y = {} if tl.target_info.cuda_capability_geq(8, 9) else a",
    "a return before it": "def f(a, arch):\n    if arch < 89:\n        return a\n    return {}",
    "an assertion before it": "def f(a, SM):\n    assert SM >= 89\n    return {}",
    "a static assertion before it": "def f(a, cc):\n    tl.static_assert(cc >= 89, 'too old')\n    return {}",
    "a decorator": "@requires_sm89\ndef f(a):\n    return {}",
    "every caller": "def f(a):\n    return {}\ndef g(a, arch):\n    if arch >= 89:\n        return f(a)\n    return a",
    "a caller's caller": "def f(a):\n    return {}\ndef g(a):\n    return f(a)\nif is_hopper():\n    y = g(a)",
}


@pytest.mark.parametrize("text", GUARDED.values(), ids=GUARDED)
def test_a_guarded_call_is_no_finding(text):
    assert lacking(text.format(CALL)) == []


UNGUARDED = {
    "nothing": "y = {}",
    "a condition about something else": "if search > 2:\n    y = {}",
    "a guard behind it": "y = {}\nif arch < 89:\n    raise ValueError",
    "a branch that does not leave": "if arch < 89:\n    a = 0\ny = {}",
    "one caller of two": "def f(a):\n    return {}\nif arch >= 89:\n    y = f(a)\nz = f(a)",
    "functions that call each other": "def f(a):\n    g(a)\n    return {}\ndef g(a):\n    return f(a)",
}


@pytest.mark.parametrize("text", UNGUARDED.values(), ids=UNGUARDED)
def test_an_unguarded_call_is_a_finding(text):
    (message,) = lacking(text.format(CALL))
    assert message.endswith("the target is sm_80, and nothing guards it")


ELECT = 'asm volatile("{ .reg .pred p; elect.sync _|p, -1; selp.u32 %0, 1, 0, p; }" : "=r"(y));'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#if __CUDA_ARCH__ >= 900\n{}\n#endif", False),
        ("#if __CUDA_ARCH__ >= 700\n{}\n#endif", True),
        ("#if __CUDA_ARCH__ >= 900\n#else\n{}\n#endif", True),
        ("#if __CUDA_ARCH__ < 900\n#else\n{}\n#endif", False),
        ("#if __CUDA_ARCH__ < 700\n#elif __CUDA_ARCH__ < 900\n{}\n#else\n#endif", True),
        ("#if __CUDA_ARCH__ < 700\n#elif __CUDA_ARCH__ < 900\n#else\n{}\n#endif", False),
        ("#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 900 || __CUDA_ARCH__ >= 1000)\n{}\n#endif", False),
        ("#if !(__CUDA_ARCH__ >= 900)\n{}\n#endif", True),
        ("#ifdef SM90_ENABLED\n{}\n#endif", False),
        ("#if __CUDA_ARCH__ >= 900\n#endif\n{}", True),
        ("#ifdef DEBUG\n{}\n#endif", True),
        ("void f() {{ if constexpr (SM >= 90) {{ {} }} }}", False),
        ("void f() {{ if constexpr (SM >= 90) {{ }} {} }}", True),
        ("#if __CUDA_ARCH__ ** 9 ** 9 ** 9 ** 9\n{}\n#endif", False),
    ],
)
def test_conditions_of_the_preprocessor(text, found):
    assert bool(lacking(text.format(ELECT), path="file.cu")) is found


def test_the_targets_of_a_variant_are_a_guard():
    case = """
from ptxdiff import Case, asm, since
from ptxdiff.references import narrow
from ptxdiff.references.formats import E4M3, F32
case = Case(inputs={"x": F32}, outputs={"y": E4M3}, reference=len,
            variants={"cvt": asm("cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", "=h,f,f", pack=2)})
"""
    assert lacking(case)
    assert lacking(case.replace("pack=2", 'pack=2, targets=since("sm_89")')) == []


def test_a_snippet_has_the_text_of_its_guards():
    (snippet,) = extract("file.py", f"if capability >= 89:\n    y = {CALL}".encode()).snippets
    assert snippet.guards == ("capability >= 89",)
