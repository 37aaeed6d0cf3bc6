"""A sweep on a device gives the plain judge's results. Here the device is the CPU, and the kernel a function in
torch."""

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ptxdiff.inputs.generated import Counted, Stratified  # noqa: E402
from ptxdiff.jobs import Job, Setup  # noqa: E402
from ptxdiff.judging.judge import judge  # noqa: E402
from ptxdiff.model.case import Case  # noqa: E402
from ptxdiff.model.match import Domain, absolute, exact, magnitude, ulp  # noqa: E402
from ptxdiff.model.policies import policies  # noqa: E402
from ptxdiff.model.variants import (  # noqa: E402
    Meets,
    asm,
    either,
    ptx,
)
from ptxdiff.references import arithmetic, conversion  # noqa: E402
from ptxdiff.references.formats import E2M1, E2M3X2, E4M3, F16  # noqa: E402
from ptxdiff.sweep import OracleFault, device  # noqa: E402
from ptxdiff.sweep.device import DeviceSweep  # noqa: E402
from ptxdiff.triton.launch import TensorLayout as Argument  # noqa: E402

FORMATS = {"a": E2M1, "b": F16}
COUNT, CHUNK, PACK = 1 << 17, 1 << 16, 2


@functools.cache
def products():
    """The products of all pairs: the tests ask for each thousands of times."""
    a, b = torch.arange(16).repeat_interleave(1 << 16), torch.arange(1 << 16).repeat(16)
    return arithmetic.mul(conversion.convert(a, source=E2M1, target=F16), b, fmt=F16)


def product(a, b):
    return products()[(a & 15) << 16 | b]


def case_of(match, **options):
    return Case(
        inputs=FORMATS,
        outputs={"c": F16},
        reference=product,
        variants={"v": asm("x", constraints="=r,r,r", pack=PACK, match=match, **options)},
    )


GENERATOR = Counted({"a": E4M3, "b": F16})  # 24 bits, of which the sweep takes the first 2^17


def kernel(fault):
    """A kernel that computes the product, except for a fault: a function of the inputs and the right answer."""

    def launch(pointers):
        a = pointers["a"].view(torch.uint8).to(torch.int64)
        b = pointers["b"].view(torch.int16).to(torch.int64) & 0xFFFF
        pointers["c"].view(torch.int16).copy_(fault(a, b, product(a, b)).to(torch.int16))

    return launch


VIEWS = {E2M1: torch.uint8, E4M3: torch.uint8, F16: torch.float16, E2M3X2: torch.int16}


def sweep(case, launch, compiled=False, generator=GENERATOR, pack=PACK, count=COUNT, in_registers=None):
    variant = case.variants["v"]
    job = Job(case, "case", Path("."), "v", variant, "sm_90a", Setup(shape=(CHUNK,), pack=pack))
    tensors = {**case.inputs, **case.outputs}
    arguments = tuple(Argument(n, f, (CHUNK,)) for n, f in tensors.items())
    views = {n: VIEWS[f] for n, f in tensors.items()}
    return DeviceSweep(
        job, policies(case, variant), generator, count, launch, arguments, views, device="cpu", compiled=compiled,
        in_registers=in_registers,
    ).run()  # fmt: skip


def plainly(case, launch, generator=GENERATOR):
    number = np.arange(COUNT)
    inputs = {n: generator.units(n, number).astype(f.numpy_dtype()) for n, f in FORMATS.items()}
    outputs = {"c": np.zeros(COUNT, np.uint16)}
    pointers = {n: torch.from_numpy(u.view(f"i{u.itemsize}")) for n, u in (inputs | outputs).items()}
    launch(pointers)
    return judge(case, policies(case, case.variants["v"]), inputs, outputs, PACK)


FAULTS = {
    "none": lambda a, b, c: c,
    "one input": lambda a, b, c: torch.where((a == 1) & (b == 0x3C01), c ^ 1, c),
    "two ulp below one": lambda a, b, c: torch.where((a == 1) & (b < 0x3C00) & (b > 8), c + 2, c),
    "two ulp at one input above one": lambda a, b, c: torch.where((a == 1) & (b == 0x3C01), c + 2, c),
    "another NaN at one input": lambda a, b, c: torch.where((a == 1) & (b == 0x7E01), c ^ 1, c),
    "sign of one zero": lambda a, b, c: torch.where((a == 1) & (b == 0x8000), c ^ 0x8000, c),
    "ever farther": lambda a, b, c: torch.where((b & 0x7FFF) < 0x4000, c + (b & 0x1FF), c ^ 0x8000),
    "sign of zero": lambda a, b, c: torch.where(a == 0, c ^ 0x8000, c),
}


ABOVE_ONE = magnitude("b", 1, 2)
NOT_FOR_KERNELS = Domain("b <= 2", lambda values: np.less_equal(np.cbrt(values["b"]), 2 ** (1 / 3)))
MATCHES = {
    "exact": (exact(), {}),
    "ulp": (ulp(1), {}),
    "payload": (exact(), {"nan": "payload"}),
    "far": (ulp(300), {}),
    "absolute": (absolute(2**-4), {}),
    "domain": (ulp(1, on=ABOVE_ONE), {}),
    "domain, payload": (ulp(1, on=ABOVE_ONE), {"nan": "payload"}),
    "domain, else": (ulp(1, on=ABOVE_ONE, outside=ulp(30)), {}),
    "domain on the host": (ulp(1, on=NOT_FOR_KERNELS), {}),
    "meets": (exact(), {"reference": lambda a, b: product(a, b), "meets": Meets(ABOVE_ONE, ulp(1))}),
    "meets another": (ulp(600), {"reference": lambda a, b: product(a, b) + 1, "meets": Meets(ABOVE_ONE, ulp(1))}),
    "several": ((ulp(1, on=ABOVE_ONE)), {"reference": either(product, lambda a, b: product(a, b) ^ 4)}),
}


USUAL = ("none", "one input", "two ulp below one", "sign of zero")
SINGLE = ("two ulp at one input above one", "another NaN at one input", "sign of one zero")
PAIRS = [
    *((name, fault) for name in ("exact", "ulp", "domain") for fault in USUAL),
    *(("domain, payload", fault) for fault in SINGLE),
    *((name, "ever farther") for name in MATCHES if name not in ("exact", "absolute", "payload")),
    ("payload", "another NaN at one input"), ("meets another", "none"), ("several", "sign of one zero"),
    ("absolute", "two ulp below one"), ("domain, else", "sign of one zero"),
]  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize(("name", "fault"), PAIRS)
def test_the_judgement_is_the_plain_judges(name, fault):
    match, options = MATCHES[name]
    case = case_of(match, **options)
    found = sweep(case, kernel(FAULTS[fault]))
    expected = plainly(case, kernel(FAULTS[fault]))
    assert found.faults == []
    if name in ("domain on the host", "several"):  # here a sweep, too, counts only differing inputs in the domain
        assert found.judgement.unchecked <= expected.unchecked
        assert name == "several" or found.judgement.unchecked > 0
        found.judgement.unchecked = expected.unchecked
    for fact in ("total", "different", "unchecked", "classes", "ulps", "ranges", "offenders"):
        assert getattr(found.judgement, fact) == getattr(expected, fact), fact
    assert np.array_equal(found.judgement.failing, expected.failing)
    assert found.judgement.passed == expected.passed
    sample, whole = found.judgement.judged["c"], expected.judged["c"]
    assert abs(sample.ordinary_judged / sample.ordinary - whole.ordinary_judged / whole.ordinary) < 0.01
    assert (found.failing is None) == expected.passed


def test_digests_show_the_block_of_one_changed_bit():
    clean, changed = (sweep(case_of(exact()), kernel(FAULTS[f])).sums for f in ("none", "one input"))
    number = (1 << 16) + 0x3C01
    assert [k for k, pair in enumerate(zip(clean, changed, strict=True)) if pair[0] != pair[1]] == [number >> 16]


def test_bytes_never_written_inputs_overwritten_and_stores_outside_are_faults():
    def half(pointers):
        kernel(FAULTS["none"])({n: p[: CHUNK // 2] for n, p in pointers.items()})

    def greedy(pointers):
        kernel(FAULTS["none"])(pointers)
        pointers["a"][3] = 77
        c = pointers["c"].view(torch.int16)
        torch.as_strided(c, (CHUNK + 1,), (1,))[CHUNK] = 1

    assert "65536 of 131072 bytes of c were never written, first byte 65536" in sweep(case_of(exact()), half).faults
    found = sweep(case_of(exact()), greedy).faults
    assert any(f.startswith("a is an input and was overwritten") for f in found)
    assert "bytes outside c were overwritten" in found


def test_a_fused_judge_that_passes_wrong_results_is_detected(monkeypatch):
    """The oracle is miscompiled and flags nothing. The plain judge's check of a sample detects it."""

    def blind(oracle):
        tools = original(oracle)

        def tally(*arguments):
            table = tools.tally(*arguments)
            table[0] = 0
            return table

        return replace(tools, tally=tally)

    original = device.plain_tools
    monkeypatch.setattr(device, "plain_tools", blind)
    with pytest.raises(OracleFault, match="the plain one calls it"):
        sweep(case_of(exact()), kernel(lambda a, b, c: torch.where(a == 1, c ^ 1, c)))


def test_inputs_made_ahead_by_the_tally_are_the_next_chunks(monkeypatch):
    """As on a GPU. If they are made wrongly, the results do not belong to the inputs' numbers."""

    def both(oracle, shift):
        tools, calls = original(oracle), []

        def ahead(names):
            def tally(first, outputs, *inputs):
                for name, units in zip(names, inputs, strict=True):
                    tools.fill[name](first + CHUNK + shift, units)
                return tools.tally(first, outputs)

            calls.append(names)
            return tally

        return replace(tools, tally_ahead=ahead), calls

    original = device.plain_tools
    for shift, different in ((0, 0), (CHUNK, 1)):
        calls = []
        monkeypatch.setattr(device, "plain_tools", lambda o, s=shift, a=calls: (t := both(o, s), a.append(t[1]))[0][0])
        found = sweep(case_of(exact()), kernel(FAULTS["none"]))
        assert bool(found.judgement.different or found.faults) == bool(different)
        assert calls[0] == [("a",), ("a",)]


MANY = 16 * CHUNK  # of which chunks 0, 7, 8 and 15 run as the kernel under test
INSIDE, OWN_CHUNK = 3 * CHUNK + 5, 7 * CHUNK + 5


def rows_by(launch):
    """Makes tallies of rows by a kernel that makes its inputs itself."""

    def of_oracle(oracle):
        def tallies(first, rows):
            tables = []
            for row in range(rows):
                number = first + row * CHUNK
                units = {n: GENERATOR.units(n, number + torch.arange(CHUNK)).to(torch.int64) for n in FORMATS}
                outputs = torch.zeros(CHUNK, dtype=torch.int16)
                launch({"a": units["a"].to(torch.uint8), "b": units["b"].to(torch.int16), "c": outputs})
                tables.append(oracle.tally(number, outputs))
            return torch.cat(tables, 1)

        return tallies

    return of_oracle


def wrong_at(number):
    a, b = (int(GENERATOR.units(n, torch.tensor(number))) for n in FORMATS)
    return kernel(lambda x, y, c: torch.where((x == a) & (y == b), c ^ 1, c))


def test_of_a_sweep_in_registers_few_chunks_run_as_the_kernel_under_test():
    case, launched = case_of(exact()), []
    right = kernel(FAULTS["none"])

    def launch(pointers):
        launched.append(None)
        right(pointers)

    plain = sweep(case, right, count=MANY)
    found = sweep(case, launch, count=MANY, in_registers=rows_by(right))
    assert np.array_equal(found.sums, plain.sums)
    assert found.judgement.passed
    assert found.judgement.total == plain.judgement.total
    assert any("4 of 16 chunks ran as the variant's kernel too" in note for note in found.notes)
    assert len(launched) == 2 + 4  # two for the bytes that are never written


def test_what_is_judged_is_sampled_outside_those_chunks_too():
    """The domain holds in chunk 3 alone, which does not run as the kernel under test."""
    right = kernel(FAULTS["none"])
    case = case_of(exact(on=Domain("a is 1.5", lambda values: values["a"] == 1.5)))
    found = sweep(case, right, count=MANY, in_registers=rows_by(right)).judgement.judged["c"]
    plain = sweep(case, right, count=MANY).judgement.judged["c"]
    assert plain.judged > 1000
    assert abs(found.judged - plain.judged) * 10 < plain.judged


def test_a_mistake_outside_those_chunks_is_found_in_registers():
    case = case_of(exact())
    found = sweep(case, wrong_at(INSIDE), count=MANY, in_registers=rows_by(wrong_at(INSIDE)))
    assert (found.judgement.different, found.failing) == (1, INSIDE)


def test_where_the_two_kernels_differ_all_inputs_run_as_the_kernel_under_test():
    """Each is wrong at one input. Only the mistakes of the kernel under test count, and they are found."""
    case, right = case_of(exact()), kernel(FAULTS["none"])
    found = sweep(case, wrong_at(OWN_CHUNK), count=MANY, in_registers=rows_by(right))
    assert (found.judgement.different, found.failing) == (1, OWN_CHUNK)
    assert any("gives other results" in note for note in found.notes)
    found = sweep(case, right, count=MANY, in_registers=rows_by(wrong_at(OWN_CHUNK)))
    assert found.judgement.passed
    assert found.faults == []


def test_a_result_that_is_wrong_in_registers_alone_is_a_fault_and_no_pass():
    case, right = case_of(exact()), kernel(FAULTS["none"])
    found = sweep(case, right, count=MANY, in_registers=rows_by(wrong_at(INSIDE)))
    assert any("run again" in fault for fault in found.faults)


def test_a_kernel_with_other_results_the_second_time_is_a_fault():
    runs = []

    def launch(pointers):
        runs.append(None)
        kernel(lambda a, b, c: torch.where((a == 1) & (b < len(runs)), c ^ 1, c))(pointers)

    assert any("run again" in f for f in sweep(case_of(exact()), launch).faults)


def test_random_inputs_are_judged_alike():
    generator = Stratified(FORMATS | {"a": E4M3}, seed=5)
    found = sweep(case_of(exact()), kernel(FAULTS["sign of zero"]), generator=generator)
    expected = plainly(case_of(exact()), kernel(FAULTS["sign of zero"]), generator)
    assert expected.different > 100
    for name in ("total", "different", "classes", "ulps", "offenders"):
        assert getattr(found.judgement, name) == getattr(expected, name), name


def test_bits_above_codes_are_judged_in_every_chunk():
    case = Case(
        inputs={"a": E4M3, "b": F16},
        outputs={"c": E2M3X2},
        reference=lambda a, b: torch.stack([b & 0x3F, b >> 8 & 0x3F], -1).reshape(-1),
        variants={"v": asm("x", constraints="=r,r,r", pack=PACK)},
    )

    def launched(mask):
        def launch(pointers):
            pointers["c"].view(torch.int16).copy_(pointers["b"].view(torch.int16) & mask(pointers["a"]))

        return launch

    assert not sweep(case, launched(lambda a: 0x3F3F)).faults
    later = launched(lambda a: torch.where(a == 1, 0x7F3F, 0x3F3F).to(torch.int16))
    assert sweep(case, later).faults == ["c: bits above its codes, which must be zero, are set"]


def test_results_of_the_chunk_before_are_no_results_of_this_one():
    """The kernel leaves out the inputs with a > 0. All of b is in each chunk, so c holds the right bits already."""
    variant = ptx("\n", grid="ceil(n/256)", block=256, parameters=["a", "b", "c"])
    inputs = {"a": E4M3, "b": F16}
    case = Case(inputs=inputs, outputs={"c": F16}, reference=lambda a, b: b, variants={"v": variant})

    def swept(most):
        def launch(pointers):
            b, c = (pointers[n].view(torch.int16) for n in "bc")
            c.copy_(torch.where(pointers["a"] <= most, b, c))

        return sweep(case, launch, pack=1)

    assert swept(1).judgement.passed
    assert swept(0).judgement.different > COUNT // 2 - 3
