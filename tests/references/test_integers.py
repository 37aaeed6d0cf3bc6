"""Integer arithmetic and bit manipulation, compared with Python integers and the loops of the ISA's pseudocode."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from ptxdiff.references import bits, formats, integers
from ptxdiff.references.formats import FORMATS, I16, I32, I64, U16, U32, U64, Format

ARITHMETIC = [FORMATS[name] for name in ("int16", "int32", "int64", "uint16", "uint32", "uint64")]
WIDE = [I32, U32, I64, U64]


def operands(fmt: Format, count: int, seed: int = 0) -> list[torch.Tensor]:
    """All combinations of edge codes for two or more operands, then random codes of every magnitude."""
    edges = [
        0,
        1,
        2,
        3,
        7,
        8,
        fmt.max_finite,
        fmt.max_finite - 1,
        fmt.code_mask,
        fmt.code_mask - 1,
        1 << fmt.sign_shift,
    ]
    product = (
        list(itertools.product(edges, repeat=count)) if count < 3 else list(itertools.product(edges[::2], repeat=3))
    )
    rng = np.random.default_rng(seed)
    random = [
        [
            int(x) >> int(s)
            for x, s in zip(rng.integers(0, 1 << 64, 400, dtype=np.uint64), rng.integers(0, 64, 400), strict=True)
        ]
        for _ in range(count)
    ]
    columns = [[row[place] for row in product] + random[place] for place in range(count)]
    return [torch.tensor([to_int64(code & fmt.code_mask) for code in column]) for column in columns]


def to_int64(pattern: int) -> int:
    return pattern - (1 << 64) if pattern >= 1 << 63 else pattern


def values(fmt: Format, codes: torch.Tensor) -> list[int]:
    return [int(formats.value(fmt, code)) for code in codes.tolist()]


def check(fmt: Format, got: torch.Tensor, expected: list[int]) -> None:
    """Compare codes of `fmt` with Python integers, which are wrapped to the format's width."""
    mask = fmt.code_mask
    for place, (code, value) in enumerate(zip(got.tolist(), expected, strict=True)):
        assert code & mask == value & mask, (place, hex(code & mask), hex(value & mask))
        assert fmt.code_bits == 64 or 0 <= code <= mask


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


TWO: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul": lambda a, b, n: a * b,
    "minimum": lambda a, b, n: min(a, b),
    "maximum": lambda a, b, n: max(a, b),
    "div": lambda a, b, n: truncated(a, b),
    "rem": lambda a, b, n: a - b * truncated(a, b),
}


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("fmt", ARITHMETIC, ids=str)
def test_two_operands(fmt: Format, name: str) -> None:
    a, b = operands(fmt, 2)
    if name in ("div", "rem"):
        a, b = a[b != 0], b[b != 0]
    got = getattr(integers, name)(a, b, fmt=fmt)
    check(fmt, got, [TWO[name](x, y, fmt.code_bits) for x, y in zip(values(fmt, a), values(fmt, b), strict=True)])


@pytest.mark.parametrize("fmt", ARITHMETIC, ids=str)
def test_high_half_and_wide_products(fmt: Format) -> None:
    a, b = operands(fmt, 2)
    products = [x * y for x, y in zip(values(fmt, a), values(fmt, b), strict=True)]
    check(fmt, integers.mul(a, b, fmt=fmt, half="hi"), [product >> fmt.code_bits for product in products])
    if fmt.code_bits < 64:
        double = FORMATS[f"{'' if fmt.has_sign else 'u'}int{2 * fmt.code_bits}"]
        check(double, integers.mul_wide(a, b, fmt=fmt), products)


@pytest.mark.parametrize("fmt", ARITHMETIC, ids=str)
def test_three_operands(fmt: Format) -> None:
    a, b, c = operands(fmt, 3)
    rows = list(zip(values(fmt, a), values(fmt, b), values(fmt, c), strict=True))
    check(fmt, integers.mad(a, b, c, fmt=fmt), [x * y + z for x, y, z in rows])
    check(fmt, integers.mad(a, b, c, fmt=fmt, half="hi"), [(x * y >> fmt.code_bits) + z for x, y, z in rows])
    check(fmt, integers.sad(a, b, c, fmt=fmt), [z + abs(x - y) for x, y, z in rows])


def test_saturation_and_relu() -> None:
    a, b, c = operands(I32, 3)
    rows = list(zip(values(I32, a), values(I32, b), values(I32, c), strict=True))

    def clamp(value: int) -> int:
        return min(max(value, -(1 << 31)), (1 << 31) - 1)

    check(I32, integers.add_saturating(a, b), [clamp(x + y) for x, y, _ in rows])
    check(I32, integers.sub_saturating(a, b), [clamp(x - y) for x, y, _ in rows])
    check(I32, integers.mad(a, b, c, half="hi", sat=True), [clamp((x * y >> 32) + z) for x, y, z in rows])
    check(I32, integers.minimum(a, b, relu=True), [max(min(x, y), 0) for x, y, _ in rows])
    check(I16, integers.maximum(a & 0xFFFF, b & 0xFFFF, fmt=I16, relu=True),
          [max(x, y, 0) for x, y in zip(values(I16, a & 0xFFFF), values(I16, b & 0xFFFF), strict=True)])  # fmt: skip


@pytest.mark.parametrize("fmt", [I32, U32], ids=str)
def test_24_bit_products(fmt: Format) -> None:
    a, b, c = operands(fmt, 3)

    def low24(value: int) -> int:
        value &= 0xFFFFFF
        return value - (1 << 24) if fmt.has_sign and value >> 23 else value

    rows = list(zip(values(fmt, a), values(fmt, b), values(fmt, c), strict=True))
    for half, shift in (("lo", 0), ("hi", 16)):
        check(fmt, integers.mul24(a, b, fmt=fmt, half=half), [low24(x) * low24(y) >> shift for x, y, _ in rows])
        check(
            fmt, integers.mad24(a, b, c, fmt=fmt, half=half), [(low24(x) * low24(y) >> shift) + z for x, y, z in rows]
        )


@pytest.mark.parametrize("fmt", [I16, I32, I64], ids=str)
def test_signs(fmt: Format) -> None:
    (a,) = operands(fmt, 1)
    check(fmt, integers.absolute(a, fmt=fmt), [abs(x) for x in values(fmt, a)])
    check(fmt, integers.negate(a, fmt=fmt), [-x for x in values(fmt, a)])


@pytest.mark.parametrize("fmt", [U32, U64], ids=str)
def test_carry_chains(fmt: Format) -> None:
    a, b, c = operands(fmt, 3)
    flag = c & 1
    width = fmt.code_bits
    sums, carry = integers.add_carry(a, b, flag, fmt=fmt)
    differences, borrow = integers.sub_borrow(a, b, flag, fmt=fmt)
    rows = list(zip(values(fmt, a), values(fmt, b), flag.tolist(), strict=True))
    check(fmt, sums, [x + y + f for x, y, f in rows])
    check(fmt, differences, [x - y - f for x, y, f in rows])
    assert carry.tolist() == [x + y + f >> width for x, y, f in rows]
    assert borrow.tolist() == [int(x - y - f < 0) for x, y, f in rows]


@pytest.mark.parametrize("a_signed", [False, True])
@pytest.mark.parametrize("b_signed", [False, True])
def test_dot_products(a_signed: bool, b_signed: bool) -> None:
    a, b, c = operands(U32, 3)

    def lanes(value: int, size: int, signed: bool) -> list[int]:
        return [
            int.from_bytes(value.to_bytes(4, "little")[at : at + size], "little", signed=signed)
            for at in range(0, 4, size)
        ]

    rows = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    four = [
        z + sum(p * q for p, q in zip(lanes(x, 1, a_signed), lanes(y, 1, b_signed), strict=True)) for x, y, z in rows
    ]
    check(U32, integers.dp4a(a, b, c, a_signed=a_signed, b_signed=b_signed), four)
    for half, start in (("lo", 0), ("hi", 2)):
        two = [
            z + sum(p * q for p, q in zip(lanes(x, 2, a_signed), lanes(y, 1, b_signed)[start:][:2], strict=True))
            for x, y, z in rows
        ]
        check(U32, integers.dp2a(a, b, c, half=half, a_signed=a_signed, b_signed=b_signed), two)


# ---- Bits ---------------------------------------------------------------------------------------------------------


def small(count: int, limit: int, seed: int) -> torch.Tensor:
    """Positions and lengths: all up to 70, and larger ones."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(np.concatenate([np.arange(70), rng.integers(0, limit, count)])[:count])


def bit(value: int, place: int) -> int:
    return value >> place & 1


@pytest.mark.parametrize("fmt", WIDE, ids=str)
def test_shifts(fmt: Format) -> None:
    a = operands(fmt, 2)[0]
    amount = small(len(a), 1 << 32, 1)
    n = fmt.code_bits
    check(
        fmt,
        bits.shl(a, amount, fmt=fmt),
        [x << s if s < n else 0 for x, s in zip(values(fmt, a), amount.tolist(), strict=True)],
    )
    check(
        fmt,
        bits.shr(a, amount, fmt=fmt),
        [x >> min(s, n) for x, s in zip(values(fmt, a), amount.tolist(), strict=True)],
    )


@pytest.mark.parametrize("fmt", WIDE, ids=str)
def test_bit_fields(fmt: Format) -> None:
    a, b = operands(fmt, 2, seed=4)
    position, length = small(len(a), 300, 2), small(len(a), 300, 3).flip(0)
    extracted, inserted = [], []
    msb = fmt.code_bits - 1
    for x, y, p, n in zip(a.tolist(), b.tolist(), position.tolist(), length.tolist(), strict=True):
        if fmt.code_bits == 32:  # an H200 uses position and length of 64-bit fields without truncation
            p, n = p & 255, n & 255
        sbit = 0 if n == 0 or not fmt.has_sign else bit(x, min(p + n - 1, msb))
        extracted.append(sum((bit(x, p + i) if i < n and p + i <= msb else sbit) << i for i in range(msb + 1)))
        result = y & fmt.code_mask
        for i in range(n):
            if p + i <= msb:
                result = result & ~(1 << p + i) | bit(x, i) << p + i
        inserted.append(result)
    check(fmt, bits.bfe(a, position, length, fmt=fmt), extracted)
    check(fmt, bits.bfi(a, b, position, length, fmt=fmt), inserted)


@pytest.mark.parametrize("fmt", WIDE, ids=str)
def test_counting_and_finding(fmt: Format) -> None:
    (a,) = operands(fmt, 1, seed=5)
    n = fmt.code_bits
    unsigned = [code & fmt.code_mask for code in a.tolist()]
    assert bits.popc(a).tolist() == [x.bit_count() for x in unsigned]
    assert bits.clz(a, fmt=fmt).tolist() == [n - x.bit_length() for x in unsigned]
    check(fmt, bits.brev(a, fmt=fmt), [int(f"{x:0{n}b}"[::-1], 2) for x in unsigned])
    plain = [x ^ fmt.code_mask if fmt.has_sign and bit(x, n - 1) else x for x in unsigned]
    assert bits.bfind(a, fmt=fmt).tolist() == [x.bit_length() - 1 if x else 0xFFFFFFFF for x in plain]
    expected = [n - x.bit_length() if x else 0xFFFFFFFF for x in plain]
    assert bits.bfind(a, fmt=fmt, shift_amount=True).tolist() == expected


def nth_set(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if bit(mask, base) else 0xFFFFFFFF
    position, count, step = base, abs(offset) - 1, 1 if offset > 0 else -1
    while 0 <= position < 32:
        if bit(mask, position):
            if count == 0:
                return position
            count -= 1
        position += step
    return 0xFFFFFFFF


def test_nth_set_bit() -> None:
    rng = np.random.default_rng(6)
    mask, base, offset = (rng.integers(low, high, 3000) for low, high in ((0, 1 << 32), (0, 32), (-12, 13)))
    got = bits.fns(*(torch.from_numpy(x) for x in (mask, base, offset & 0xFFFFFFFF)))
    assert got.tolist() == [nth_set(*row) for row in zip(mask.tolist(), base.tolist(), offset.tolist(), strict=True)]
    examples = [
        bits.fns(*(torch.tensor([x & 0xFFFFFFFF]) for x in (0xAAAAAAAA, b, n))).item()
        for b, n in ((3, 1), (3, -1), (2, 1), (2, -1))
    ]
    assert examples == [3, 3, 3, 1]


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_masks_and_extension(mode: bits.Mode) -> None:
    a, b = (x.flatten() for x in torch.meshgrid(torch.arange(70), torch.arange(70), indexing="ij"))
    expected = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        mask0, total = 0xFFFFFFFF << (x & 31), (x & 31) + (y & 31)
        mask1 = 0xFFFFFFFFFFFFFFFF << total
        overflow = total >= 32
        if mode == "clamp":
            mask0 = 0 if x >= 32 else mask0
            overflow = overflow or x >= 32 or y >= 32
        mask1 = 0 if overflow else 0xFFFFFFFFFFFFFFFF if y & 31 == 0 else mask1
        expected.append(mask0 & ~mask1 & 0xFFFFFFFF)
    assert bits.bmsk(a, b, mode=mode).tolist() == expected
    source = operands(U32, 2, seed=7)[0]
    amount = small(len(source), 80, 8)
    for fmt in (I32, U32):
        wanted = []
        for x, y in zip(source.tolist(), amount.tolist(), strict=True):
            n = y & 31
            if y >= 32 and mode == "clamp":
                wanted.append(x)
                continue
            low = x & ((1 << n) - 1)
            wanted.append(low - (1 << n) if n and fmt.has_sign and bit(low, n - 1) else low)
        check(U32, bits.szext(source, amount, fmt=fmt, mode=mode), wanted)


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_funnel_shift(mode: bits.Mode) -> None:
    low, high = operands(U32, 2, seed=9)
    amount = small(len(low), 1 << 32, 10)
    for left in (True, False):
        expected = []
        for x, y, n in zip(low.tolist(), high.tolist(), amount.tolist(), strict=True):
            count = min(n, 32) if mode == "clamp" else n & 31
            both = y << 32 | x
            expected.append((both << count >> 32 if left else both >> count) & 0xFFFFFFFF)
        assert bits.shf(low, high, amount, left=left, mode=mode).tolist() == expected


def test_every_logic_table() -> None:
    a, b, c = operands(U32, 3, seed=11)
    for table in range(256):
        got = bits.lop3(a, b, c, table).tolist()
        for x, y, z, result in list(zip(a.tolist(), b.tolist(), c.tolist(), got, strict=True))[::37]:
            assert result == sum(bit(table, 4 * bit(x, i) + 2 * bit(y, i) + bit(z, i)) << i for i in range(32))
    assert bits.lop3(a, b, c, 0x40).tolist() == (a & b & ~c).tolist()
    assert bits.cnot(torch.tensor([0, 1, 5])).tolist() == [1, 0, 0]


def test_byte_permutation() -> None:
    a, b = operands(U32, 2, seed=12)
    selector = torch.from_numpy(np.random.default_rng(13).integers(0, 1 << 16, len(a)))
    got = bits.prmt(a, b, selector).tolist()
    for x, y, s, result in zip(a.tolist(), b.tolist(), selector.tolist(), got, strict=True):
        source = x.to_bytes(4, "little") + y.to_bytes(4, "little")
        picked = []
        for place in range(4):
            nibble = s >> 4 * place & 15
            byte = source[nibble & 7]
            picked.append((255 if byte >> 7 else 0) if nibble & 8 else byte)
        assert result == int.from_bytes(bytes(picked), "little")


def test_byte_permutation_modes() -> None:
    """The bytes of {b, a} are 0x77665544_33221100, so that the result's digits name them (table of the ISA's prmt
    page)."""
    a, b = torch.full((4,), 0x33221100), torch.full((4,), 0x77665544)
    table = {
        "f4e": [0x33221100, 0x44332211, 0x55443322, 0x66554433],
        "b4e": [0x55667700, 0x66770011, 0x77001122, 0x00112233],
        "rc8": [0x00000000, 0x11111111, 0x22222222, 0x33333333],
        "ecl": [0x33221100, 0x33221111, 0x33222222, 0x33333333],
        "ecr": [0x00000000, 0x11111100, 0x22221100, 0x33221100],
        "rc16": [0x11001100, 0x33223322, 0x11001100, 0x33223322],
    }
    for mode, expected in table.items():
        assert bits.prmt(a, b, torch.arange(4) + 8, mode=mode).tolist() == expected


def test_traces_into_one_graph() -> None:
    a, b, c = operands(U32, 3)

    def both(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        high = integers.mul(x, y, fmt=U64, half="hi") & 0xFFFFFFFF
        return bits.prmt(high, bits.bfe(y, z, x), z)

    traced = torch.compile(both, backend="eager", fullgraph=True)
    assert torch.equal(traced(a, b, c), both(a, b, c))


def test_unsigned_16_bits() -> None:
    """uint16 arithmetic stays in its width."""
    assert integers.add(torch.tensor([0xFFFF]), torch.tensor([1]), fmt=U16).item() == 0
