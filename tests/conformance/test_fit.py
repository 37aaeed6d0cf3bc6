"""Fitting a special function unit: known coefficients are recovered, and a unit of another design is detected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxdiff.cli import main
from ptxdiff.conformance import fit
from ptxdiff.conformance.fit import DESIGNS, Misfit
from ptxdiff.emulator.numeric import hopper
from tests.support.conformance.pretended import Pretended

SEGMENTS = [0, 1, 37]
SQUARE = fit.truncated_squares(fit.STEP_BITS, fit.SQUARE_CUT)

# An invented generation's unit: from segment to constant, slope and curve of 2**x, near the true ones.
KNOWN = {
    0: (33554438, 45420, 495),
    1: (33919776, 45930, 500),
    37: (50090112, 67800, 737),
}


def unit(segment, arguments, square=SQUARE, rounding=5000):
    """What such a unit returns in [1, 2) for ex2: a number between 2 and 4, cut to 24 bits."""
    constant, slope, curve = KNOWN[segment]
    steps = arguments.astype(np.int64) & ((1 << fit.STEP_BITS) - 1)
    total = (constant << 14) + rounding + slope * steps + (curve << 1) * square[steps]
    return np.ldexp((total >> 16).astype(np.float64), -22).astype(np.float32).view(np.uint32)


def test_known_coefficients_are_recovered():
    table = fit.fit(DESIGNS["ex2"], unit, KNOWN)
    found = dict(zip(KNOWN, zip(table.constant, table.slope, table.curve, strict=True), strict=True))
    assert found == KNOWN
    assert table.rounding == 5000
    assert table.results == 3 << fit.STEP_BITS
    assert not table.same_as("ex2")


def test_one_wrong_result_is_a_misfit():
    def wrong(segment, arguments):
        results = unit(segment, arguments)
        results[54321] += 1 if segment == 37 else 0
        return results

    with pytest.raises(Misfit, match="segment 37"):
        fit.fit(DESIGNS["ex2"], wrong, KNOWN)


def test_another_square_is_a_misfit():
    """A unit whose square lacks one column fewer."""
    other = fit.truncated_squares(fit.STEP_BITS, fit.SQUARE_CUT - 1) >> 1
    with pytest.raises(Misfit, match="no quadratic"):
        fit.fit(DESIGNS["ex2"], lambda s, a: unit(s, a, other), [0])


@pytest.mark.parametrize("cut", [17, 18, 20, 21])
def test_a_unit_of_another_width_is_reported_with_its_width(cut):
    """A unit that cuts its square at another column, and adds all columns that remain."""
    columns = fit.truncated_squares(fit.STEP_BITS, cut)

    def other(segment, arguments):
        constant, slope, curve = KNOWN[segment]
        steps = arguments.astype(np.int64) & ((1 << fit.STEP_BITS) - 1)
        straight = (constant << 14) + 5000 + slope * steps
        total = (straight << fit.SQUARE_CUT) + ((curve << 1) * columns[steps] << cut)
        return np.ldexp((total >> 16 + fit.SQUARE_CUT).astype(np.float64), -22).astype(np.float32).view(np.uint32)

    with pytest.raises(Misfit, match=rf"segment 37: no quadratic .* with the square cut at .*2\*\*{cut}\b.* one does"):
        fit.fit(DESIGNS["ex2"], other, [37])


def test_a_unit_with_half_as_many_segments_is_reported():
    """Segments of 18-bit steps: pairs of segments share coefficients."""
    whole = fit.truncated_squares(fit.STEP_BITS + 1, fit.SQUARE_CUT + 2)

    def other(segment, arguments):
        constant, slope, curve = KNOWN[37]
        steps = (arguments.astype(np.int64) & ((2 << fit.STEP_BITS) - 1)) + (7 << 20)
        total = (constant << 14) + slope * steps + (curve << 3) * whole[steps & ((2 << fit.STEP_BITS) - 1)]
        return np.ldexp((total >> 16).astype(np.float64), -22).astype(np.float32).view(np.uint32)

    with pytest.raises(Misfit, match=r"segment 37: no quadratic .* widths, segments or form differ"):
        fit.fit(DESIGNS["ex2"], other, [37])


class Other(Pretended):
    """A GPU of an unmeasured generation: its `ex2` has the same design with other coefficients, or another design."""

    differs = False

    def compiled(self, snippets, checks):
        return {}

    def run(self, snippet, columns):
        (arguments,) = columns
        steps = arguments.astype(np.int64) & ((1 << fit.STEP_BITS) - 1)
        segment = int(arguments[0] >> 17 & 63)
        constant = (33554438 + 500000 * segment << 14) + 777
        total = constant + (45000 + 300 * segment) * steps + ((490 + segment) << 1) * SQUARE[steps]
        if self.differs and segment == 5:
            total += steps * steps * steps >> 30
        return [np.ldexp((total >> 16).astype(np.float64), -22).astype(np.float32).view(np.uint32)]


def test_the_command_prints_another_generations_table(monkeypatch, capsys):
    monkeypatch.setattr("ptxdiff.conformance.fetch.Hardware", Other)
    assert main(["conformance", "--fit", "ex2"]) == 0
    output = capsys.readouterr().out
    scope: dict[str, object] = {}
    exec(output, scope)
    assert scope["EX2_CONSTANT"] == tuple(33554438 + 500000 * s for s in range(64))
    assert scope["EX2_SLOPE"] == tuple(45000 + 300 * s for s in range(64))
    assert scope["EX2_CURVE"] == tuple(490 + s for s in range(64))
    assert "64 segments give 8,388,608 results" in output
    assert "Differs from the table in harness/emulator/numeric/hopper.py" in output


def test_the_command_says_where_a_design_differs(monkeypatch, capsys):
    monkeypatch.setattr("ptxdiff.conformance.fetch.Hardware", Other)
    monkeypatch.setattr(Other, "differs", True)
    assert main(["conformance", "--fit", "ex2"]) == 1
    output = capsys.readouterr().out
    assert "ex2 of this GPU has another design: ex2.approx.ftz.f32, segment 5: no quadratic" in output
    assert main(["conformance", "--fit", "cosh"]) == 2
    assert "'cosh' is no function that can be fitted; give one of rcp, rsqrt" in capsys.readouterr().err


def test_segments_that_round_differently_are_a_misfit():
    with pytest.raises(Misfit, match="no common rest"):
        fit.fit(DESIGNS["ex2"], lambda s, a: unit(s, a, SQUARE, 5000 + 3000 * s), [0, 1])


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", DESIGNS)
def test_the_emulators_own_tables_are_recovered(name):
    """From the emulator's results, which hardware confirmed, for some segments of every function."""
    segments = [0, DESIGNS[name].segments - 1]
    table = fit.on_device(name, Pretended(), segments)
    known = [getattr(hopper, f"{name.upper()}_{word}") for word in ("CONSTANT", "SLOPE", "CURVE")]
    assert [table.constant, table.slope, table.curve] == [tuple(k[s] for s in segments) for k in known]


def test_a_table_is_written_as_the_module_has_it():
    table = replace(fit.fit(DESIGNS["ex2"], unit, [0]), constant=tuple(range(100)))
    scope: dict[str, object] = {}
    exec(table.text("ex2"), scope)
    assert scope["EX2_CONSTANT"] == tuple(range(100))
    assert (scope["EX2_SLOPE"], scope["EX2_CURVE"]) == ((45420,), (495,))


def test_a_refusal_of_the_assembler_is_reported():
    with pytest.raises(Misfit, match="no such thing"):
        fit.on_device("tanh", Pretended(refused=("tanh.approx.f32",)), [0])
