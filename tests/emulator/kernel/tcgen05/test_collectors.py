"""Collector buffers of tcgen05.mma: correct hints change no bits, wrong hints are errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError
from tests.support.emulator import tensor_memory_text as tm
from tests.support.emulator.tensor_products import PRODUCTS, Product, accumulator, drawn, expected, ran

A, WS = PRODUCTS[0], PRODUCTS[-1]


def several(product: Product, hints: list[str], between: str = "", last: str = "") -> tuple[np.ndarray, np.ndarray]:
    """The emulator's and the expected d of a product without accumulator that is issued once for each hint.

    between: lines before the last product. last: operands of the last product.
    """
    a, b = drawn(product, 1)
    c, cells = accumulator(product, 2, 64 if product.ws else 16)
    whole = tm.product

    def changed(*parts: object) -> str:
        text = whole(*parts)  # type: ignore[arg-type]
        line = next(x for x in text.splitlines() if "tcgen05.mma" in x)
        head, operands = line.split(" [%base]", 1)
        lines = [f"{head}{f'.collector::{hint}' * bool(hint)} [%base]{operands}" for hint in hints]
        if last:
            lines[-1] = lines[-1].replace("%a, %b", last)
        return text.replace(line, "\n".join([*lines[:-1], between, lines[-1]]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tm, "product", changed)
        return ran(product, a, b, cells), expected(product, a, b, np.zeros_like(c))


@pytest.mark.parametrize(
    ("product", "hints"),
    [
        (A, ["a::fill", "a::use", "a::use", "a::lastuse"]), (A, ["a::fill", "", "a::fill", "a::lastuse"]),
        (A, ["a::discard", "a::discard"]), (WS, ["b1::fill", "b2::fill", "b1::use", "b2::lastuse"]),
        (WS, ["b1::fill", "", "b1::lastuse"]),
    ],
)  # fmt: skip
def test_correct_hints_change_no_bits(product: Product, hints: list[str]) -> None:
    got, wanted = several(product, hints)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("product", "hints"),
    [
        (A, ["a::use"]), (A, ["a::lastuse"]), (A, ["a::fill", "a::lastuse", "a::use"]), (A, ["a::fill", "", "a::use"]),
        (A, ["a::fill", "a::discard", "a::lastuse"]), (WS, ["b1::fill", "b2::use"]), (WS, ["b0::fill", "", "b0::use"]),
    ],
)  # fmt: skip
def test_a_use_of_an_empty_buffer_is_reported(product: Product, hints: list[str]) -> None:
    with pytest.raises(ExecutionError, match=r"uses the collector buffer \w+, in which nothing is"):
        several(product, hints)


def test_a_use_with_another_matrix_is_reported() -> None:
    """The second product has another a, which is a mistake with the hint. Without the hint it runs, with other bits."""
    other = "add.s64 %rd9, %a, 1;"
    with pytest.raises(ExecutionError, match=r"has another a since the product in line \d+: hardware may take either"):
        several(A, ["a::fill", "a::use"], other, "%rd9, %b")
    got, wanted = several(A, ["", ""], other, "%rd9, %b")
    assert (got != wanted).any()


def test_another_b_does_not_count_as_another_a() -> None:
    got, wanted = several(A, ["a::fill", "a::lastuse"], "add.s64 %rd9, %b, 1;", "%a, %rd9")
    assert (got != wanted).any()


def test_the_same_bits_of_another_type_count_as_another_matrix() -> None:
    product = replace(A, kind="f8f6f4", a="e4m3", b="e4m3")
    turn = "xor.b32 %x, %x, 128;"  # bit 7: a is e5m2
    with pytest.raises(ExecutionError, match="has another a"):
        several(product, ["a::fill", "a::use"], turn)
