"""Inputs of which two make a number of the code: integers of one width and of two, signed and unsigned, and floats."""

import math

import numpy as np
import pytest

from ptxdiff.inputs.together import divisors, made_together
from ptxdiff.references.formats import BF16, F16, F32, F64, I8, I32, TF32, U8, U16, U32, U64

SEEDS = range(2)


def signed(code, bits=32):
    return code - (1 << bits) if code >> (bits - 1) else code


def truncated(a, b):
    return int(math.copysign(abs(a) // abs(b), a * b)) if a * b else 0


C = 0x37C5E21B
NEGATIVE = 0xC84D19E5
INTEGERS = {
    "the upper half of a product, negative": (
        I32, I32, NEGATIVE, lambda a, b: signed(a) * signed(b) >> 32, NEGATIVE - (1 << 32),
    ),
    "the upper half of two negative numbers": (
        I32, I32, C, lambda a, b: signed(a) * signed(b) >> 32 if max(signed(a), signed(b)) < -3 else 0, C,
    ),
    "the upper half of factors of one size": (
        U32, U32, 0x1D3A91, lambda a, b: a * b >> 32 if max(a, b) < 1 << 28 else 0, 0x1D3A91,
    ),
    "a wide product": (I32, I32, 1234567890123, lambda a, b: signed(a) * signed(b), -1234567890123),
    "a wide unsigned product": (U32, U32, 3000000019 * 65521, lambda a, b: a * b, 3000000019 * 65521),
    "a negative quotient": (I32, I32, 123457, lambda a, b: truncated(signed(a), signed(b)), -123457),
    "a quotient of negative numbers": (
        I32, I32, 123457, lambda a, b: truncated(signed(a), signed(b)) if signed(b) < -2 else 0, 123457,
    ),
    "a negative sum": (
        I32, I32, 934470171, lambda a, b: signed(a) + signed(b) if max(signed(a), signed(b)) < -3 else 0, -934470171,
    ),
    "one below a large multiple": (U32, U32, 641, lambda a, b: b == 641 and a % b == 640 and a > 1 << 28, True),
    "a product of two widths": (U32, U16, C, lambda a, b: a * b & 0xFFFFFFFF, C),
    "a sum of two widths": (U32, U16, C, lambda a, b: a + b & 0xFFFFFFFF, C),
    "a difference of two widths": (U32, U16, C, lambda a, b: a - b & 0xFFFFFFFF, C),
    "all bits of two widths": (U32, U16, C, lambda a, b: a ^ b, C),
    "the upper half of two widths": (U32, U16, 0x4E2B, lambda a, b: a * b >> 32, 0x4E2B),
    "a quotient of two widths": (U32, U16, 123457, lambda a, b: a // b if b > 2 else 0, 123457),
    "a rotation by a narrow number": (U32, U16, C, lambda a, b: (a << b % 32 | a >> -b % 32) & 0xFFFFFFFF, C),
    "a shift by a byte": (U32, U8, 0x37C5E200, lambda a, b: a << b % 32 & 0xFFFFFFFF, 0x37C5E200),
    "a product with a signed byte": (U32, I8, C, lambda a, b: a * signed(b, 8) & 0xFFFFFFFF if b > 127 else 0, C),
    "a negative sum with a signed byte": (
        I32, I8, 12345678, lambda a, b: signed(a) + signed(b, 8) if b > 127 else 0, -12345678,
    ),
    "a negative quotient by a signed byte": (
        I32, I8, 1234567, lambda a, b: truncated(signed(a), signed(b, 8)) if b > 127 else 0, -1234567,
    ),
    "a negative product with a signed byte": (
        I32, I8, 12345678, lambda a, b: signed(a * signed(b, 8) & 0xFFFFFFFF) if b > 127 else 0, -12345678,
    ),
    "the upper half with a signed byte": (
        I32, I8, 17, lambda a, b: signed(a) * signed(b, 8) >> 32 if b > 127 else 0, -17,
    ),
    "a remainder by a signed byte": (
        I32, I8, 17, lambda a, b: math.fmod(signed(a), signed(b, 8)) if a > 99 and b > 127 else 0, -17,
    ),
    "a product of bytes": (U8, U8, 81 * 149, lambda a, b: a * b, 81 * 149),
    "a product of 64 bits and 32": (U64, U32, 0x37C5E21B91D3A, lambda a, b: a * b & (1 << 64) - 1, 0x37C5E21B91D3A),
    "a sum of 64 bits and 32": (U64, U32, 0x37C5E21B91D3A, lambda a, b: a + b & (1 << 64) - 1, 0x37C5E21B91D3A),
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("step", INTEGERS)
def test_a_step_of_two_integers_makes_the_number(step, seed):
    one, two, number, of, made = INTEGERS[step]
    columns = made_together({"a": one, "b": two}, [number], np.random.default_rng(seed))
    a, b = ([int(u) & (1 << f.unit_bits) - 1 for u in c] for f, c in zip((one, two), columns, strict=True))
    found = [pair for pair in zip(a, b, strict=True) if min(pair) > 1 and of(*pair) == made]
    assert found


WORD = 0xFFFFFFFF
THREE = {
    "a product and the third": (U32, C, lambda a, b, c: a * b + c & WORD, C),
    "the first beside a product": (U32, C, lambda a, b, c: b * c + a & WORD, C),
    "a product without the third": (U32, C, lambda a, b, c: a * b - c & WORD, C),
    "a sum": (U32, C, lambda a, b, c: a + b + c & WORD, C),
    "a sum without the third": (U32, C, lambda a, b, c: a + b - c & WORD, C),
    "an odd number of bits": (U32, C, lambda a, b, c: a ^ b ^ c, C),
    "the majority of bits": (U32, C, lambda a, b, c: a & b | a & c | b & c if len({a, b, c}) > 2 else 0, C),
    "common bits": (U32, C, lambda a, b, c: a & b & c if len({a, b, c}) > 2 else 0, C),
    "a sum of bytes": (U8, 763, lambda a, b, c: a + b + c, 763),
    "a product of bytes": (U8, 101 * 151 * 211, lambda a, b, c: a * b * c, 101 * 151 * 211),
    "bytes side by side": (U8, 0x37C5E2, lambda a, b, c: a | b << 8 | c << 16, 0x37C5E2),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("step", THREE)
def test_three_integers_make_the_number(step, seed):
    fmt, number, of, made = THREE[step]
    columns = made_together(dict.fromkeys("abc", fmt), [number], np.random.default_rng(seed))
    rows = zip(*(c.tolist() for c in columns), strict=True)
    assert any(min(row) > 3 and of(*row) == made for row in rows)


@pytest.mark.parametrize("number", [(1 << 63) + 1, (1 << 64) - 1, 0x9E3779B97F4A7C15])
def test_numbers_of_64_bits(number):
    a, b = made_together({"a": U64, "b": U64}, [number], np.random.default_rng(1))
    made = {int(x) * int(y) & (1 << 64) - 1 for x, y in zip(a, b, strict=True)}
    assert number in made


def halves(bits):
    """Values of bfloat16 in the upper half of a float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


VALUES = {
    F32: lambda units: units.astype(np.uint32).view(np.float32),
    F16: lambda units: units.astype(np.uint16).view(np.float16),
    BF16: halves,
    F64: lambda units: units.view(np.float64),
}
STEPS = {
    "sum": lambda x, y: x + y,
    "difference": lambda x, y: x - y,
    "product": lambda x, y: x * y,
    "quotient": lambda x, y: x / y,
}
NUMBERS = {"ordinary": 1.23, "large": 12345.16, "tiny": 1e-20, "negative": -0.37}


def ordinary(x, y, number):
    """Whether neither value is a power of two, nor lost in a sum."""
    size = np.minimum(np.abs(x), np.abs(y)).astype(np.float64)
    parts = [np.frexp(v.astype(np.float64))[0] for v in (x, y)]
    return (np.abs(parts[0]) != 0.5) & (np.abs(parts[1]) != 0.5) & (size > 0) & np.isfinite(size)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fmt", [F32, F64], ids=lambda f: f.name)
def test_a_step_of_two_floats_makes_the_number(fmt, step, number, seed):
    columns = made_together({"a": fmt, "b": fmt}, [NUMBERS[number]], np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        x, y = (VALUES[fmt](c) for c in columns)
        same = STEPS[step](x, y) == x.dtype.type(NUMBERS[number])
        near = np.minimum(np.abs(x), np.abs(y)) > abs(NUMBERS[number]) / 16
        assert (same & ordinary(x, y, NUMBERS[number]) & (near | (step in ("product", "quotient")))).any()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("fmt", "code"), [(F16, 0x3E3D), (F16, 0xBE3D), (BF16, 0x3FCB)])
@pytest.mark.parametrize("step", ["sum", "product"])
def test_halves_make_a_number_written_as_bits(fmt, code, step, seed):
    columns = made_together({"a": fmt, "b": fmt}, [code], np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        x, y = (VALUES[fmt](c) for c in columns)
        number = VALUES[fmt](np.array([code]))[0]
        made = STEPS[step](x.astype(np.float64), y.astype(np.float64))
        ulp = 2.0**-10 if fmt is F16 else 2.0**-7
        assert ((np.abs(made - np.float64(number)) < ulp / 2) & ordinary(x, y, number)).any()


def test_an_exact_product_of_floats():
    x, y = (VALUES[F32](c) for c in made_together({"a": F32, "b": F32}, [199.375], np.random.default_rng(1)))
    with np.errstate(all="ignore"):
        assert ((x.astype(np.float64) * y == 199.375) & ordinary(x, y, 199.375)).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_product_and_a_sum_of_three_floats(seed):
    columns = made_together(dict.fromkeys("abc", F32), [123.456], np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        a, b, c = (VALUES[F32](column).astype(np.float64) for column in columns)
        made = (a * b + c).astype(np.float32) == np.float32(123.456)
        assert (made & (np.abs(a * b) > 0.5) & (np.abs(c) > 0.5)).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_float_and_an_integer(seed):
    x, e = made_together({"x": F32, "e": I32}, [123.456], np.random.default_rng(seed))
    value, number = VALUES[F32](x).astype(np.float64), e.astype(np.uint32).view(np.int32).astype(np.float64)
    with np.errstate(all="ignore"):
        for made in (value * number, value + number, value / number):
            assert ((made.astype(np.float32) == np.float32(123.456)) & (np.abs(number) > 2)).any()
    assert ((x + (e << 23) == int(np.float32(123.456).view(np.uint32))) & (e > 1)).any()


def test_columns_are_of_one_length_and_fit_their_formats():
    formats = {"a": U32, "b": I8, "c": F32, "d": F16, "e": U64}
    columns = made_together(formats, [77777, 3.5, -2.5, 1 << 63, float("inf")], np.random.default_rng(1))
    assert len({len(c) for c in columns}) == 1
    for fmt, column in zip(formats.values(), columns, strict=True):
        assert fmt.unit_bits == 64 or ((column >= 0) & (column < 1 << fmt.unit_bits)).all()


def test_inputs_depend_on_the_order_of_the_arguments_and_not_on_their_names():
    """Else they would be others in each process, as the order of a set of texts is."""
    made = [
        made_together(dict.fromkeys(names.split(), U32), [12345, 777], np.random.default_rng(1))
        for names in ("a b c d e f", "x y scale zero q k", "f e d c b a")
    ]
    for columns in made[1:]:
        np.testing.assert_array_equal(columns, made[0])


@pytest.mark.sample(2)
@pytest.mark.parametrize("fmt", [TF32, F64, U64, U32, U8], ids=str)
@pytest.mark.parametrize("number", [7, (1 << 64) + 7, (1 << 128) - 1, 1.7e308, 5e-324], ids=str)
def test_numbers_at_the_ends_of_all_formats(fmt, number):
    """The format tf32 ignores all bits of 7."""
    columns = made_together(dict.fromkeys("abc", fmt), [number], np.random.default_rng(1))
    assert len({len(c) for c in columns}) == 1


def test_divisors_of_numbers_of_more_than_64_bits():
    assert divisors(3 * (1 << 80)) == [3, 4, 6, 8, 12, 16, 32768, 49152, 65536]
    assert divisors(10007 * 65521 << 64)[-1] == 65536
    assert 10007 in divisors(10007 * ((1 << 89) - 1))


def permuted(a, b, selector):
    both = a | b << 32
    return sum((both >> 8 * (selector >> 4 * k & 7) & 255) << 8 * k for k in range(4))


PIECES = {
    "a funnel shift to the left": (8, lambda a, b: (b << 8 | a >> 24) & WORD),
    "a funnel shift to the right": (7, lambda a, b: (a >> 7 | b << 25) & WORD),
    "the lower halves": (3, lambda a, b: a & 0xFFFF | b << 16 & WORD),
    "the upper halves": (3, lambda a, b: a >> 16 | b & 0xFFFF0000),
    "the lower and the upper half": (3, lambda a, b: a & 0xFFFF | b & 0xFFFF0000),
    "a permutation of bytes": (0x6240, lambda a, b: permuted(a, b, 0x6240)),
    "another": (0x0527, lambda a, b: permuted(a, b, 0x0527)),
}


@pytest.mark.parametrize("step", PIECES)
@pytest.mark.parametrize("seed", SEEDS)
def test_pieces_of_two_integers_make_the_number(step, seed):
    """How far to shift, or which bytes to take, stands in the code too."""
    number, of = PIECES[step]
    columns = made_together({"a": U32, "b": U32}, [C, number], np.random.default_rng(seed))
    a, b = ([int(u) & WORD for u in c] for c in columns)
    assert [pair for pair in zip(a, b, strict=True) if min(pair) > 1 and of(*pair) == C]


CONDITIONS = {
    "two upper halves": ((U32, U32), (0x1357, 0x2468, 16), (0x1357 << 16, 0x2468 << 16)),
    "an upper and a lower half": ((U32, U32), (0x1357, 0x2468), (0x2468, 0x1357 << 16)),
    "fields at a shift of the code": ((U32, U16), (0x57, 0x68, 5), (0x57 << 5, 0x68 << 5)),
    "a negative number": ((I32, I32), (123456, 987654), (-123456 & 0xFFFFFFFF, 987654)),
    "three numbers": ((F32, F32, F32), (1.5, 2.25, 10.0), (0x3FC00000, 0x40100000, 0x41200000)),
    "three numbers of three formats": ((F32, I32, U16), (1.5, 0x2468135, 0x1234), (0x3FC00000, 0x2468135, 0x1234)),
    "four numbers": ((U32,) * 4, (0x1111, 0x2222, 0x3333, 0x4444), (0x4444, 0x1111, 0x3333, 0x2222)),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_several_inputs_each_have_a_number_of_the_code(name):
    """As code asks for that does something else if two or more conditions hold."""
    formats, numbers, wanted = CONDITIONS[name]
    columns = made_together(dict(zip("abcd", formats, strict=False)), numbers, np.random.default_rng(0))
    rows = np.stack([c & f.code_mask for c, f in zip(columns, formats, strict=True)], axis=1)
    assert (rows == np.array(wanted)).all(axis=1).any()


def f32(code):
    return np.array([code], np.uint32).view(np.float32)[0]


# The formats of both inputs, the numbers of the code, and the conditions that both must meet.
EACH_IN_A_STEP = {
    "the next number of each": (U32, U32, (0x1235, 0x5678, 0x567A), lambda a: a == 0x1235, lambda b: b == 0x5679),
    "all other bits, and one number": (
        U32, U32, (0x1234, 0x77777), lambda a: ~a % 2**32 == 0x1234, lambda b: b == 0x77777,
    ),
    "bits under a mask, others set": (
        U32, U32, (0xFF00FF00, 0x12003400, 0xFF00FF, 0x560078),
        lambda a: a & 0xFF00FF00 == 0x12003400 and a & 0xFF00FF, lambda b: b & 0xFF00FF == 0x560078,
    ),
    "a sum of two numbers": (U32, U32, (0x12340000, 0x5678, 0x9ABC), lambda a: a == 0x12345678, lambda b: b == 0x9ABC),
    "two numbers by xor": (
        U32, U32, (0x1234AAAA, 0x5678, 0x9ABC), lambda a: a == 0x1234AAAA ^ 0x5678, lambda b: b == 0x9ABC,
    ),
    "a sum of one, an xor of the other": (
        U32, U32, (0x1111, 0x7777, 0x4321, 0x8765),
        lambda a: (a + 0x1111) % 2**32 == 0x4321, lambda b: b ^ 0x7777 == 0x8765,
    ),
    "a shift of each": (U32, U32, (7, 5, 0x4321, 0x18760), lambda a: a >> 7 == 0x4321, lambda b: b << 5 == 0x18760),
    "a product of each": (
        U32, U32, (0x9E3779B1, 0x85EBCA6B, 0x1234567, 0x89ABCDE),
        lambda a: a * 0x9E3779B1 % 2**32 == 0x1234567, lambda b: b * 0x85EBCA6B % 2**32 == 0x89ABCDE,
    ),
    "a product of one, a number": (
        U16, U32, (0x79B1, 0x4567, 0x89ABCDE), lambda a: a * 0x79B1 % 2**16 == 0x4567, lambda b: b == 0x89ABCDE,
    ),
    "a narrow range of one": (
        U32, U32, (0xFFFFF000, 0xFFFFF010, 0x1234567), lambda a: 0xFFFFF000 < a < 0xFFFFF010, lambda b: b == 0x1234567,
    ),
    "narrow ranges of floats": (
        F32, F32, (0x42C80000, 100.0, 0x42C80005, 0x40490FDB, 3.1415927410125732, 0x40490FDE),
        lambda a: 0x42C80000 < a < 0x42C80005, lambda b: 0x40490FDB < b < 0x40490FDE,
    ),
    "a sum of one float, a product of the other": (
        F32, F32, (0x41200000, 10.0, 0x40400000, 3.0, 0x42C80000, 100.0, 0x41F80000, 31.0),
        lambda a: f32(a) + np.float32(10) == 100, lambda b: f32(b) * np.float32(3) == 31,
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", EACH_IN_A_STEP)
def test_two_inputs_are_each_beside_a_number_or_become_one_in_a_step(name):
    """Wrong code that errs only if two operands both have a special value, of which the code shows a part."""
    one, two, numbers, first, second = EACH_IN_A_STEP[name]
    rows = made_together({"a": one, "b": two}, numbers, np.random.default_rng(0))
    columns = [[int(c) % (1 << f.unit_bits) for c in row] for row, f in zip(rows, (one, two), strict=True)]
    pairs = set(zip(*columns, strict=True))
    firsts, seconds = ([c for c in {*codes} if met(c)] for codes, met in zip(columns, (first, second), strict=True))
    assert any((a, b) in pairs for a in firsts for b in seconds)


def test_pairs_that_are_each_solved_stay_few():
    numbers = [0x9E3779B1 * k % 2**32 for k in range(1, 40)]
    rows = made_together({"a": U32, "b": U32}, numbers, np.random.default_rng(0))
    assert len(rows[0]) < 40_000
