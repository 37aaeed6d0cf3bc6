"""The kernels of a sweep, run as PTX on the emulator, give the plain oracle's results."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from ptxdiff.emulator import Buffer, emulate, load_kernel, run_kernel  # noqa: E402
from ptxdiff.inputs.generated import Counted, CountedTuples, Stratified  # noqa: E402
from ptxdiff.judging import differences  # noqa: E402
from ptxdiff.judging.differences import Difference  # noqa: E402
from ptxdiff.model.case import Case  # noqa: E402
from ptxdiff.model.match import absolute, approximate, exact, magnitude, ulp  # noqa: E402
from ptxdiff.model.policies import policies  # noqa: E402
from ptxdiff.model.variants import Meets, asm  # noqa: E402
from ptxdiff.references import (  # noqa: E402
    arithmetic,
    comparison,
    conversion,
    dequantise,
    exponential,
    faithful,
    reciprocal,
)
from ptxdiff.references.formats import BF16, E2M1X2, E4M3, E4M3X2, F16, F16X2, F32, U8, U16, pack  # noqa: E402
from ptxdiff.sweep import fusion, kernels  # noqa: E402
from ptxdiff.sweep.fusion import Body, NotFused  # noqa: E402
from ptxdiff.sweep.oracle import DROPPED, NEAR, PLACES, Oracle, by_bin, numbers  # noqa: E402
from ptxdiff.sweep.result import ROW  # noqa: E402
from ptxdiff.triton.elementwise import InlineAsm  # noqa: E402
from tests.support.sampling import only  # noqa: E402

E4M3_IN_BYTES = (
    "{ .reg .b16 l, h; cvt.rn.satfinite.e4m3x2.f32 l, $2, $1; cvt.rn.satfinite.e4m3x2.f32 h, $4, $3; "
    "mov.b32 $0, {l, h}; }"
)

WIDE = 32
"""Warps of a block on the emulator. The text does not depend on it, and 1024 threads need a quarter of the steps of
256."""


def on_the_emulator(kernel, *arrays, warps=WIDE):
    """Launch a kernel for one row. arrays: `first`, then the arrays that it writes, then those that it reads."""
    arrays = [*arrays, *(t.numpy() for t in kernel.tables)]
    kinds = [f"*i{a.itemsize * 8}" for a in arrays]
    signature = dict(zip(kernel.function.arg_names, [*kinds, "constexpr", "constexpr"], strict=True))
    attributes = {(k,): [["tt.divisibility", 16]] for k in range(len(arrays))}
    source = ASTSource(kernel.function, signature, {"ROW": ROW, "BLOCK": kernel.block}, attributes)
    options = {"num_warps": warps, "enable_fp_fusion": False}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    loaded = load_kernel(made.asm["ptx"])
    buffers = [Buffer(a.view(np.uint8).reshape(-1), name) for a, name in zip(arrays, signature, strict=False)]
    scratch = [0] * (len(loaded.parameters) - len(buffers))  # Triton's own, unused
    run_kernel(
        loaded, [*buffers, *scratch], (1,), num_threads=32 * warps, shared_bytes=made.metadata.shared, races=False
    )


def oracle_of(reference, inputs, output, match, generator=Counted, own=None, **options):
    options |= {"reference": own} if own else {}
    case = Case(
        inputs=inputs, outputs={"y": output}, reference=reference,
        variants={"v": asm("x", constraints=",".join(["=r", *["r"] * len(inputs)]), pack=1, match=match, **options)},
    )  # fmt: skip
    made = generator(inputs) if generator is Counted else generator(inputs, 5)
    return Oracle(case, policies(case, case.variants["v"]), made)


def wrong_now_and_then(fmt, codes):
    """Results with errors: some ulp off, the sign of a zero or of a number changed, flushed, or another NaN."""
    kind = torch.randint(0, 60, codes.shape, generator=torch.Generator().manual_seed(3))
    sign = (1 << fmt.sign_shift) if fmt.has_sign else 0
    nan = fmt.canonical_nan or 0
    faults = [codes + 1, codes - 1, codes + 2, codes - 3, codes ^ sign, codes & sign, codes * 0 + nan, codes ^ 1]
    for k, fault in enumerate(faults):
        codes = torch.where(kind == k, fault, codes)
    return codes & fmt.code_mask


def widening(x):
    return conversion.convert(x, source=F16, target=F32)


def to_e4m3(x):
    return conversion.convert(x, source=F32, target=E4M3, satfinite=True)


def product(a, b):
    return arithmetic.mul(a, b, fmt=F16)


def fused(a, b, c):
    return arithmetic.fma(a, b, c, fmt=F16)


def total(a, b):
    return (a + b) & 0xFFFF


def pair_to_e2m1(a, b):
    return torch.stack([conversion.to_e2m1(a), conversion.to_e2m1(b)], -1).reshape(-1)


def through_codes(a, b):
    """A product of codes that were stacked and then split again."""
    return product(*torch.stack([a, b], -1).unbind(-1))


def lowest_and_third(x):
    """Two outputs; the first is made of fields of a word."""
    return dequantise.interleaved(dequantise.integers(x, bits=4, width=16, zero=8), groups=2)[0]


def compared(a, b):
    return comparison.compare_all(a, b, operators=("lt", "geu", "num"), fmt=F16)


def of_exponential(x):
    """Another function than the case's, for a variant that must agree with the case's only on a domain."""
    return exponential.ex2(x) ^ 1


NEAR_TWO = magnitude("x", 1, 1.999)  # ends within a row of inputs
FTZ = {"ftz": "required"}
RECIPROCAL = approximate(reciprocal.correctly_rounded, F32, ulp(1, underflow=True), then=to_e4m3, ftz="required")
ORACLES = {
    "rcp.rn": (oracle_of(reciprocal.correctly_rounded, {"x": F32}, F32, exact()), [0, 0x7F0000, 0x7F7F0000]),
    "rcp.approx.ftz": (oracle_of(reciprocal.correctly_rounded, {"x": F32}, F32, ulp(1), **FTZ), [0x7E0000, 0x7F7F0000]),
    "allowed": (oracle_of(reciprocal.correctly_rounded, {"x": F32}, F32, ulp(2, underflow=True), ftz="allowed"), [0]),
    "allowed, near": (oracle_of(reciprocal.correctly_rounded, {"x": F32}, F32, ulp(2), ftz="allowed"), [0x7F000000]),
    "through": (
        oracle_of(lambda x: to_e4m3(reciprocal.flushed(x)), {"x": F32}, E4M3, exact(through=RECIPROCAL)), [0x3D800000]),
    # 0x39c50000 and 0xb8f50000 hold hard cases.
    "ex2": (oracle_of(exponential.ex2, {"x": F32}, F32, ulp(2)), [0x39C50000, 0xB8F50000, 0x42FF0000, 0xC3150000]),
    "domain": (oracle_of(exponential.ex2, {"x": F32}, F32, ulp(1, on=magnitude("x", 1, 2), outside=absolute(2**-20))),
               [0x3F7F0000]),
    "unchecked": (oracle_of(exponential.ex2, {"x": F32}, F32, ulp(1, on=NEAR_TWO)), [0x3FFF0000]),
    "unchecked, canonical": (
        oracle_of(exponential.ex2, {"x": F32}, F32, ulp(1, on=NEAR_TWO), nan="canonical"), [0x7FFF0000]),
    "meets": (
        oracle_of(exponential.ex2, {"x": F32}, F32, exact(), own=of_exponential, meets=Meets(NEAR_TWO, ulp(1))),
        [0x3FFF0000]),
    "exp": (oracle_of(faithful.exp, {"x": F32}, F32, ulp(2)), [0x42B00000, 0xBF7F0000]),
    "log": (oracle_of(faithful.log, {"x": F32}, F32, absolute(2**-22, on=NEAR_TWO, outside=ulp(2))), [0x3FFF0000]),
    "erf": (oracle_of(faithful.erf, {"x": F32}, F32, ulp(2)), [0x3F7F0000]),
    "gelu": (oracle_of(faithful.gelu, {"x": F32}, F32, absolute(2**-20)), [0xBF7F0000]),
    "softplus": (oracle_of(faithful.softplus, {"x": F32}, F32, ulp(2)), [0xBF7F0000, 0x7F7F0000]),
    "atan2": (oracle_of(faithful.atan2, {"a": F32, "b": F32}, F32, ulp(2), Stratified), [1 << 16]),
    "taken apart": (oracle_of(through_codes, {"a": F16, "b": F16}, F16, exact()), [0x3C010000]),
    "fields": (oracle_of(lowest_and_third, {"x": U16}, F16X2, exact()), [0]),
    "comparisons": (oracle_of(compared, {"a": F16, "b": F16}, U8, exact()), [0x3C010000, 0x7E000000]),
    "e4m3": (oracle_of(to_e4m3, {"x": F32}, E4M3, exact(zero_sign="any")), [0x3C800000, 0x43DF0000, 0xFF800000]),
    "mul": (oracle_of(product, {"a": F16, "b": F16}, F16, exact()), [0x03FF0000, 0x3C010000, 0xFC000000]),
    "payload": (oracle_of(product, {"a": F16, "b": F16}, F16, exact(), nan="payload"), [0x7C010000]),
    "fma": (oracle_of(fused, {"a": F16, "b": F16, "c": F16}, F16, exact()), [0x3C01BC01_0000, 0x04001400_0000]),
    "integers": (oracle_of(total, {"a": U16, "b": U16}, U16, exact()), [0x12340000]),
    "random": (oracle_of(reciprocal.correctly_rounded, {"x": F32}, F32, exact(), Stratified), [0, 1 << 40]),
    "random pairs": (oracle_of(reciprocal.quotient, {"a": F32, "b": F32}, F32, ulp(2), Stratified), [1 << 16]),
    "packed": (oracle_of(pair_to_e2m1, {"a": F32, "b": F32}, E2M1X2, exact(), Stratified), [1 << 20]),
    "packed, meets": (
        oracle_of(
            pair_to_e2m1, {"a": F32, "b": F32}, E2M1X2, exact(), Stratified, own=lambda a, b: pair_to_e2m1(a, b) ^ 1,
            meets=Meets(magnitude("a", 0.01, 100), exact())), [1 << 20]),
    "bf16": (oracle_of(lambda x: conversion.convert(x, source=F32, target=BF16), {"x": F32}, BF16, exact()), [0]),
}  # fmt: skip


AS_ON_A_DEVICE = ("e4m3", "payload")
"""Cases tallied with as many warps as sweeps use."""


SLOW = ("gelu", "softplus", "random", "packed")
"""Other rows have functions, generators and outputs like theirs."""


@pytest.mark.sample(8)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["two", "every"])
@pytest.mark.parametrize("name", only(ORACLES, ORACLES.keys() - SLOW))
def test_tallies_are_the_plain_oracles(name, every):
    """Quick: at two starts at most, with results of which most are right. Slow: also with right results alone."""
    oracle, starts = ORACLES[name]
    warps = kernels.WARPS if name in AS_ON_A_DEVICE else WIDE
    kernel = kernels.tally_kernel(oracle, kernels.number_bits(oracle))
    (fmt,) = oracle.outputs.values()
    for start in starts if every else starts[:2]:
        first = torch.tensor(start)
        right = oracle.answers(oracle.comparisons[0], oracle.codes(numbers(first, torch.empty(ROW))))[0]["y"]
        wrong = wrong_now_and_then(fmt, right)
        for codes in (right, wrong) if every else (wrong,):
            units = pack(fmt, codes).view(getattr(torch, f"int{fmt.unit_bits}"))
            expected = dict(zip(oracle.names, oracle.tally(first, units)[:, 0].tolist(), strict=True))
            table = np.zeros(len(expected), np.int64)
            on_the_emulator(kernel, np.array([start]), table, units.numpy(), warps=warps)
            found = dict(zip(oracle.names, table.tolist(), strict=True))
            if fmt.is_float and (found["y:low"] < NEAR[0] or found["y:high"] > NEAR[-1]):
                counts = {n for n in found if n.startswith("y:") and n not in ("y:low", "y:high", "y:unchecked")}
                found, expected = ({n: c for n, c in d.items() if n not in counts} for d in (found, expected))
            assert found == expected, hex(start)
        assert expected["flagged"] > 0


HALVES = {"a": F16, "b": F16}
IN_REGISTERS = {
    "rcp.rn": (InlineAsm("rcp.rn.f32 $0, $1;", "=f,f"), {"x": F32}, F32, 0x3F800000),
    "rcp.approx.ftz": (InlineAsm("rcp.approx.ftz.f32 $0, $1;", "=f,f"), {"x": F32}, F32, 0x3F800000),
    "mul": (InlineAsm("mul.rn.f16x2 $0, $1, $2;", "=r,r,r", 2), HALVES, F16, 0x3C010000),
    "mul, flushed": (InlineAsm("mul.rn.ftz.f16x2 $0, $1, $2;", "=r,r,r", 2), HALVES, F16, 0x3C010000),
    "e4m3": (InlineAsm(E4M3_IN_BYTES, "=&r,f,f,f,f", 4), {"x": F32}, E4M3, 0x43DF0000),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", IN_REGISTERS)
def test_tallies_in_registers_are_those_of_the_asms_results(name):
    """The inputs and results of the kernel exist in registers only, and its asm has 2 or 4 elements of one thread."""
    inline, inputs, output, start = IN_REGISTERS[name]
    oracle = ORACLES[name.partition(",")[0]][0]
    number = np.arange(start, start + ROW)
    units = [oracle.generator.units(n, number).astype(f"u{f.unit_bits // 8}") for n, f in inputs.items()]
    args = [u.view(f"f{u.itemsize}") if "f" in inline.constraints[1:] else u for u in units]
    results = emulate(inline.text, inline.constraints, args, f"uint{output.unit_bits}", pack=inline.pack)
    expected = oracle.tally(torch.tensor(start), torch.from_numpy(results.view(f"i{results.itemsize}")))[:, 0].tolist()
    table = np.zeros(len(oracle.names), np.int64)
    kernel = kernels.tally_in_registers(oracle, kernels.number_bits(oracle), inline)
    on_the_emulator(kernel, np.array([start]), table)
    found, wanted = (dict(zip(oracle.names, t, strict=True)) for t in (table.tolist(), expected))
    assert found == wanted
    assert (found["flagged"] > 1000) == (name == "mul, flushed")


def test_a_row_has_no_more_steps_than_a_count_of_distances_holds():
    """A count of distances has six bits: with 64 steps of a row, all at the same distance, it would overflow."""
    oracle, _ = ORACLES["rcp.rn"]
    with pytest.raises(ValueError, match="64 steps for a row; at most 63"):
        kernels.tally_in_registers(oracle, 32, InlineAsm("rcp.rn.f32 $0, $1;", "=f,f"), block=1024)


@pytest.mark.parametrize(
    ("match", "options", "expected"),
    [
        (ulp(2), {}, True),
        (exact(), {"ftz": "required"}, True),
        (ulp(1, on=NEAR_TWO, outside=ulp(2)), {}, True),
        (ulp(3), {}, False),
        (ulp(1, on=NEAR_TWO, outside=ulp(9)), {}, False),
        (ulp(1, on=NEAR_TWO), {}, False),
        (ulp(2, underflow=True), {}, False),
        (absolute(2**-30), {}, False),
        (ulp(2), {"ftz": "allowed"}, False),
    ],
)
def test_extremes_come_from_the_counts_only_where_no_distance_is_larger(match, options, expected):
    """With two accepted answers, a result near the second may lie far from the first, from which distances count."""
    oracle = oracle_of(reciprocal.correctly_rounded, {"x": F32}, F32, match, **options)
    assert oracle.always_near("y") is expected


def test_inputs_are_made_ahead_beside_the_tally():
    """Of two inputs only the one that changes is made ahead. The tally is the same as without."""
    oracle, _ = ORACLES["mul"]
    start, chunk = torch.tensor(0x3C010000), 1 << 20
    right = oracle.answers(oracle.comparisons[0], oracle.codes(numbers(start, torch.empty(ROW))))[0]["y"]
    outputs, a, table = right.to(torch.int16).numpy(), np.zeros(ROW, np.int16), np.zeros(len(oracle.names), np.int64)
    kernel = kernels.tally_kernel(oracle, 32, ("a",), chunk)
    on_the_emulator(kernel, start.reshape(1).numpy(), table, outputs, a)
    assert set(a.tolist()) == {0x3C11}
    assert table.tolist() == oracle.tally(start, torch.from_numpy(outputs))[:, 0].tolist()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "match", [absolute(2**-8), ulp(1, on=NEAR_TWO), ulp(1 << 20)], ids=["absolute", "unchecked", "ulp"]
)
def test_histograms_are_the_plain_judges(match):
    oracle, start = oracle_of(exponential.ex2, {"x": F32}, F32, match), 0x3FFF0000
    right = oracle.answers(oracle.comparisons[0], oracle.codes(numbers(torch.tensor(start), torch.empty(ROW))))[0]["y"]
    units = far_now_and_then(right).to(torch.int32)
    table = np.zeros(PLACES, np.int32)
    kernel = kernels.histogram_kernel(oracle, kernels.number_bits(oracle))
    on_the_emulator(kernel, np.array([start - ROW]), table, units.expand(2, -1).numpy().copy(), np.array([1]))
    flagged = oracle.mask(torch.tensor(start), units).numpy()
    results = units.numpy().view(np.uint32).astype(np.int64)
    expected = differences.step_histogram(F32, right.numpy()[~flagged], results[~flagged])
    found = by_bin(table.tolist())
    assert found == expected
    assert len(found) > 3
    assert sum(found.values()) + table[DROPPED] == ROW


def far_now_and_then(codes):
    """Results with errors: some binades off, of the other sign, infinite, or NaN."""
    kind = torch.randint(0, 40, codes.shape, generator=torch.Generator().manual_seed(4))
    for k, fault in enumerate((codes + 1, codes - 1, codes + 100, codes - 70000, codes ^ (1 << 31), 0x7F800000)):
        codes = torch.where(kind == k, fault, codes)
    return codes & 0xFFFFFFFF


def test_the_mask_shows_what_the_tally_counts():
    oracle, _ = ORACLES["e4m3"]
    start = torch.tensor(0x43DF0000)
    right = oracle.answers(oracle.comparisons[0], oracle.codes(numbers(start, torch.empty(ROW))))[0]["y"]
    units = wrong_now_and_then(E4M3, right).to(torch.int8)
    mask = np.zeros(ROW, np.int8)
    on_the_emulator(kernels.mask_kernel(oracle, 32), start.reshape(1).numpy(), mask, units.numpy())
    np.testing.assert_array_equal(mask != 0, oracle.mask(start, units).numpy())


def test_the_mask_follows_a_change_of_the_definition(monkeypatch):
    """A sign that no longer counts as a difference: the kernel is made from the plain judge's rules."""
    oracle, _ = ORACLES["mul"]
    start = torch.tensor(0x3C010000)
    right = oracle.answers(oracle.comparisons[0], oracle.codes(numbers(start, torch.empty(ROW))))[0]["y"]
    codes = wrong_now_and_then(F16, right)
    was = differences.classify_differences(F16, exact(), "any", right.numpy(), codes.numpy()) != 0
    planted = [(Difference.SAME if d == Difference.SIGN else d, rule) for d, rule in differences.RULES]
    monkeypatch.setattr(differences, "RULES", planted)
    wrong = differences.classify_differences(F16, exact(), "any", right.numpy(), codes.numpy()) != 0
    mask = np.zeros(ROW, np.int8)
    on_the_emulator(kernels.mask_kernel(oracle, 32), start.reshape(1).numpy(), mask, codes.to(torch.int16).numpy())
    np.testing.assert_array_equal(mask != 0, wrong)
    assert (was & ~wrong).sum() > 500


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "generator",
    [
        Counted({"a": F16, "b": U8, "c": F32}),
        Stratified({"a": F16, "c": F32}, 9),
        CountedTuples({"a": U8, "b": U8}, 2),
        CountedTuples({"a": U8}, 4),
    ],
)
def test_inputs_are_the_generators(generator):
    case = Case(
        inputs=generator.formats, outputs={"y": F16}, reference=lambda *codes: codes[0],
        variants={"v": asm("x", constraints=",".join(["=r", *["r"] * len(generator.formats)]), pack=1)},
    )  # fmt: skip
    oracle = Oracle(case, policies(case, case.variants["v"]), generator)
    for start in (0, 0x123456780000):
        for name, fmt in generator.formats.items():
            units = np.zeros(ROW, f"int{fmt.unit_bits}")
            on_the_emulator(kernels.fill_kernel(oracle, name, kernels.number_bits(oracle)), np.array([start]), units)
            made = generator.units(name, np.arange(start, start + ROW))
            np.testing.assert_array_equal(units.astype(np.int64) & fmt.code_mask, made & fmt.code_mask)


def test_operations_without_kernel_text_are_refused():
    packed = oracle_of(lambda x: x, {"x": E4M3X2}, E4M3X2, ulp(1))
    with pytest.raises(NotFused, match="packed"):
        kernels.tally_kernel(packed, 16)
    for rounded in (
        lambda x: torch.div(x - 5, 3, rounding_mode="trunc"),  # of what may be negative
        lambda x: torch.div(x.to(torch.float64), 3, rounding_mode="trunc").to(torch.int64),
        lambda x: torch.nan_to_num(x.to(torch.float64), nan=1.0).to(torch.int64),
    ):
        with pytest.raises(NotFused):
            kernels.tally_kernel(oracle_of(rounded, {"x": F32}, F32, exact()), 32)
    strange = oracle_of(lambda x: torch.cumsum(x, 0), {"x": F32}, F32, exact())
    with pytest.raises(NotFused, match="cumsum"):
        kernels.tally_kernel(strange, 32)


OPERATIONS = {
    "wraps": lambda n: (n * 0x7FFF_FFFF_FFFF + n).to(torch.int32),
    "signed and unsigned": lambda n: torch.where(n - 5 < (n & 0xFFFF_FFFF), n >> 3, -n),
    "shifts": lambda n: ((n & 0xFFFF_FFFF) << 31 >> 33) + (n >> 40) + (1 << (n & 31)),
    "clamps": lambda n: n.clamp(-5, 1 << 33) + (n & 0x8000_0000) - (~n & 3) + (n & 0xFF).abs(),
    "absolute": lambda n: ((n & 0xFFFF_FFFF) - 0x8000_0000).abs() >> 1,
    "decided": lambda n: torch.where((n & 7) > 9, n, n & 15) + ((n & 7) < 9).to(torch.int64),
    "divides": lambda n: (n & 0xFFFF_FFFF) // 7,
    "divides toward zero": lambda n: torch.div(n & 0xFFFF_FFFF, 7, rounding_mode="trunc"),
    "divides by a tensor": lambda n: torch.div(n & 0xFFFF_FFFF, torch.full_like(n, 7), rounding_mode="floor"),
    "variable": lambda n: (n & 0xFFFF_FFFF) >> (n & 63),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", OPERATIONS)
def test_narrowed_integers_are_the_int64_ones(name):
    """For numbers around 0, 2^31, 2^32 and 2^47, in a kernel that stores an int64."""
    function = OPERATIONS[name]
    body = Body(kernels.traced(lambda n: [function(n)], []), [None], 62)
    kernel = kernels._pointwise(body, [], 64)
    for start in (0, 1 << 31, (1 << 32) - ROW, 1 << 47):
        out = np.zeros(ROW, np.int64)
        on_the_emulator(kernel, np.array([start]), out)
        np.testing.assert_array_equal(out, function(torch.arange(start, start + ROW)).to(torch.int64).numpy())


def test_a_wrong_narrowing_is_detected(monkeypatch):
    monkeypatch.setattr(fusion, "register", lambda bounds: "int32")
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        test_narrowed_integers_are_the_int64_ones("signed and unsigned")
