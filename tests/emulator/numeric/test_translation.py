"""Definitions as machine code: each construct has Python's meaning, unknown ones are refused, no code is stale."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import math
from types import ModuleType

import numpy as np
import pytest

from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import FORMS, find
from ptxdiff.emulator.numeric.bits import f64_bits, f64_value, scalar, wrap64
from ptxdiff.emulator.numeric.translation import expressions, functions
from ptxdiff.emulator.numeric.translation.helpers import INT64
from ptxdiff.emulator.numeric.translation.source import Untranslatable
from ptxdiff.emulator.numeric.vectorise import ArrayFunction

isa.load()
EDGES = [0, 1, 2, 3, 5, 7, 31, 63, 1 << 31, (1 << 62) + 12345]
EDGES += [-e for e in EDGES[1:]] + [-(1 << 63), (1 << 63) - 1]
FLOATS = [0.0, -0.0, 1.0, -1.5, 3.25e10, 5e-324, math.inf, -math.inf, math.nan]
NAMED = -7
TABLE = np.array([[3, -4, 5], [-6, 7, 8]], np.int32)
WIDE = np.array([1, -(1 << 40)])
SMALL = np.array([250, 3], np.uint8)
REALS = np.array([0.5, math.inf, -0.0])
ROWS = ((1, 10), (2, 20), (3, 30))


@scalar
def picked(a: int, b: int, which: bool) -> int:
    """A helper of functions below, with three different results."""
    if which:
        return a
    return b if b > NAMED else wrap64(a + b)


@scalar
def apart(x: float, y: float) -> bool:
    return x != y


def arithmetic(a: int, b: int) -> int:
    return wrap64(wrap64(a + b) * 3 - (a ^ b)) | (a & ~b) ^ -(b >> 3)


def shifted(a: int, b: int) -> int:
    return wrap64(a << (b & 63)) ^ (a >> (b & 31))


def divided(a: int, b: int) -> int:
    quotients = (a >> 1) // (b | 1) + (b // 7 if b != 0 else a // -3)
    return quotients ^ (a >> 1) % (b | 1) ^ (b % -7 if b > 2 else 0)


def compared(a: int, b: int) -> int:
    return (0 <= a < b) + 2 * (a == b != 3) + 4 * (not a >= b) + 8 * (a in (1, 5, NAMED)) + 16 * (a <= 2 > b)


def joined(a: int, b: int) -> int:
    first = a and b
    second = (a > 3 and b < 5) or a == -1
    third = b or a or 9
    return wrap64(first * 3) ^ second ^ wrap64(third * 5) ^ ~(a > b)


def chosen(a: int, b: int) -> int:
    x, y = (b, a) if a < b else (a, b)
    x, y = y, x
    value = 7 if x > 3 and (y < 9 or not a) else -7 if y else 1
    if a == b:
        value += 100
    elif a & 1:
        value ^= b
        if value == 3:
            return -1
    return wrap64(value + (x >> 1) - (y >> 2))


def counted(a: int, b: int) -> int:
    total = 0
    for i in range(b & 7):
        if i == a & 7:
            return total - 1
        total += i * 3
    for k in range(a & 3, 6):
        total ^= k << 2
    left = a & 31
    while left > 0 and total != b:
        total += left
        left -= 2
    return total


def unrolled(a: int, b: int) -> int:
    for key, value in ROWS:
        if a & 3 == key:
            return value + (b & 1)
    return NAMED


def looked_up(a: int, b: int) -> int:
    at = (a & 1) - 2
    return int(TABLE[at, b & 1]) * 1000 + int(SMALL[a & 1]) + int(REALS[0] * 8.0) + (REALS[1] > 3.0) + WIDE[-1]


def extremes(a: int, b: int) -> int:
    return min(a, b, NAMED) ^ max(a >> 1, b, 3) ^ abs(a >> 1)


def called(a: int, b: int) -> int:
    return picked(a, b, a < b) ^ picked(a >> 2, 5, apart(float(a), float(b)))


def retyped(a: int, b: int) -> int:
    x = a >> 12
    x = float(x) * 0.5 + b
    return f64_bits(x)


def floats(a: int, b: int) -> int:
    x, y = f64_value(a), f64_value(b)
    least, most = min(x, y), max(x, y, 1.0)
    sign = math.copysign(2.5, x) if y == y else -x
    return f64_bits(least) ^ f64_bits(most) * 3 ^ f64_bits(sign) ^ (x < y) ^ 2 * (x != y) ^ 4 * (not x >= y)


def roots(a: int, b: int) -> int:
    x, y = f64_value(a), f64_value(b)
    size = math.sqrt(abs(x)) if x == x and x - x == 0.0 else math.inf
    return f64_bits(size + y) if (size and y == y) and y != -math.inf else int(size == math.inf)


INTEGER = [
    arithmetic, shifted, divided, compared, joined, chosen, counted, unrolled, looked_up, extremes, called, retyped,
]  # fmt: skip
REAL = [floats, roots]
TWO = ((64, False), (64, False))


@pytest.mark.filterwarnings("ignore:Bitwise inversion '~' on bool:DeprecationWarning")  # of Python 3.12, in `joined`
@pytest.mark.parametrize("function", INTEGER + REAL, ids=lambda f: f.__name__)
def test_a_construct_has_the_meaning_of_python(function):
    values = EDGES if function in INTEGER else [f64_bits(x) for x in FLOATS] + [1, -1]
    pairs = np.array(list(itertools.product(values, values)), np.int64).astype(np.uint64)
    a, b = (np.ascontiguousarray(column) for column in pairs.T)
    wanted = ArrayFunction(function, (), TWO, 64)
    expected = [wanted.one(int(x), int(y)) for x, y in pairs]
    assert wanted.compiled(len(a), a, b).tolist() == expected
    assert wanted.shared(len(a), a, b).tolist() == expected


def test_every_definition_is_translated():
    """A definition that is not translated runs in Python, a thousand times slower."""
    every = {f for forms in FORMS.values() for form in forms for f in (form.function, form.rounded) if f is not None}
    assert len(every) > 200
    for function in every:
        functions.unit(function, (INT64,) * function.__code__.co_argcount)


def no_helper(a: int) -> int:
    return a


def of_two_types(a: int) -> int:
    x = a if a else 1.0
    return int(x)


def merged(a: int) -> int:
    x = a
    if a:
        x = 1.5
    return int(x)


def not_everywhere(a: int) -> int:
    if a:
        x = 1
    return x


def retyped_in_a_loop(a: int) -> int:
    x = a
    for _ in range(3):
        x = x * 0.5
    return int(x)


def after_a_loop(a: int) -> int:
    for i in range(a):
        a += i
    return i


def true_division(a: int) -> int:
    return int(a / 3)


def remainder(a: int) -> int:
    return int(float(a) % 3.0)


def power(a: int) -> int:
    return a**2


def integer_and_float(a: int) -> int:
    return int(a < 0.5)


def large(a: int) -> int:
    return a & 0xFFFFFFFFFFFFFFFF


def unknown_function(a: int) -> int:
    return no_helper(a)


def unknown_builtin(a: int) -> int:
    return pow(a, 2)


def with_keyword(a: int) -> int:
    return picked(a, b=1, which=True)


def of_another_type(a: int) -> int:
    return float(a)  # type: ignore[return-value]


def falls_through(a: int) -> int:  # noqa: RET503
    while a:
        return 1


def with_default(a: int, *more: int) -> int:
    return a


def without_annotation(a):
    return a


def listed(a: int) -> int:
    return [a, 1][0]


def narrow_table(a: int) -> int:
    return SMALL[a & 1] + 100


def ended_early(a: int) -> int:
    for i in range(4):
        if i == a:
            break
        a += 1
    return a


def another_loops_end(a: int) -> int:
    while a > 0:
        a -= 1
    else:
        a = 5
    return a


REFUSED = {
    of_two_types: "two types", merged: "several types", not_everywhere: "not set", retyped_in_a_loop: "in a loop",
    after_a_loop: "not set", true_division: "Div", remainder: "Mod", power: "Pow",
    integer_and_float: "integer with a float", large: "18446744073709551615", unknown_function: "no helper",
    unknown_builtin: "no helper", with_keyword: "keywords", of_another_type: "another type",
    falls_through: "returns nothing", with_default: "parameters", without_annotation: "annotated",
    narrow_table: "arithmetic in uint8", listed: "`",
    ended_early: "Break", another_loops_end: "else of a loop",
}  # fmt: skip


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_unknown_constructs_are_refused(function):
    with pytest.raises(Untranslatable, match=REFUSED[function]) as refusal:
        functions.unit(function, (INT64,))
    assert f"test_translation.{function.__name__}, line " in str(refusal.value)


TEXT = "from __future__ import annotations\n\n\ndef changing(a: int) -> int:\n    return a + 1\n"


def imported(path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("a_changing_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_function_whose_file_has_changed_runs_as_it_was_imported(tmp_path):
    """The file is read at compilation, and it may have changed since the import."""
    path = tmp_path / "changing.py"
    path.write_text(TEXT)
    module = imported(path)
    path.write_text(TEXT.replace("a + 1", "a + 2"))
    lanes = np.arange(4, dtype=np.uint64)
    run = ArrayFunction(module.changing, (), TWO[:1], 64)
    for form in (run.compiled, run.shared):
        with pytest.warns(UserWarning, match=r"changing runs in Python.*its file"):
            assert form(4, lanes).tolist() == [1, 2, 3, 4]
    path.unlink()
    with pytest.raises(Untranslatable, match="its file"):
        functions.unit(imported_again(module), (INT64,))


def imported_again(module: ModuleType):
    """The same function, from a file that does not exist."""
    gone = module.changing.__code__.replace(co_filename="/nowhere.py")
    return type(module.changing)(gone, module.__dict__)


def test_two_helpers_of_one_name_are_refused(tmp_path):
    paths = [tmp_path / "one.py", tmp_path / "two.py"]
    for path, more in zip(paths, ("", "0"), strict=True):
        path.write_text(TEXT.replace("a + 1", f"a + 1{more}"))
    one, two = (functions.unit(imported(path).changing, (INT64,)) for path in paths)
    both = expressions.Unit("caller", INT64, (("caller", "text"),), (one, two))
    assert one.name == two.name
    with pytest.raises(Untranslatable, match="the name of two"):
        functions.texts(both)


@pytest.mark.parametrize(
    ("operator", "wrong", "opcode", "modifiers"),
    [(ast.RShift, "lshr", "shr", ("s64",)), (ast.BitAnd, "or_", "and", ("b64",))],
    ids=["shr", "and"],
)
def test_a_mistake_in_the_translation_changes_results(monkeypatch, operator, wrong, opcode, modifiers):
    """The tests of all forms compare with Python, so such a mistake fails them."""
    definition = find(opcode, modifiers)[0].array_function()
    a = np.array([1 << 63, 12, 5], np.uint64)
    b = np.array([3, 1, 6], np.uint64 if definition.sources[1][0] == 64 else np.uint32)
    expected = [definition.one(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]

    def found() -> list[int]:
        functions.unit.cache_clear()
        again = ArrayFunction(definition.function, definition.constants, definition.sources, definition.width)
        return again.compiled(3, a, b).tolist()

    assert found() == expected
    monkeypatch.setitem(expressions._INTEGER, operator, wrong)
    assert found() != expected
    monkeypatch.undo()
    functions.unit.cache_clear()


def test_an_operand_that_machine_code_cannot_read_is_refused():
    run = find("and", ("b32",))[0].array_function()
    good = np.arange(8, dtype=np.uint32)
    assert run.compiled(4, good[::2], good[1::2]).tolist() == [0, 2, 4, 6]  # copied, as it is not contiguous
    for bad in (good[:3], good.astype(np.uint64), good.reshape(2, 4)):
        with pytest.raises(TypeError, match="4 lanes of uint32"):
            run.compiled(4, good, bad)
