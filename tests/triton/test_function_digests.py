"""A kernel is digested once within an item, and again for the next item."""

import triton
import triton.language as tl

from ptxdiff.triton import spec
from ptxdiff.triton.spec import FunctionRef, digested_once

ADDED: tl.constexpr = tl.constexpr(1)


@triton.jit
def increased(x):
    return x + ADDED


@triton.jit
def decreased(x):
    return x - ADDED


def test_the_next_item_has_the_changed_digest(monkeypatch):
    with digested_once():
        first = FunctionRef.of(increased)
        assert FunctionRef.of(increased) is first
    monkeypatch.setitem(globals(), "ADDED", tl.constexpr(2))
    with digested_once():
        assert FunctionRef.of(increased).code != first.code
    assert FunctionRef.of(increased).code != first.code


def test_functions_and_kinds_of_digests_are_distinguished():
    with digested_once():
        assert FunctionRef.of(increased).code != FunctionRef.of(decreased).code
        portable = FunctionRef.of(increased, portable=True)
        assert portable.portable
        assert portable.code != FunctionRef.of(increased).code


def test_a_function_is_kept_alive_so_that_no_other_gets_its_id():
    def made():
        @triton.jit
        def passing(x):
            return x

        return passing

    with digested_once():
        function = made()
        number = id(function)
        FunctionRef.of(function)
        del function
        kept = spec._met.get()
        assert kept is not None
        assert id(kept[number, False][0]) == number


def test_an_item_within_another_one_digests_again(monkeypatch):
    with digested_once():
        first = FunctionRef.of(increased)
        monkeypatch.setitem(globals(), "ADDED", tl.constexpr(2))
        with digested_once():
            second = FunctionRef.of(increased)
            assert second.code != first.code
        assert FunctionRef.of(increased) is first
    assert FunctionRef.of(increased) == second
