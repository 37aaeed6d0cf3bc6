"""Products that no available hardware has agree with a definition independent of the emulator's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.support.conformance import product_opinions as o
from tests.support.conformance import product_tiles
from tests.support.conformance import tensor_products as t
from tests.support.conformance.opinions import added
from tests.support.sampling import only

known = cache(o.known)
"""The digests of all definitions take seconds, which the worker that runs this file spends once."""

FEW = 2 * len(product_tiles.KINDS)
DENSE = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e5m2.e4m3.f32 "
HALF = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f16.e5m2.e2m1.f16"
WIDENED = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e5m2.e4m3.f32"
SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e5m2.e3m2.f32"
SPARSE_WIDENED = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32"
SCALED = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e3m2.e5m2.f32.ue8m0"
GROUPED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
PAIRED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"


def against(form: str, count: int = FEW) -> list[str]:
    return o.verdict_on(known()[form], count).against


@pytest.mark.sample(2)
@pytest.mark.parametrize("start", only(range(21), [1, 4]))
def test_some_forms(start: int) -> None:
    """Every 21st form, on two tiles of each kind."""
    chosen = list(known().values())[start::21]
    found = added(o.verdicts(chosen, FEW))
    assert not [text for v in found.values() for text in v.against]
    assert all(v.agreed[o.PUBLISHED] == FEW * 128 * len(c.targets) for c, v in zip(chosen, found.values(), strict=True))


@pytest.mark.slow
def test_all_forms() -> None:
    """All forms, as `product_opinions.py --write` runs them; takes half a minute."""
    found = added(o.verdicts(known().values()))
    assert not [text for v in found.values() for text in v.against]
    assert len(found) == 179


def test_forms_that_targets_compute_in_different_ways_run_on_both() -> None:
    assert known()["mma.sync.aligned.m16n8k16.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32"].targets == ("sm_100a", "sm_120a")
    assert known()[WIDENED].targets == ("sm_100a",)
    assert known()[DENSE].targets == ("sm_120a",)


# the definition by hand -----------------------------------------------------------------------------------------------

ONE = {"e4m3": 0x38, "e5m2": 0x3C, "e3m2": 0x0C, "e2m1": 0x2}
F32_ONE, QUIET = 0x3F800000, 0x7FFFFFFF


def one(a: list[int], b: list[int], c: int, name: str = "e5m2", to: str = "f32") -> int:
    return int(t.block(np.array(a), np.array(b), np.array(c), (name, name), to)[()])


def test_terms_are_cut_at_25_fraction_bits() -> None:
    """Beside 1, 2^-25 is kept and 2^-26 is not. Both are below float32's last bit, and show when 1 is subtracted."""
    unit = ONE["e5m2"]
    # The products are 2^-12 * 2^-13 and 2^-13 * 2^-13; the least normal number of e5m2 is 2^-14.
    kept, lost = ([unit, unit | 0x80, 0x0C], [unit, unit, 0x08]), ([unit, unit | 0x80, 0x08], [unit, unit, 0x08])
    assert one(*kept, 0) == (127 - 25) << 23
    assert one(*lost, 0) == 0


def test_sums_are_rounded_toward_zero_and_have_no_minus_zero() -> None:
    assert one([ONE["e5m2"]], [0x08], F32_ONE - 1) == 0x3F8003FF
    assert one([0x80], [ONE["e5m2"]], 1 << 31) == 0
    assert one([0x7B], [0x7B], 0x7F7FFFFF) == 0x7F7FFFFF


def test_nan_and_infinities() -> None:
    assert one([0x7C], [0], 0) == QUIET
    assert one([0x7C], [ONE["e5m2"]], 0xFF800000) == QUIET
    assert one([0xFC], [ONE["e5m2"]], 0) == 0xFF800000
    assert one([0x7D], [ONE["e5m2"]], 0, to="f16") == 0x7FFF
    assert one([0x7B, 0x7B], [0x7B, 0x7B], 0, to="f16") == 0x7C00


def test_a_subnormal_has_the_least_normal_exponent() -> None:
    """The subnormal 2^-9 of e4m3 has the exponent of 2^-6, and as float16 that of 2^-9, so that lower bits are kept."""
    assert int(t.parts(np.array([1]), "e4m3")[1][0]) == -6
    assert int(t.parts(np.array([1]), "e4m3", as_f16=True)[1][0]) == -9
    assert int(t.parts(np.array([0x81]), "ue4m3")[1][0]) == -6
    assert int(t.parts(np.array([0]), "ue8m0")[1][0]) == -127


def test_sums_of_sixteen_are_not_cut() -> None:
    """6 * 6 and -6 * 6 in one group cancel, and leave terms of any size; the group has its scales' exponent."""
    a = np.array([7, 15, 1] + [0] * 13 + [0] * 48)
    b = np.array([7, 7, 1] + [0] * 13 + [0] * 48)
    scales = np.array([2.0**-40, 1.0, 1.0, 1.0]), np.array([-40, 0, 0, 0])
    found = t.grouped(a, b, np.array(0), scales)
    assert int(found[()]) == (127 - 42) << 23


# planted mistakes -----------------------------------------------------------------------------------------------------


def test_another_alignment_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    for fraction in (t.FRACTION - 1, t.FRACTION + 1):
        monkeypatch.setattr(t, "PLAIN", {to: t.Sum(fraction, how.zero) for to, how in t.PLAIN.items()})
        for form in (DENSE, WIDENED, SPARSE, SCALED):
            assert against(form), form
        assert against(HALF, 16 * FEW)
        monkeypatch.undo()
    for fraction in (t.GROUPED_FRACTION - 1, t.GROUPED_FRACTION + 1):
        monkeypatch.setattr(t, "GROUPS", replace(t.GROUPS, fraction=fraction))
        assert against(GROUPED)
        assert against(PAIRED)


@pytest.mark.parametrize("form", [DENSE, HALF, SPARSE, SCALED])
def test_blocks_of_half_the_terms_are_detected(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = t.block

    def halves(a: Any, b: Any, c: Any, *rest: Any, **named: Any) -> Any:
        middle = a.shape[-1] // 2
        return whole(
            a[..., middle:], b[..., middle:], whole(a[..., :middle], b[..., :middle], c, *rest, **named), *rest, **named
        )

    monkeypatch.setattr(t, "block", halves)
    assert against(form)


def changed(name: str, change: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Patches a function of the definition to `change` of it."""
    return lambda patch: patch.setattr(t, name, change(getattr(t, name)))


def nearest(rounded: Any) -> Any:
    return lambda x, to: np.where(np.isfinite(x), (x + 0.0).astype(np.float32).view(np.uint32), rounded(x, to))


def wrong_rounding(wrong: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Patches the rounding to `wrong` of the sums and their rounded results."""
    return changed("rounded", lambda right: lambda x, to: wrong(x, right(x, to)))


def with_parts(wrong: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Patches `parts` to `wrong`, which gets the right function and its arguments."""
    return changed("parts", lambda right: lambda codes, name, as_f16=False: wrong(right, codes, name))


def own_exponents(right: Any, codes: Any, name: str) -> Any:
    x = right(codes, name)[0]
    return x, np.frexp(np.where(np.isfinite(x), x, 1.0))[1] - 1


MISTAKES = {
    "rounded to nearest": (DENSE, changed("rounded", nearest)),
    "another NaN": (DENSE, wrong_rounding(lambda x, got: np.where(np.isnan(x), 0x7FC00000, got))),
    "another NaN of float16": (HALF, wrong_rounding(lambda x, got: np.where(np.isnan(x), 0x7E00, got))),
    "minus zero": (GROUPED, wrong_rounding(lambda x, got: np.where(x == 0, 1 << 31, got))),
    "subnormals flushed": (SCALED, wrong_rounding(lambda x, got: np.where(np.abs(x) < 2.0**-126, 0, got))),
    "clamped, not infinite": (SCALED, wrong_rounding(lambda x, got: np.where(got == 0x7F800000, 0x7F7FFFFF, got))),
    "exponents of subnormals their own": (DENSE, with_parts(own_exponents)),
    "float16's exponents": (DENSE, with_parts(lambda right, codes, name: right(codes, name, True))),
    "not widened": (SPARSE_WIDENED, changed("widened", lambda _: t.block)),
    "upper halves first": (
        WIDENED,
        changed("widened", lambda right: lambda a, b, *rest: right(a[..., ::-1], b[..., ::-1], *rest)),
    ),
    "the sign of ue4m3": (GROUPED, with_parts(lambda right, codes, name: right(codes, name.replace("ue4m3", "e4m3")))),
    "scales without exponents": (
        SCALED,
        changed("block", lambda right: lambda *given, scales: right(*given, scales=(scales[0], 0))),
    ),
    "groups of eight": (GROUPED, changed("GROUP", lambda _: 8)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_another_arithmetic_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, plant = MISTAKES[name]
    plant(monkeypatch)
    assert against(form, 4 * FEW)


def exchanged(x: Any, *places: int) -> Any:
    """Registers with two of them exchanged."""
    order = list(range(x.shape[1]))
    order[places[0]], order[places[1]] = places[1], places[0]
    return np.ascontiguousarray(x[:, order])


LAYOUTS = {
    "rows of a exchanged": (DENSE, 0, lambda x: exchanged(x, 0, 1)),
    "halves of k exchanged in a": (DENSE, 0, lambda x: exchanged(exchanged(x, 0, 2), 1, 3)),
    "halves of k exchanged in b": (HALF, 1, lambda x: exchanged(x, 0, 1)),
    "threads of b exchanged": (SCALED, 1, lambda x: x[:, :, np.arange(32) ^ 1].copy()),
    "nibbles of a exchanged": (PAIRED, 0, lambda x: x >> 4 & 0x0F0F0F0F | (x & 0x0F0F0F0F) << 4),
    "columns of c exchanged": (HALF, 2, lambda x: x >> 16 | x << 16),
    "metadata of rows exchanged": (SPARSE, 3, lambda x: x[:, :, np.arange(32) ^ 1].copy()),
    "metadata of k exchanged": (SPARSE, 3, lambda x: x[:, :, np.arange(32) ^ 2].copy()),
    "scales of rows exchanged": (SCALED, 3, lambda x: x[:, :, np.arange(32) ^ 1].copy()),
    "scales of blocks exchanged": (GROUPED, 4, lambda x: x >> 8 | x << 24),
    "scales of halves exchanged": (PAIRED, 3, lambda x: x & ~np.uint32(0xFFFF) | x >> 8 & 0xFF | (x & 0xFF) << 8),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_another_layout_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, operand, change = LAYOUTS[name]
    run = o.run

    def wrong(c: Any, target: str, registers: list[Any]) -> Any:
        return run(c, target, [change(x) if i == operand else x for i, x in enumerate(registers)])

    monkeypatch.setattr(o, "run", wrong)
    assert against(form)


def test_one_wrong_element_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the form, the target, the tile with its kind, the register and the lane."""
    run = o.run

    def wrong(*arguments: Any) -> Any:
        got = run(*arguments).copy()
        got[3, 1, 17] ^= 0x00010000
        return got

    monkeypatch.setattr(o, "run", wrong)
    for form in (DENSE, HALF):
        (text,) = against(form)
        assert text.startswith(f"{form}: sm_120a: tile 3 (cancelling), register 1 of lane 17 gives ")


def test_registers_hold_every_element_once() -> None:
    """Each code is its own place; the ISA's formulas for single elements read the codes back from the registers."""
    a = np.arange(16 * 32).reshape(1, 16, 32) & 0xFF
    words = product_tiles.of_rows(a, 8, True)
    for lane in range(32):
        for i in range(16):
            row = lane // 4 + (8 if i // 4 % 2 else 0)
            column = lane % 4 * 4 + i % 4 + (16 if i >= 8 else 0)
            assert int(words[0, i // 4, lane]) >> 8 * (i % 4) & 0xFF == a[0, row, column]
    b = np.arange(8 * 64).reshape(1, 8, 64) & 0xF
    words = product_tiles.of_rows(b, 4, False)
    for lane in range(32):
        for i in range(16):
            row = lane % 4 * 8 + i % 8 + (32 if i >= 8 else 0)
            assert int(words[0, i // 8, lane]) >> 4 * (i % 8) & 0xF == b[0, lane // 4, row]
