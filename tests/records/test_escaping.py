"""What pytest shows of an item's failure: messages of our own without a traceback, anything else as pytest has it."""

from __future__ import annotations

from pathlib import Path

import _pytest._code.code as pytest_code
import pytest

from ptxdiff.records.escaping import OwnWords
from ptxdiff.running.collection import ItemFailure, VariantItem


class PlainItem:
    """In the place of pytest's item."""

    def repr_failure(self, excinfo):
        return "pytest's text"


class Shown(OwnWords, PlainItem):
    own_error = ItemFailure
    expected_error = VariantItem.expected_error
    name, path = "item", Path("cases/one.py")


def failed(raise_it):
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever it raises is shown
        raise_it()
    return caught


def _raised(error):
    raise error


def test_an_expected_failure_shows_its_reason_and_reads_no_source(monkeypatch):
    caught = failed(lambda: pytest.xfail("swapped operands: 3 of 8 wrong"))
    monkeypatch.delattr(pytest_code, "getstatementrange_ast")
    assert str(Shown().repr_failure(caught)) == "swapped operands: 3 of 8 wrong"


def test_own_errors_show_their_message():
    assert str(Shown().repr_failure(failed(lambda: _raised(ItemFailure("a: 3 of 8 wrong"))))) == "a: 3 of 8 wrong"


@pytest.mark.parametrize("error", [ValueError("no"), pytest.fail.Exception("no"), KeyboardInterrupt()])
def test_other_failures_are_pytests(error):
    assert Shown().repr_failure(failed(lambda: _raised(error))) == "pytest's text"


def test_items_show_expected_failures_so():
    assert VariantItem.expected_error == (pytest.xfail.Exception,)
