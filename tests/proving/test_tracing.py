"""The terms of a case's rules give, on numbers, what the rules give on tensors."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from ptxdiff import asm
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.naming import named
from ptxdiff.model.policies import policies
from ptxdiff.model.variants import AsmVariant
from ptxdiff.proving import doubles, graphs, tracing
from ptxdiff.proving import terms as t
from ptxdiff.references import arithmetic
from ptxdiff.references.codes import as_codes
from ptxdiff.references.formats import BF16, F16, F32, U64, Format, unpack
from ptxdiff.sweep.oracle import Oracle
from tests.support.sampling import mixed

pytest.importorskip("triton")

CASES = Path(__file__).parents[2] / "cases"
FILES = sorted(path.name for path in CASES.glob("*.py") if not path.name.startswith("_"))
QUICK = {"add_half.py", "clamp_f32.py", "cvt_e4m3.py", "divide_by_constant.py", "int4_to_f16.py", "saturating_add.py"}
COUNT = 4
ROWS = 40


@cache
def cases(name: str) -> list[tuple[str, Case, str]]:
    """The cases of a file with each of their variants in asm that has policies of its own."""
    found, seen = [], set()
    for one in named([str(CASES / name)]):
        case = one.loaded.case
        if not case.elementwise:
            continue
        for variant in one.variants:
            own = policies(case, case.variants[variant])
            key = (id(case), id(own.reference), str(own.match), str(own.ftz), own.nan)
            if isinstance(case.variants[variant], AsmVariant) and key not in seen:
                seen.add(key)
                found.append((one.loaded.name, case, variant))
    return found


def patterns(rng: random.Random, width: int) -> int:
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice([0, 1, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1])
    if kind == 1:
        low = rng.randrange(width)
        return rng.getrandbits(width) >> low << low
    return rng.getrandbits(width) >> (rng.randrange(width) if kind == 2 else 0)


def check(name: str, case: Case, variant: str) -> None:
    policy = policies(case, case.variants[variant])
    oracle = Oracle(case, policy, None)
    formats = [format_of(a) for a in (*case.inputs.values(), *case.outputs.values())]
    widths = [max(f.unit_bits, 8) for f in formats]
    graph = tracing.refusals(case, policy, COUNT)
    variables = [[t.variable(f"v{i}_{k}", w) for k in range(COUNT)] for i, w in enumerate(widths)]
    terms = graphs.evaluated(graph, variables)
    rng = random.Random(f"{name} {variant}")
    for _ in range(ROWS):
        numbers = [[patterns(rng, f.unit_bits) for _ in range(COUNT)] for f in formats]
        units = [
            torch.tensor([t.signed(v, w) for v in row], dtype=tracing.dtype_of(f))
            for row, w, f in zip(numbers, widths, formats, strict=True)
        ]
        codes = {n: unpack(f, as_codes(u)) for (n, f), u in zip(oracle.inputs.items(), units, strict=False)}
        if rng.random() < 0.7:  # mostly what the reference gives, sometimes one off
            answers = next(iter(oracle.answers(oracle.comparisons[0], codes)))
            for k, (n, f) in enumerate(oracle.outputs.items(), len(codes)):
                if f.codes_per_unit == 1:
                    off = torch.tensor([rng.choice([0, 0, 0, 1]) for _ in range(COUNT)])
                    row = [(int(v) ^ int(o)) % (1 << f.unit_bits) for v, o in zip(answers[n], off, strict=True)]
                    numbers[k] = row
                    units[k] = torch.tensor([t.signed(v, widths[k]) for v in row], dtype=tracing.dtype_of(f))
        got = oracle.codes_of_outputs(dict(zip(oracle.outputs, units[len(codes) :], strict=True)))
        expected = [int(v) for v in oracle.flags(codes, got).flagged]
        values = {f"v{i}_{k}": v for i, row in enumerate(numbers) for k, v in enumerate(row)}
        assert t.evaluate(terms, values) == expected, (name, variant, numbers)


def differing(fmt: Format, operation: str, rounding: str, ftz: bool | str) -> str:
    """The first operands on which the term of a reference's operation is not what it computes; "" if there are none."""
    from torch.fx.experimental.proxy_tensor import make_fx

    function, count = getattr(arithmetic, operation), {"sqrt": 1, "fma": 3}.get(operation, 2)

    def unlike(*codes: torch.Tensor) -> torch.Tensor:
        return function(*codes[:-1], fmt=fmt, rounding=rounding, ftz=ftz) != codes[-1]

    rng = random.Random(f"{fmt.name} {operation} {rounding} {ftz}")
    rows = [[floats(rng, fmt) for _ in range(count)] for _ in range(ROWS)]
    graph = tracing._recorded(make_fx, unlike, [torch.zeros(1, dtype=torch.int64) for _ in range(count + 1)])
    names = [f"v{k}" for k in range(count + 1)]
    (term,) = graphs.evaluated(graph, [[t.variable(n, 64)] for n in names])
    for row in rows:
        (expected,) = function(*(torch.tensor([v]) for v in row), fmt=fmt, rounding=rounding, ftz=ftz).tolist()
        if t.evaluate([term], dict(zip(names, (*row, expected), strict=True))) != [0]:
            return f"{fmt.name} {operation} {rounding} ftz={ftz} of {', '.join(map(hex, row))}: not {expected:#x}"
    return ""


def floats(rng: random.Random, fmt: Format) -> int:
    """A code with one of the exponents at which results are tiny, exact, huge or not finite."""
    bias, mantissa = (1 << (fmt.exponent_bits - 1)) - 1, fmt.mantissa_bits
    exponent = rng.choice(
        [0, 0, 1, 2, bias // 2, bias // 2 + 1, bias - 1, bias, bias, bias + 1, 2 * bias, 2 * bias + 1]
    )
    fraction = rng.choice([0, 0, 1, (1 << mantissa) - 1, rng.getrandbits(mantissa)])
    return rng.getrandbits(1) << (mantissa + fmt.exponent_bits) | exponent << mantissa | fraction


OPERATIONS = ("add", "sub", "mul", "fma", "div", "sqrt")
ROUNDINGS = ("rn", "rz", "rm", "rp")


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("fmt", "ftz", "operation", "rounding"),
    mixed((F32, F16, BF16), (False, True, "results"), OPERATIONS, ROUNDINGS, of=3),
    ids=lambda value: value.name if isinstance(value, Format) else None,
)
def test_terms_of_references_operations_give_what_they_compute(
    fmt: Format, ftz: bool | str, operation: str, rounding: str
) -> None:
    """In every rounding mode, also where no instruction rounds or flushes so."""
    assert differing(fmt, operation, rounding, ftz) == ""


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in FILES]
)  # tracing a case's rules takes about a second
def test_terms_of_rules_give_what_the_rules_give(name: str) -> None:
    for case in cases(name):
        check(*case)


INTEGRAL = ("floor", "ceil", "trunc", "round")
DOUBLES = (0.0, 0.3, 0.5, 0.7, 1.0, 1.5, 2.5, 2.4999999999999996, 4503599627370495.5, 9007199254740993.0, 1e300, 5e-324,
           float("inf"))  # fmt: skip


@pytest.mark.parametrize("name", INTEGRAL)
def test_integral_values_of_doubles_are_those_of_torch(name: str) -> None:
    function = getattr(torch, name)

    def reference(a: Any) -> Any:
        return function(a.view(torch.float64)).view(torch.int64)

    case = Case(
        inputs={"a": U64}, outputs={"y": U64}, reference=reference, variants={"it": asm("mov.b64 $0, $1;", "=l,l")}
    )
    x = t.variable("x", 64)
    (term,) = graphs.evaluated(tracing.answers(case, reference, False), [[x]])
    for value in (*DOUBLES, *(-v for v in DOUBLES)):
        number = doubles.pattern(value)
        expected = doubles.pattern(float(function(torch.tensor(value, dtype=torch.float64))))
        assert t.evaluate([term], {"x": number}) == [expected], value
