"""Copies between tensors and shared memory in all modes: kernels, random cases, and what the ISA says they do.

The results are computed with plain loops from the specification (ISA 5.5.3 to 5.5.7, 9.7.9.27.1), without the emulator.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

THREADS = 128
KERNEL = """
.version {version}
.target {target}
.address_size 64
.visible .entry k(.param .align 64 .b8 m[128], .param .u64 y, .param .s32 c0, .param .s32 c1, .param .s32 c2,
  .param .s32 c3, .param .s32 c4, .param .s32 o0, .param .s32 o1, .param .s32 o2) {{
  .reg .b32 t, a, v, w, e<6>, f<4>, q<5>; .reg .b64 g, gy, h; .reg .b16 i<4>; .reg .pred p, d;
  .shared .align 1024 .b8 data[{room}]; .shared .align 8 .b64 bar;
  mov.b64 g, m; cvta.param.u64 g, g; ld.param.u64 gy, [y]; mov.u32 t, %tid.x; mov.u32 a, bar; mov.u32 v, data;
  ld.param.s32 e0, [c0]; ld.param.s32 e1, [c1]; ld.param.s32 e2, [c2]; ld.param.s32 e3, [c3]; ld.param.s32 e4, [c4];
  ld.param.s32 f0, [o0]; ld.param.s32 f1, [o1]; ld.param.s32 f2, [o2];
  cvt.u16.u32 i0, f0; cvt.u16.u32 i1, f1; cvt.u16.u32 i2, f2;
  setp.eq.u32 p, t, 0; mul.lo.u32 w, t, 16; mul.wide.u32 h, t, 16; add.u64 gy, gy, h;
  {body}
  ret; }}
"""
LOAD = """
  @p mbarrier.init.shared::cta.b64 [a], 1; fence.mbarrier_init.release.cluster; fence.proxy.async; bar.sync 0;
  @p mbarrier.arrive.expect_tx.shared::cta.b64 _, [a], {bytes};
  @p cp.async.bulk.tensor.{rank}d.{to}.global.{mode}.mbarrier::complete_tx::bytes
     [v], [g, {{{coordinates}}}], [a]{info};
WAIT: mbarrier.try_wait.parity.shared::cta.b64 d, [a], 0; @!d bra WAIT;
  {moves}
"""
STORE = """
  {moves}
  fence.proxy.async; bar.sync 0;
  @p {name}.{rank}d.global.shared::cta{op}.{mode}.bulk_group [g, {{{coordinates}}}], [v];
  @p cp.async.bulk.commit_group; @p cp.async.bulk.wait_group 0;
"""
OUT = "@d ld.shared.v4.u32 {{q0, q1, q2, q3}}, [w+{at}]; @d st.global.v4.u32 [gy+{at}], {{q0, q1, q2, q3}};"
IN = "@d ld.global.v4.u32 {{q0, q1, q2, q3}}, [gy+{at}]; @d st.shared.v4.u32 [w+{at}], {{q0, q1, q2, q3}};"
TYPES = {0: "u1", 1: "u2", 2: "u4", 3: "i4", 4: "u8", 5: "i8", 6: "f2", 7: "f4", 8: "f4", 9: "f8", 10: "u2", 11: "f4",
         12: "f4"}  # fmt: skip
"""By the code of an element's type in a tensor map: numpy's type, and for bfloat16 that of its bits."""
NANS = {6: 0x7FF7, 7: 0x7FF77FF7, 8: 0x7FF77FF7, 9: 0x7FF77FF77FF77FF7, 10: 0x7FF7, 11: 0x7FF77FF7, 12: 0x7FF77FF7}
"""What an H200 gives: the ISA and the driver's manual say no more than NaN."""
UNIT = 16
"""Bytes that an H200 writes together: of those in which a row of a tensor ends, also what lies behind the end."""
SPANS = (16, 32, 64, 128)
OPERATIONS = {
    "add": (2, 3, 4, 6, 7, 10), "min": (2, 3, 4, 5, 6), "max": (2, 3, 4, 5, 6), "inc": (2,), "dec": (2,),
    "and": (2, 3, 4), "or": (2, 3, 4), "xor": (2, 3, 4),
}  # fmt: skip
"""The types of elements of each reduction. Minima of bfloat16 are left to the tests of min.bf16."""


@dataclass(frozen=True)
class Case:
    """A copy. Dimensions are innermost last, as in a tensor's shape; coordinates, offsets and steps innermost first.

    tensor: elements, of which the last dimension may be longer than the tensor (`size`, its number of elements there).
    box: of a tile, innermost last; of im2col pixels and channels. lower, upper: corners, W first. steps: W first.
    """

    mode: str
    element: int
    swizzle: int
    fill: int
    tensor: np.ndarray
    size: int
    box: tuple[int, ...]
    coordinates: tuple[int, ...]
    offsets: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    op: str = ""
    out: bool = False

    @property
    def stores(self) -> bool:
        """Whether it goes to the tensor. `out` says so of a plain copy of a tile, whose mode has both directions."""
        return bool(self.op) or self.out or self.mode.endswith("no_offs") or self.mode == "tile::scatter4"

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's sizes."""
        return (*self.tensor.shape[:-1], self.size)

    @property
    def strides(self) -> tuple[int, ...]:
        """The tensor's strides in elements."""
        return tuple(s // self.tensor.itemsize for s in self.tensor.strides)

    @property
    def rows(self) -> int:
        """How many rows of channels the box has in shared memory."""
        if self.mode == "im2col::w::128":
            return 128
        return 4 if self.mode.endswith("4") else int(np.prod(self.box[:-1]))

    @property
    def bytes(self) -> int:
        """The bytes of the box in shared memory: of its elements outside of the tensor, too."""
        return self.rows * self.box[-1] * self.tensor.itemsize

    def text(self, target: str, version: str = "8.7", to: str = "shared::cta") -> str:
        """The PTX of a kernel that makes the copy."""
        count = 5 if self.mode.endswith("4") else self.tensor.ndim
        coordinates = ", ".join(f"e{k}" for k in range(count))
        info = ", {" + ", ".join(f"i{k}" for k in range(len(self.offsets))) + "}" if self.offsets else ""
        starts = range(0, self.bytes, 16 * THREADS)
        moves = "add.u32 w, w, v;" + " ".join(
            f"setp.lt.u32 d, t, {(self.bytes - at) // 16}; {(IN if self.stores else OUT).format(at=at)}"
            for at in starts
        )
        body = (STORE if self.stores else LOAD).format(
            moves=moves, bytes=self.bytes, rank=self.tensor.ndim, mode=self.mode, coordinates=coordinates, info=info,
            to=to,
            name="cp.reduce.async.bulk.tensor" if self.op else "cp.async.bulk.tensor", op=f".{self.op}" * bool(self.op),
        )  # fmt: skip
        return KERNEL.format(version=version, target=target, room=-(-self.bytes // 1024) * 1024, body=body)

    @property
    def numbers(self) -> list[int]:
        """The arguments behind the map and the pointer."""
        return [*self.coordinates, *[0] * (5 - len(self.coordinates)), *self.offsets, *[0] * (3 - len(self.offsets))]


def _spatial(
    start: tuple[int, ...], low: tuple[int, ...], last: tuple[int, ...], step: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Positions in a box of pixels from a start on, the outermost dimension first."""
    if not start:
        yield ()
        return
    at, inner = start[0], start[1:]
    while at <= last[0]:
        for rest in _spatial(inner, low[1:], last[1:], step[1:]):
            yield (at, *rest)
        inner, at = low[1:], at + step[0]


def positions(case: Case) -> list[tuple[int, ...]]:
    """The place of the first channel of each row of the box, outermost dimension first, in the order of the rows."""
    first = case.coordinates[::-1]  # outermost first; the last one is the channel
    if case.mode.endswith("4"):
        return [(row, case.coordinates[0]) for row in case.coordinates[1:]]
    if case.mode == "tile":
        ranges = [range(f, f + b) for f, b in zip(first[:-1], case.box[:-1], strict=True)]
        return [(*outer, first[-1]) for outer in itertools.product(*ranges)]
    moving = len(case.lower)  # W, or W and H, or W, H and D; the others stay
    fixed, start = first[1 : -1 - moving], first[-1 - moving : -1]
    offsets = (case.offsets[1:] if "::w" in case.mode else case.offsets) or (0,) * moving
    sizes = case.shape[-1 - moving : -1]
    low = tuple(a + o for a, o in zip(case.lower[::-1], offsets[::-1], strict=True))
    last = tuple(n - 1 + b + o for n, b, o in zip(sizes, case.upper[::-1], offsets[::-1], strict=True))
    begin = tuple(s + o for s, o in zip(start, offsets[::-1], strict=True))
    found: list[tuple[int, ...]] = []
    for batch in itertools.count(first[0]):
        for place in _spatial(begin, low, last, case.steps[::-1]):
            found.append((batch, *fixed, *place, first[-1]))
            if len(found) == case.rows:
                return found
        begin = low
    raise AssertionError


def shared_place(case: Case, row: int, channel: int) -> int:
    """Where an element lies in shared memory, in bytes from a multiple of 1024 on."""
    at = (row * case.box[-1] + channel) * case.tensor.itemsize
    line, chunk = at // 128, at % 128 // 16
    return line * 128 + (chunk ^ line % (SPANS[case.swizzle] // 16)) * 16 + at % 16


def read_as(element: int, code: int) -> int:
    """What a load makes of an element's bits: of tf32 (11, 12) the nearest number with 13 zeros at its end, of two the
    one whose last bit is even; of a NaN 0x7fffe000. So an H200 does it; .ftz changes nothing.
    """
    if element not in (11, 12):
        return code
    if code >> 23 & 0xFF == 0xFF:
        return code if code & 0x7FFFFF == 0 else 0x7FFFE000
    down, rest = divmod(code, 1 << 13)
    up = rest > 1 << 12 or (rest == 1 << 12 and down % 2 == 1)
    return down + up << 13


def loaded(case: Case) -> np.ndarray:
    """The bytes that a load leaves in shared memory."""
    size = case.tensor.itemsize
    found = np.zeros(case.bytes, np.uint8)
    bits = case.tensor.view(f"u{size}")
    for row, place in enumerate(positions(case)):
        for channel in range(case.box[-1]):
            at = (*place[:-1], place[-1] + channel)
            inside = all(0 <= a < n for a, n in zip(at, case.shape, strict=True))
            code = read_as(case.element, int(bits[at])) if inside else NANS[case.element] if case.fill else 0
            start = shared_place(case, row, channel)
            found[start : start + size] = np.frombuffer(code.to_bytes(size, "little"), np.uint8)
    return found


def _bfloat(code: int) -> np.float32:
    return np.array([code << 16], np.uint32).view(np.float32)[0]


def _to_bfloat(number: np.float32) -> int:
    code = int(np.array([number], np.float32).view(np.uint32)[0])
    return (code + 0x7FFF + (code >> 16 & 1)) >> 16


FUNCTIONS: dict[str, Callable[..., object]] = {
    "add": lambda a, b: a + b, "min": min, "max": max, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b, "inc": lambda a, b: 0 if a >= b else a + 1,
    "dec": lambda a, b: b if a == 0 or a > b else a - 1,
}  # fmt: skip


def updated(op: str, element: int, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """One element reduced with another one; arrays of one number."""
    if not op:
        return new
    if element == 10:
        return np.array([_to_bfloat(FUNCTIONS[op](_bfloat(int(old[0])), _bfloat(int(new[0]))))], np.uint16)
    if element in (6, 7):
        return np.array([FUNCTIONS[op](old[0], new[0])], old.dtype)
    bits = 8 * old.itemsize
    code = int(FUNCTIONS[op](int(old[0]), int(new[0]))) & (1 << bits) - 1
    return np.array([code], f"u{old.itemsize}").view(old.dtype)


def stored(case: Case, data: np.ndarray) -> np.ndarray:
    """The tensor after a store or a reduction of bytes of shared memory."""
    found, size = case.tensor.copy(), case.tensor.itemsize
    for row, place in enumerate(positions(case)):
        for channel in range(case.box[-1]):
            at = (*place[:-1], place[-1] + channel)
            written = -(-case.size * size // UNIT) * UNIT // size
            if all(0 <= a < n for a, n in zip(at, (*case.shape[:-1], written), strict=True)):
                start = shared_place(case, row, channel)
                new = data[start : start + size].view(case.tensor.dtype)
                found[at] = updated(case.op, case.element, found[at].reshape(1), new)[0]
    return found


# cases ------------------------------------------------------------------------------------------------------------


def numbers(rng: np.random.Generator, element: int, shape: tuple[int, ...]) -> np.ndarray:
    """Elements of all sizes: of floats finite ones, subnormal ones among them."""
    dtype = np.dtype(TYPES[element])
    if element in (6, 7, 9):
        wide = rng.standard_normal(shape) * np.exp2(rng.integers(-20, 12, shape))
        return wide.astype(dtype)
    if element == 10:
        wide = (rng.standard_normal(shape) * np.exp2(rng.integers(-130, 12, shape))).astype(np.float32)
        return (wide.view(np.uint32) >> 16).astype(np.uint16)
    few = rng.integers(0, 1 << 16, shape) < (1 << 14)
    whole = np.frombuffer(rng.bytes(dtype.itemsize * int(np.prod(shape))), dtype).reshape(shape)
    return np.where(few, rng.integers(0, 4, shape).astype(dtype), whole)


def float32_codes() -> np.ndarray:
    """Codes of float32, in boxes of 8 x 256: each sign and exponent with low bits around ties, and random ones."""
    ties = [0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x2FFF, 0x3000, 0x3001, 0x3FFFFF, 0x400000, 0x400001]
    ties += [0x7FDFFF, 0x7FEFFF, 0x7FF000, 0x7FF001, 0x7FFFFF]
    edges = [sign << 31 | e << 23 | low for sign in (0, 1) for e in range(256) for low in ties]
    rng = np.random.default_rng(0)
    few = [rng.integers(0, 1 << 32, 4096), rng.integers(0, 1 << 24, 1024), rng.integers(0xFF << 23, 1 << 31, 1024)]
    codes = np.concatenate([np.array(edges), *few]).astype(np.uint32)
    return np.resize(codes, -(-len(codes) // 2048) * 2048).reshape(-1, 8, 256)


def random_case(
    rng: np.random.Generator, mode: str, rank: int, op: str = "", element: int | None = None, out: bool = False
) -> Case:
    """A copy in a mode with a tensor of 3 to 5 dimensions (2 for rows; any for tiles). element: instead of any."""
    if element is None:
        element = int(rng.choice(OPERATIONS[op] if op else list(TYPES)))
    size = np.dtype(TYPES[element]).itemsize
    swizzle = int(rng.integers(1 if mode.startswith("im2col::w") else 0, 4))
    channels = SPANS[swizzle] // size * (int(rng.integers(1, 3)) if not swizzle else 1)
    shape = tuple(int(n) for n in rng.integers(1, 6, rank - 1))
    if mode.endswith("4"):
        shape = (int(rng.integers(6, 12)),)
    row = channels + int(rng.integers(0, 3)) * 16 // size
    tensor = numbers(rng, element, (*shape, row))
    inner = max(1, row - int(rng.integers(0, 3)))
    fill = int(element in NANS and rng.integers(0, 2))
    stores = bool(op) or out or mode.endswith("no_offs") or mode == "tile::scatter4"
    first = int(rng.integers(0, 2)) * (16 // size) * (1 if stores else -1)
    known = {"mode": mode, "element": element, "swizzle": swizzle, "fill": 0 if stores else fill, "tensor": tensor,
             "size": inner, "op": op, "out": out}  # fmt: skip
    if mode.endswith("4"):
        rows = rng.permutation(np.arange(-1, shape[0] + 1))[:4]
        return Case(box=(1, channels), coordinates=(first, *map(int, rows)), **known)
    if mode == "tile":
        box = tuple(int(n) for n in rng.integers(1, 4, rank - 1))
        at = tuple(int(rng.integers(0 if stores else -2, n + 1)) for n in shape[::-1])
        return Case(box=(*box, channels), coordinates=(first, *at), **known)
    spatial = shape[:0:-1]  # W first
    moving = spatial[:1] if "::w" in mode else spatial
    lower, upper, start = [], [], []
    for n in moving:
        low = 0 if stores else int(rng.integers(-3, 2))
        low = int(rng.integers(0, n)) if stores else low
        high = int(rng.integers(low, n)) if stores else int(rng.integers(low, low + n + 2))
        lower.append(low)
        upper.append(high - (n - 1))
        start.append(int(rng.integers(low - (2 if "::w" in mode else 0), high + 1)))
    fixed = [int(rng.integers(-1, n + 1)) for n in spatial[len(moving) :]]
    batch = int(rng.integers(0 if stores else -1, shape[0] + 1))
    pixels = int(rng.integers(1, 40))
    offsets: tuple[int, ...] = ()
    if mode == "im2col":
        offsets = tuple(int(o) for o in rng.integers(0, 4, rank - 2))
    elif "::w" in mode:
        offsets = (0, int(rng.integers(0, 4)))
    steps = tuple(int(s) for s in rng.integers(1, 4, len(moving)))
    return Case(box=(pixels, channels), coordinates=(first, *start, *fixed, batch), offsets=offsets,
                lower=tuple(lower), upper=tuple(upper), steps=steps, **known)  # fmt: skip


def smallest(op: str, element: int, rank: int) -> Case:
    """A reduction of a tile that lies inside of a tensor of one dimension or two."""
    size = np.dtype(TYPES[element]).itemsize
    row = 16 // size
    tensor = numbers(np.random.default_rng(element), element, (4, 2 * row) if rank == 2 else (2 * row,))
    return Case("tile", element, 0, 0, tensor, 2 * row, (2, row)[-rank:], (0,) * rank, op=op)


def cases(
    count: int, seed: int, modes: tuple[str, ...], op: str = "", element: int | None = None, out: bool = False
) -> list[Case]:
    """Random copies, by turns in the modes. element: the code of all elements' type. out: to the tensor."""
    rng = np.random.default_rng(seed)
    chosen = itertools.islice(itertools.cycle(modes), count)
    ranks = {"tile": (1, 6), "tile::gather4": (2, 3), "tile::scatter4": (2, 3)}
    return [random_case(rng, mode, int(rng.integers(*ranks.get(mode, (3, 6)))), op, element, out) for mode in chosen]
