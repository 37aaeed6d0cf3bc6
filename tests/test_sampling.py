"""Samples of tables lose no row: a row that is not quick is slow."""

import re
from itertools import combinations, product

import pytest

from tests.support.sampling import mixed, only, paired, sizes, spread


def quick(rows):
    return [row.values for row in rows if not row.marks]


def test_every_step_and_every_kind_is_quick_and_the_others_are_slow():
    rows = [("a", 1), ("a", 2), ("b", 2), ("a", 3), ("a", 1), ("a", 2)]
    found = spread(rows, 4, kinds=lambda row: row)
    assert [row.values for row in found] == rows
    assert quick(found) == [("a", 1), ("a", 2), ("b", 2), ("a", 3), ("a", 1)]
    assert all(row.marks == () or [m.name for m in row.marks] == ["slow"] for row in found)
    assert quick(spread(rows, 4)) == [("a", 1), ("a", 1)]


def test_each_value_of_a_pair_is_in_the_sample():
    found = paired("abcde", range(4), 2)
    assert len(found) == 20
    assert {a for a, _ in quick(found)} == set("abcde")
    assert {b for _, b in quick(found)} == set(range(4))
    assert len(quick(found)) == 10


def test_each_pair_of_values_of_two_of_three_axes_is_in_the_sample():
    axes = ("abcde", range(4), (True, False, None))
    found = mixed(*axes, of=3)
    assert [row.values for row in found] == list(product(*axes))
    assert len(quick(found)) == 20
    for one, other in combinations(range(3), 2):
        assert {(row[one], row[other]) for row in quick(found)} == set(product(axes[one], axes[other]))


def test_a_quick_row_that_the_table_lacks_is_an_error():
    assert quick(only("abc", "c")) == [("c",)]
    with pytest.raises(ValueError, match=r"no row of the table: \['d'\]"):
        only("abc", "cd")


def test_both_sizes_run():
    few, many = sizes(3, 300)
    assert (few.values, few.marks) == ((3,), ())
    assert many.values == (300,)
    assert [m.name for m in many.marks] == ["slow"]


def test_one_row_in_n_of_a_sampled_test_is_quick(pytester):
    """The choice is the same in each run, has every value of each list, and counts no row that is slow anyway."""
    pytester.makeconftest("from tests.conftest import pytest_collection_modifyitems")
    pytester.makeini('[pytest]\nmarkers =\n  slow\n  sample(n)\naddopts = -m "not slow" -p no:cacheprovider')
    pytester.makepyfile(
        """
        import pytest

        slow = pytest.param(2, marks=pytest.mark.slow)

        @pytest.mark.sample(3)
        @pytest.mark.parametrize("a, b", [(k, k) for k in range(9)])
        @pytest.mark.parametrize("c", [0, 1, slow])
        def test_lists(a, b, c):
            print(f"<{a}{c}>")

        @pytest.mark.sample(5)
        @pytest.mark.parametrize("a", range(3))
        def test_few(a):
            print(f"<{a}>")
        """
    )
    quick = _printed(pytester.runpytest_inprocess("-s"))
    assert quick == _printed(pytester.runpytest_inprocess("-s"))
    assert sorted(map(len, quick)) == [1] + [2] * 6
    assert {row[1] for row in quick if len(row) == 2} == set("01")
    slow = _printed(pytester.runpytest_inprocess("-s", "-m", "slow"))
    assert sorted(quick + slow) == sorted([str(a) for a in range(3)] + [f"{a}{c}" for a in range(9) for c in range(3)])


def _printed(result):
    return re.findall("<([0-9]+)>", result.stdout.str())
