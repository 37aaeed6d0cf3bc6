"""Compare the references, written from the specifications, with the emulator, which an H200 has confirmed.

Every reference that an instruction implements has a row with that instruction. Inputs are all pairs of edges, a sample
of triples, and random ones. Where the two differ, the ISA's text or hardware decides, and the row states it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ptxdiff import emulate, references
from ptxdiff.inputs.generated import Stratified
from ptxdiff.references.formats import Format, pack, unpack
from tests.support.references import meeting_conversions, meeting_floats, meeting_integers
from tests.support.references.meeting import LETTERS, Row
from tests.support.references.plain_definitions import edges as float_edges
from tests.support.sampling import spread

ROWS: list[Row] = [*meeting_floats.ROWS, *meeting_conversions.ROWS, *meeting_integers.ROWS]
TRIPLES = 4096


@cache
def edges(fmt: Format) -> Tensor:
    """Codes of one element at which something changes; all codes up to 8 bits."""
    if fmt.code_bits <= 8:
        return torch.arange(1 << fmt.code_bits)
    if fmt.is_float:
        found = float_edges(fmt)
    else:
        width = fmt.code_bits
        powers = {1 << k for k in range(0, width, 8)} | {1 << (width - 1)}
        near = {p + d for p in powers for d in (-1, 0, 1)} | {0, 2, 3, 5, 31, 32, 33, 63, 64, 65, 0x5555, 0x7654}
        found = sorted({(s * n) & fmt.code_mask for n in near for s in (1, -1)})
    return torch.from_numpy(np.array([c & fmt.code_mask for c in found], dtype=np.uint64).view(np.int64))


def combined(formats: tuple[Format, ...]) -> list[Tensor]:
    """Edges of every operand with those of every other; `TRIPLES` combinations of three operands and more. Whole
    units."""
    sets = [edges(f) for f in formats]
    total = int(np.prod([len(s) for s in sets]))
    most = 1 << 16 if len(formats) < 3 else TRIPLES
    number = (
        torch.arange(total) if total <= most else torch.from_numpy(np.random.default_rng(1).integers(0, total, most))
    )
    most_packed = max(f.codes_per_unit for f in formats)
    number = torch.cat([number, number[: -len(number) % most_packed]])
    columns = []
    for codes in sets:
        chosen = codes[number % len(codes)]
        number = torch.div(number, len(codes), rounding_mode="trunc")
        columns.append(chosen)
    return columns


@lru_cache(maxsize=16)  # rows with the same formats are consecutive, and making inputs takes longer than a row
def random(formats: tuple[Format, ...], start: int, count: int) -> list[Tensor]:
    """Codes of random units, with many near edges. The cache shares them, so callers must not write to them."""
    generator = Stratified({f"x{k}": f for k, f in enumerate(formats)}, 11)
    index = torch.arange(start, start + count)
    return [unpack(f, generator.units(f"x{k}", index)) for k, f in enumerate(formats)]


def units(fmt: Format, codes: Tensor) -> np.ndarray:
    """Codes as integers of the register's width."""
    stored = pack(fmt, codes).numpy()
    return stored.view(f"uint{fmt.unit_bits}").astype(f"uint{max(fmt.unit_bits, 16)}")


def emulated(row: Row, columns: list[Tensor]) -> list[Tensor]:
    """The instruction's results, as codes of each output."""
    given = [units(f, c) for f, c in zip(row.inputs, columns, strict=True)]
    outputs = [LETTERS[f.unit_bits] for f in row.outputs]
    inputs = [LETTERS[max(f.unit_bits, 16)] for f in row.inputs]
    constraints = ",".join([f"={o}" for o in outputs] + inputs)
    dtypes = [f"uint{32 if o == 'r' else 16 if o == 'h' else 64}" for o in outputs]
    results = emulate(row.text, constraints, given, dtypes, target=row.target, approximate="rounded")
    return [unpack(f, torch.from_numpy(r.astype(np.int64))) for f, r in zip(row.outputs, results, strict=True)]


def held(row: Row, columns: list[Tensor]) -> None:
    """Fail with the first input for which the two definitions differ."""
    expected = row.reference(*columns)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for fmt, right, got in zip(row.outputs, expected, emulated(row, columns), strict=True):
        agreed = row.agree(fmt.single, right, got)
        wrong = torch.nonzero(~agreed if row.on is None else ~agreed & row.on(*columns)).flatten()
        if len(wrong):
            at = int(wrong[0])
            per = len(got) // (len(columns[0]) // row.inputs[0].codes_per_unit)
            shown = ", ".join(
                " ".join(hex(int(c) & f.code_mask) for c in column.reshape(-1, f.codes_per_unit)[at // per])
                for f, column in zip(row.inputs, columns, strict=True)
            )
            raise AssertionError(
                f"{row.form}: {len(wrong)} of {len(got)} differ; first of ({shown}), element {at % per}: reference "
                f"{int(right[at]) & fmt.code_mask:#x}, emulator {int(got[at]) & fmt.code_mask:#x}"
            )


def named(rows: list[Row]) -> list[Any]:
    """Rows as parameters. Rows with the same name have different operands or texts."""
    return [pytest.param(row, id=f"{row.form} {k}") for k, row in enumerate(rows)]


def of_a_kind(row: Row) -> set[tuple[str, ...]]:
    """The kinds of a row, of which the quick sample has each at least once: each word of each instruction, and each
    reference with each format."""
    opcode, *words = row.form.split(".")
    formats = {f.name for f in row.inputs + row.outputs}
    return {(opcode, w) for w in words} | {(name, f) for name in row.stands_for for f in formats} | {(row.target,)}


def test_the_quick_sample_has_every_reference_and_every_format() -> None:
    quick = [p.values[0] for p in SAMPLE if not p.marks]
    assert set().union(*(row.stands_for for row in quick)) == set().union(*(row.stands_for for row in ROWS))
    assert {f.name for r in quick for f in r.inputs + r.outputs} == {f.name for r in ROWS for f in r.inputs + r.outputs}
    assert len(quick) < len(ROWS) / 2, "a sample"


# Rows with many kinds come first, as fewer rows then have all kinds.
SAMPLE = spread(sorted(ROWS, key=lambda row: -len(of_a_kind(row))), 64, of_a_kind, lambda row: row.form)


@pytest.mark.sample(8)
@pytest.mark.parametrize("row", SAMPLE)
def test_edges_and_a_few_random_inputs(row: Row) -> None:
    few = random(row.inputs, 0, 1 << 12)
    held(row, [torch.cat(both) for both in zip(combined(row.inputs), few, strict=True)])


@pytest.mark.slow  # 2^24 inputs take seconds for each row, and 90 minutes of one core in all
@pytest.mark.parametrize("row", named(sorted(ROWS, key=lambda row: [f.name for f in row.inputs])))
def test_random_inputs(row: Row) -> None:
    torch.set_num_threads(1)  # pytest-xdist's workers share the cores already
    for start in range(0, 1 << 24, 1 << 20):
        held(row, random(row.inputs, start, 1 << 20))


FORMAT = "says what a code of a format means; no instruction"
STEP = "a step of the references that are listed"
SEVERAL = (
    "what several instructions compute; the cases that use it hold them to it, its own tests to a second definition"
)
NO_INSTRUCTION = {
    "codes": FORMAT,
    "rounding.shift_right": STEP, "rounding.unsigned_less": STEP, "rounding.bit_length": STEP,
    "rounding.round_exact": STEP, "rounding.attach_sign": STEP, "rounding.decompose": STEP,
    "rounding.round_float64": STEP, "rounding.nan_code": STEP, "rounding.odd": STEP, "rounding.odd_sum": STEP,
    "rounding.flush_subnormals": STEP, "rounding.operand": STEP, "rounding.exact_result": STEP,
    "correct_rounding.round_function": STEP, "correct_rounding.settle": STEP,
    "integers.wrap": STEP, "integers.number": STEP, "integers.less": STEP, "integers.clamp": STEP,
    "integers.high_product": STEP,
    "block_scaling": SEVERAL, "dequantise": SEVERAL, "faithful": SEVERAL, "hashes": SEVERAL, "sums": SEVERAL,
    "words": SEVERAL, "comparison.compare_all": SEVERAL,
    "tensor_core": "products of a warp, held to the emulator in tests/emulator/kernel/warp/test_mma.py",
    "sparse_tensor_core": "sparse products, held to the emulator in tests/emulator/kernel/warp/test_sparse_mma.py",
    "scaled_tensor_core": "products with block scales, see tests/emulator/kernel/warp/test_scaled_mma.py",
    "scaled_matrices": "the same of whole matrices, see tests/emulator/numeric/test_scaled_arithmetic.py",
    "sparse_metadata": "positions, held to the emulator's in tests/references/test_sparse_metadata.py",
    "tensor_memory_pairs": "what pairs of blocks hold, see tests/emulator/kernel/tcgen05/test_pairs.py",
    "tensor_memory_reductions": "reductions of loads, see tests/emulator/kernel/tcgen05/test_loads_with_reductions.py",
    "tensor_memory_rows": "where rows of .ws lie, see tests/emulator/kernel/tcgen05/test_copies_of_a.py",
    "tensor_memory_sparse": "sparse products, see tests/emulator/kernel/tcgen05/test_sparse_products.py",
    "reciprocal.times_reciprocal_range": "what approximations may give, not what one gives",
    "reciprocal.times_reciprocal_domain": "where a bound holds",
    "description.size_of": "a size of a grid, no value",
    "rounding.observing": "watches roundings, and has no value", "rounding.unobserved": "keeps roundings unwatched",
}  # fmt: skip
"""Public functions, or whole modules, that no instruction implements, each with the reason."""


def public_functions() -> set[str]:
    """ "module.function" of everything in `references` that does not begin with an underscore."""
    found = set()
    for module in pkgutil.iter_modules(references.__path__):
        home = importlib.import_module(f"ptxdiff.references.{module.name}")
        functions = inspect.getmembers(home, inspect.isfunction)
        found |= {f"{module.name}.{n}" for n, f in functions if f.__module__ == home.__name__ and n[0] != "_"}
    return found


def test_every_public_reference_has_a_row() -> None:
    """A new reference needs a row, or a reason why no instruction implements it."""
    held_to_the_emulator = set().union(*(row.stands_for for row in ROWS))
    excused = {f for f in public_functions() if f in NO_INSTRUCTION or f.split(".")[0] in NO_INSTRUCTION}
    assert public_functions() - held_to_the_emulator - excused == set()
    assert held_to_the_emulator & excused == set()
    assert held_to_the_emulator <= public_functions()
    modules = {f.split(".")[0] for f in public_functions()}
    assert [n for n in NO_INSTRUCTION if n not in public_functions() | modules] == []


MUTANTS: dict[str, tuple[str, Any]] = {
    "arithmetic._select": ("max.f32", lambda right: lambda a, b, *rest: right(b, a, rest[0], -rest[1], *rest[2:])),
    "rounding._tiny_below": ("mul.rn.ftz.f16", lambda right: lambda *given: 2 * right(*given)),
    "bits.brev": ("cvt.rs.satfinite.e4m3x4", lambda right: lambda codes, **_: codes),
}


@pytest.mark.parametrize("function", MUTANTS)
def test_a_wrong_reference_is_detected(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of a changed reference fails."""
    form, change = MUTANTS[function]
    module, name = function.split(".")
    home = importlib.import_module(f"ptxdiff.references.{module}")
    monkeypatch.setattr(home, name, change(getattr(home, name)))
    row = next(r for r in ROWS if r.form.startswith(form))
    inputs = random(row.inputs, 0, 1 << 16)
    with pytest.raises(AssertionError, match="differ; first of"):
        held(row, inputs)
