"""Triton's functions in small kernels on the CPU, compared with numpy, for an old target and a new one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these tests")

from ptxdiff import emulated, run_ptx
from ptxdiff.emulator.errors import PtxError, UndefinedBits
from ptxdiff.launcher import LaunchError
from tests.support import small_kernels as k
from tests.support.sampling import only

TARGETS = ["sm_80", "sm_100a"]
on_both = pytest.mark.parametrize("target", TARGETS)
on_the_new = pytest.mark.parametrize("target", only(TARGETS, ["sm_100a"]))
"""For what the code of both targets does alike: quick on the new one."""


def on_either(
    names: str, rows: Iterable[tuple[Any, ...]], slow: Iterable[tuple[Any, ...]] = ()
) -> pytest.MarkDecorator:
    """Run the rows on the targets in turn, as compiling takes most of the time; slow tests run the other target.

    Types whose code differs between the targets run on both in the quick tests. The rows of `slow` are slow on both.
    """
    found = [pytest.param(target, *row, marks=pytest.mark.slow) for row in slow for target in TARGETS]
    for number, row in enumerate(rows):
        for place, target in enumerate(TARGETS):
            words = {word for cell in row for word in str(cell).split()}
            now = place == number % 2 or not {"float16", "bfloat16", "float8_e5m2"}.isdisjoint(words)
            found.append(pytest.param(target, *row, marks=() if now else pytest.mark.slow))
    return pytest.mark.parametrize(f"target, {names}", found)


N = 300


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")


ELEMENTWISE = {
    "copy": ("int8 uint8 int16 int32 int64 float16 bfloat16 float32 float64 bool float8_e5m2", lambda a: a),
    "negate": ("int8 int64 float16 bfloat16 float32 float64", lambda a: -a),
    "square": ("int8 int16 int32 int64 float16 bfloat16 float32 float64", lambda a: a * a),
    "root": ("float32", np.sqrt),
    "third": ("float32", lambda a: a / np.float32(3)),
    "floor": ("float32 float64", np.floor),
    "round": ("float32 float64", np.rint),
    "clamp": ("float32", lambda a: np.clip(a, np.float32(-1), np.float32(1))),
    "high": ("uint32", lambda a: (a.astype(np.uint64) * 0x9E3779B9 >> np.uint64(32)).astype(np.uint32)),
    "popcount": ("int32", lambda a: np.bitwise_count(a.view(np.uint32)).astype(np.int32)),
    "shift": ("int32 int64 uint32", lambda a: (a << 3) ^ (a >> 5)),
    "positive": ("int32 float32 float64", lambda a: np.where(a > 0, a, np.zeros_like(a))),
}


@pytest.mark.sample(6)
@on_either("op, dtype", [(op, d) for op, (dtypes, _) in ELEMENTWISE.items() for d in dtypes.split()])
def test_elementwise(target: str, op: str, dtype: str, rng: np.random.Generator) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    x = rng.integers(-90, 90, N).astype(np.float32).astype(kind) if kind.itemsize < 4 else _wide(rng, kind)
    if op == "root":
        x = np.abs(x)
    if op == "negate":  # Triton 3.6 subtracts halves from zero, which gives a positive zero
        x = np.where(x == 0, kind.type(1), x)
    y = np.zeros_like(x)
    emulated(k.elementwise, target)[(2,)](x, y, N, B=256, OP=op, enable_fp_fusion=False)
    with np.errstate(over="ignore"):
        expected = ELEMENTWISE[op][1](x).astype(kind)
    np.testing.assert_array_equal(bits(y), bits(expected))


def _wide(rng: np.random.Generator, kind: np.dtype) -> np.ndarray:
    if kind.kind == "f":
        return (rng.standard_normal(N) * 100).astype(kind)
    info = np.iinfo(kind)
    return rng.integers(info.min, info.max, N, dtype=kind)


@on_the_new
def test_library_functions_of_the_device(target: str, rng: np.random.Generator) -> None:
    for op, function in (("exp2", np.exp2), ("hypot", lambda a: np.hypot(a, 1))):
        x = rng.standard_normal(N).astype(np.float32)
        y = np.zeros_like(x)
        emulated(k.elementwise, target)[(2,)](x, y, N, B=256, OP=op)
        np.testing.assert_allclose(y, function(x.astype(np.float64)), rtol=1e-6)


CONVERSIONS = [
    "float32 float16", "float32 bfloat16", "float32 int32", "float32 int8", "float16 float32", "bfloat16 float32",
    "int32 float32", "int64 float32", "float64 float32", "float32 float64", "int8 int64", "uint8 float16",
    "int32 uint8", "float32 float8_e5m2", "float8_e5m2 float32", "float16 bfloat16",
]  # fmt: skip


@pytest.mark.sample(6)
@on_either("pair", [(pair,) for pair in CONVERSIONS])
def test_conversions(target: str, pair: str, rng: np.random.Generator) -> None:
    source, to = (np.dtype(getattr(ml_dtypes, name, None) or name) for name in pair.split())
    small = 7 if "float8" in pair else 90  # exact in float8; older Tritons round differently
    x = rng.integers(0 if source.kind == "u" else -small, small, N).astype(np.float32)
    fraction = np.float32(0.375 if source.kind in "fV" and "float8" not in pair else 0)
    x = (x + fraction).astype(source)
    y = np.zeros(N, to)
    emulated(k.convert, target)[(2,)](x, y, N, B=256)
    middle = x.astype(np.float32) if source.itemsize < 4 else x
    np.testing.assert_array_equal(bits(y), bits(middle.astype(to)))


@on_both
def test_cache_hints_and_eviction(target: str, rng: np.random.Generator) -> None:
    x = rng.integers(-90, 90, N).astype(np.int32)
    y = np.zeros_like(x)
    emulated(k.hinted, target)[(3,)](x, y, N, B=128)
    np.testing.assert_array_equal(y, 4 * x + 1)
    with pytest.raises(PtxError, match=r"ld\.global\.cg\.L1::evict_first"):
        emulated(k.hinted_twice, target)[(3,)](x, y, N, B=128)


SCANS = {"sum": np.cumsum, "product": np.cumprod, "greatest": np.maximum.accumulate}


@pytest.mark.sample(2)
@on_either("reverse, kind", [(reverse, kind) for reverse in (False, True) for kind in SCANS])
def test_scans(target: str, kind: str, reverse: bool, rng: np.random.Generator) -> None:
    x = rng.integers(-90, 90, 512).astype(np.int32)
    y = np.zeros_like(x)
    emulated(k.scan, target)[(1,)](x, y, B=512, KIND=kind, REVERSE=reverse)
    with np.errstate(over="ignore"):
        expected = SCANS[kind](x[::-1])[::-1] if reverse else SCANS[kind](x)
    np.testing.assert_array_equal(y, expected.astype(np.int32))


REDUCTIONS = {
    "sum": lambda x, axis: x.sum(axis),
    "max": lambda x, axis: x.max(axis),
    "min": lambda x, axis: x.min(axis),
    "xor": lambda x, axis: np.bitwise_xor.reduce(x, axis),
    "argmax": lambda x, axis: x.argmax(axis),
}


REDUCED = [
    ("sum", "int32"), ("sum", "float32"), ("max", "int32"), ("max", "float32"), ("min", "uint32"), ("min", "float32"),
    ("max", "float16"), ("xor", "int32"), ("argmax", "float32"), ("sum", "int64"),
]  # fmt: skip


@pytest.mark.sample(3)
@on_either(
    "kind, dtype, axis",
    [(*row, (n // 2) % 2) for n, row in enumerate(REDUCED)],
    [(*row, 1 - (n // 2) % 2) for n, row in enumerate(REDUCED)],
)
def test_reductions(target: str, kind: str, dtype: str, axis: int, rng: np.random.Generator) -> None:
    x = rng.integers(0, 90, (32, 128)).astype(dtype)
    expected = REDUCTIONS[kind](x, axis)
    y = np.zeros(expected.shape, np.int32 if kind == "argmax" else dtype)
    emulated(k.reduce, target)[(1,)](x, y, M=32, N=128, AXIS=axis, KIND=kind)
    np.testing.assert_array_equal(y, expected)


@on_both
def test_a_maximum_of_floats_with_nan_in_one_warp(target: str) -> None:
    x = np.arange(128, dtype=np.float32).reshape(1, 128)
    x[0, 7] = np.nan
    y = np.zeros(1, np.float32)
    emulated(k.reduce, target)[(1,)](x, y, M=1, N=128, AXIS=1, KIND="max", num_warps=1)
    assert y[0] == 127, "tl.max leaves NaN out unless asked to propagate it"


ARRANGED = {
    "sort": lambda x: np.sort(x)[::-1],
    "flip": lambda x: x[::-1],
    "gather": lambda x: x[(np.arange(len(x)) * 7 + 3) % len(x)],
    "interleave": lambda x: np.stack([x[: len(x) // 2], x[len(x) // 2 :]], 1).ravel(),
    "cat": lambda x: np.sort(np.concatenate([x[: len(x) // 2], x[: len(x) // 2] + 1])),
    "permute": lambda x: x.reshape(4, len(x) // 16, 4).transpose(2, 0, 1).ravel(),
}


MOVED = [(kind, dtype) for kind in ARRANGED for dtype in ("int32", "float32", "int16")]
SORTED = [("sort", "int32"), ("sort", "int16")]
"""A network takes Triton a second; `test_triton_kernels` sorts integers on another target."""


@pytest.mark.sample(4)
@on_either("kind, dtype", [row for row in MOVED if row not in SORTED], SORTED)
def test_arrangements(target: str, kind: str, dtype: str, rng: np.random.Generator) -> None:
    n = 128  # one element for each thread; Triton takes seconds to compile a network that sorts more
    x = rng.integers(-90, 90, n).astype(dtype)
    y = np.zeros_like(x)
    emulated(k.arranged, target)[(1,)](x, y, N=n, KIND=kind)
    np.testing.assert_array_equal(y, ARRANGED[kind](x))


@on_both
def test_a_histogram(target: str, rng: np.random.Generator) -> None:
    x, y = rng.integers(0, 32, 1024).astype(np.int32), np.zeros(32, np.int32)
    emulated(k.counted, target)[(1,)](x, y, N=1024, BINS=32)
    np.testing.assert_array_equal(y, np.bincount(x, minlength=32))


ATOMICS = {"add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
           "xor": np.bitwise_xor}  # fmt: skip


@pytest.mark.sample(6)
@on_either(
    "op, dtype, sem",
    [*((op, d, "relaxed") for op in ATOMICS for d in ("int32", "int64", "uint32")),
     ("add", "float32", "acq_rel"), ("add", "float64", "release"), ("add", "float16", "relaxed"),
     ("add", "bfloat16", "relaxed"), ("max", "float32", "acquire"), ("min", "float32", "relaxed")],
)  # fmt: skip
def test_atomics(target: str, op: str, dtype: str, sem: str, rng: np.random.Generator) -> None:
    if target == "sm_80" and dtype == "bfloat16":
        pytest.skip("Triton has no atomic addition of bfloat16 before sm_90")
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    x = rng.integers(0, 4, 600).astype(kind)  # so small that every sum is exact
    y, old = np.full(8, 3, kind), np.zeros(600, kind)
    emulated(k.atomic, target)[(5,)](x, y, old, 600, B=128, OP=op, PLACES=8, SEM=sem)
    expected = np.array(
        [ATOMICS[op].reduce(x[i::8].astype(np.float64 if kind.kind in "fV" else kind)) for i in range(8)]
    )
    expected = ATOMICS[op](expected.astype(kind), kind.type(3)).astype(kind)
    np.testing.assert_array_equal(y, expected)
    assert (old[:8] == 3).all()


@pytest.mark.sample(2)
@on_both
def test_atomic_exchanges(target: str) -> None:
    x = np.arange(1, 129, dtype=np.int32)
    for dtype in (np.int32, np.int64):
        y, old = np.zeros(128, dtype), np.full(128, -1, dtype)
        emulated(k.atomic, target)[(1,)](x.astype(dtype), y, old, 128, B=128, OP="xchg", PLACES=128, SEM="acq_rel")
        np.testing.assert_array_equal((y, old), (x, 0 * x))
        emulated(k.atomic, target)[(1,)](x.astype(dtype), y, old, 128, B=128, OP="cas", PLACES=128, SEM="acq_rel")
        np.testing.assert_array_equal((y, old), (x, x))


@on_the_new
def test_an_exchange_on_memory_never_written(target: str) -> None:
    """Its new value is defined, and only the first to exchange gets undefined bits; where they go is what counts."""
    head = f"""
.version 9.0
.target {target}
.address_size 64
.visible .entry exchanges(.param .u64 x, .param .u64 y, .param .u64 old) .reqntid 64
{{
.reg .pred %p<2>; .reg .b32 %r<5>; .reg .b64 %rd<6>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u64 %rd3, [old];
mov.u32 %r1, %tid.x; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd5, %rd1, %rd4; ld.global.b32 %r2, [%rd5];
"""
    each = "add.u64 %rd5, %rd2, %rd4; atom.global.exch.b32 {}, [%rd5], %r2;"
    one = "and.b64 %rd4, %rd4, 4; add.u64 %rd5, %rd2, %rd4; atom.global.exch.b32 {}, [%rd5], %r2;"
    keep = "shl.b32 %r4, %r1, 2; cvt.u64.u32 %rd4, %r4; add.u64 %rd5, %rd3, %rd4; st.global.b32 [%rd5], %r3;"

    def launched(body: str) -> np.ndarray:
        x, y, old = np.arange(7, 71, dtype=np.int32), np.zeros(64, np.int32), np.zeros(64, np.int32)
        run_ptx(head + body + "ret;\n}", 1, 64, x, y, old, unwritten=(1,))
        return y

    assert launched(each.format("_")).tolist() == [*range(7, 71)], "nothing reads the old values"
    assert launched(each.format("%r3")).tolist() == [*range(7, 71)]
    assert launched(each.format("_") + each.format("%r3") + keep).tolist() == [*range(7, 71)], (
        "the second reads the first"
    )
    with pytest.raises(UndefinedBits, match="undefined bits reach"):
        launched(each.format("%r3") + keep)
    with pytest.raises(UndefinedBits, match="undefined bits reach"):
        launched(one.format("%r3") + keep)  # two threads of 64
    with pytest.raises(UndefinedBits, match="an atomic on"):
        launched(each.format("%r3").replace("exch.b32", "add.u32"))
    with pytest.raises(PtxError, match=r"never|not written|unwritten"):
        launched("setp.lt.u32 %p1, %r1, 63; @%p1 bra go; ret; go: " + each.format("_"))


@on_the_new
def test_loops_that_depend_on_data(target: str) -> None:
    x, y = np.arange(1, 17, dtype=np.int32), np.zeros(16, np.int32)
    emulated(k.collatz, target)[(1,)](x, y, 16, B=16, num_warps=1)
    assert y.tolist() == [0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 14, 9, 9, 17, 17, 4]


@on_the_new
def test_functions_that_are_called(target: str) -> None:
    x, y = np.arange(6, dtype=np.int32), np.zeros((6, 64), np.int32)
    emulated(k.calls, target)[(6,)](x, y, B=64)
    row = np.arange(6)
    first = np.where(row % 2 == 0, 4 * x * row + 4 * x, 4 * x)
    np.testing.assert_array_equal(y, first[:, None] + np.arange(64))


def philox(seed: int, offset: np.ndarray) -> np.ndarray:
    """Philox 4x32-10, first word (Salmon et al., 2011)."""
    c = [offset.astype(np.uint64), *(np.zeros(len(offset), np.uint64) for _ in range(3))]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0].astype(np.uint32)


@pytest.mark.sample(2)
@on_either("seed", [(42,), (2**40 + 7,)])
def test_random_numbers(target: str, seed: int) -> None:
    y = np.zeros(512, np.uint32)
    emulated(k.random_numbers, target)[(2,)](seed, y.view(np.int32), B=256)
    expected = philox(seed, np.arange(512))
    np.testing.assert_array_equal(y, expected)
    u = np.zeros(512, np.float32)
    emulated(k.uniform_numbers, target)[(2,)](seed, u, B=256)
    assert ((u >= 0) & (u < 1)).all()
    assert 0.4 < u.mean() < 0.6


@pytest.mark.parametrize("extra", [None, np.array([1000], np.int32)])
@on_the_new
def test_grids_of_three_axes_and_arguments_that_are_none(target: str, extra: np.ndarray | None) -> None:
    y = np.zeros((4, 3, 5), np.int32)
    emulated(k.cube, target)[lambda meta: (meta["X"], meta["Y"], 4)](y, 5, 3, extra, scale=2, num_warps=1)
    i, j, m = np.arange(5), np.arange(3)[:, None], np.arange(4)[:, None, None]
    np.testing.assert_array_equal(y, (i + 10 * j + 100 * m) * 2 + 4 + (0 if extra is None else 1000))


@pytest.mark.parametrize("grid", [0, (0,), (4, 0), (1, 2, 0)])
@on_the_new
def test_an_empty_grid_does_nothing(target: str, grid: object) -> None:
    y = np.zeros(4, np.int32)
    report = emulated(k.cube, target)[grid](y, 5, 3, None, scale=2)  # type: ignore[index]
    assert report.thread_instructions == 0
    assert not y.any()


@on_the_new
def test_scalars(target: str) -> None:
    y = np.zeros(3, np.int64)
    emulated(k.scalars, target)[(1,)](y, 2**40, 1, 2.5, True)
    assert y.tolist() == [2**40 + 1, 10, 5]
    emulated(k.scalars, target)[(1,)](y, np.int64(-(2**40)), 16, np.float32(1.5), False)
    assert y.tolist() == [16 - 2**40, 6, 6]
    emulated(k.scalars, target)[(1,)](y, 2**63 + 5, 0, 0.25, np.True_)
    assert y.tolist() == [5 - 2**63, 1, 5]


@on_the_new
def test_branches_and_returns(target: str) -> None:
    x, y = np.arange(640, dtype=np.int32).reshape(10, 64), np.full((10, 64), -1, np.int32)
    emulated(k.branchy, target)[(10,)](x, y, 640, B=64, num_warps=2)
    rows = np.arange(10)[:, None]
    np.testing.assert_array_equal(y, np.where(rows % 3 == 0, -1, np.where(rows % 2 == 0, x + 1, x * 2)))


@on_the_new
def test_memory_between_threads(target: str) -> None:
    x, y, scratch = np.arange(128, dtype=np.int32), np.zeros(128, np.int32), np.zeros(128, np.int32)
    emulated(k.moved_through_memory, target)[(1,)](x, y, scratch, B=128)
    np.testing.assert_array_equal(y, x ^ 64)


@on_both
def test_small_products(target: str) -> None:
    x, y = np.arange(1024, dtype=np.float16).reshape(32, 32) % 7, np.zeros((32, 32), np.float32)
    emulated(k.product, target)[(1,)](x, y, B=32)
    np.testing.assert_array_equal(y, x.astype(np.float32) @ x.astype(np.float32))


@on_both
def test_tensor_descriptors(target: str) -> None:
    """The kernel has ordinary loads and stores for targets before descriptors, bulk copies for later ones."""
    x, y = np.arange(1024, dtype=np.float32).reshape(32, 32), np.zeros((32, 32), np.float32)
    emulated(k.described, target)[(1,)](x, y, 32, 32, B=32)
    np.testing.assert_array_equal(x, y)


@on_the_new
def test_kernels_in_decorators(target: str) -> None:
    x, y = np.arange(300, dtype=np.int32), np.zeros(300, np.int32)
    emulated(k.by_rule, target)[lambda meta: (-(-300 // meta["B"]),)](x, y, 300)
    np.testing.assert_array_equal(y, x + 1)
    with pytest.raises(LaunchError, match="B: given both in the launch and by the autotuner"):
        emulated(k.tuned, target)[(5,)](x, y, 300, B=64)
    emulated(k.tuned.fn, target)[(5,)](x, y, 300, B=64, num_stages=2)
    np.testing.assert_array_equal(y, x + 1)


@on_the_new
def test_an_autotuned_kernel_takes_its_first_configuration_that_fits(target: str) -> None:
    x = np.arange(300, dtype=np.int32)
    for kernel, block in ((k.tuned, 64), (k.tuned_after_one_too_large, 128), (k.tuned_below_a_rule, 64)):
        y, sizes = np.zeros(300, np.int32), []
        emulated(kernel, target)[lambda meta, sizes=sizes: sizes.append(meta["B"]) or (-(-300 // meta["B"]),)](
            x, y, 300
        )
        np.testing.assert_array_equal(y, x + 1)
        assert sizes[-1] == block
    with pytest.raises(LaunchError, match=r"no configuration of the autotuner runs: .*too large here"):
        emulated(k.tuned_to_none, target)[(1,)](x, np.zeros(300, np.int32), 300)


@on_the_new
def test_functions_and_tuples_as_arguments(target: str) -> None:
    x, y = np.arange(256, dtype=np.int32), np.zeros(256, np.int32)
    emulated(k.applied, target)[(1,)](x, y, 256, k.greatest, B=256)
    np.testing.assert_array_equal(y, np.maximum(x, 3))
    a, b, total = np.ones(50, np.float32), np.arange(50, dtype=np.float32), np.zeros(50, np.float32)
    emulated(k.tupled, target)[(1,)]((a, b, b), (50, 0.5), total, B=64)
    np.testing.assert_array_equal(total, (a + 2 * b) / 2)


@on_the_new
def test_views_keep_their_gaps(target: str) -> None:
    base = np.arange(601, dtype=np.int32)
    y = np.full(700, -1, np.int32)
    emulated(k.elementwise, target)[(3,)](base[1:], y[3:603], 600, B=256, OP="negate")
    np.testing.assert_array_equal(y[3:603], -base[1:])
    assert (y[:3] == -1).all()
    assert (y[603:] == -1).all()


@on_the_new
def test_options_of_the_compiler(target: str) -> None:
    x, y = np.arange(256, dtype=np.int32), np.zeros(256, np.int32)
    emulated(k.elementwise, target)[(1,)](x, y, 256, B=256, OP="negate", num_stages=4, num_warps=8, num_ctas=1)
    np.testing.assert_array_equal(y, -x)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@on_both
def test_atomics_on_neighbours(target: str, dtype: str) -> None:
    """From sm_90 on Triton updates neighbours by one instruction; each element has an old value of its own."""
    x = np.arange(512).astype(dtype)
    y, old = np.full(512, 2, dtype), np.zeros(512, dtype)
    emulated(k.atomic, target)[(1,)](x, y, old, 512, B=512, OP="add", PLACES=512, SEM="relaxed", num_warps=2)
    np.testing.assert_array_equal(y, x + np.dtype(dtype).type(2))
    np.testing.assert_array_equal(old, np.full(512, 2, dtype))
