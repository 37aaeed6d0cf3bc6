"""Equal neighbours: which places of a pack have equal values, for one input and for two."""

import itertools

import numpy as np
import pytest

from ptxdiff.inputs.patterns import GROUP, neighbour_inputs
from ptxdiff.references.formats import E2M1X2, F16, F32, U8, U32


def groups(*formats, inside=None):
    names = {f"x{k}": f for k, f in enumerate(formats)}
    return [c.reshape(-1, GROUP) for c in neighbour_inputs(names, np.random.default_rng(1), inside)]


@pytest.mark.parametrize("fmt", [U8, F16, U32, F32, E2M1X2], ids=lambda f: f.name)
def test_every_two_places_are_equal_in_some_groups_and_differ_in_others(fmt):
    (x,) = groups(fmt)
    assert ((x == x[:, :1]).all(axis=1)).any()
    for i, j in itertools.combinations(range(GROUP), 2):
        equal = x[:, i] == x[:, j]
        assert (equal & (x != x[:, :1]).any(axis=1)).any()
        assert (~equal).any()
    for k in range(GROUP):
        rest = np.delete(x, k, axis=1)
        assert ((rest == rest[:, :1]).all(axis=1) & (x[:, k] != rest[:, 0])).any()


def test_one_input_is_equal_in_places_where_another_is_not():
    x, y = groups(F32, U32)
    equal_x, equal_y = x[:, 0] == x[:, 1], y[:, 0] == y[:, 1]
    for one, two in itertools.product((False, True), repeat=2):
        assert ((equal_x == one) & (equal_y == two)).any()


def test_a_domain_keeps_groups_whole():
    def inside(units):
        return units["x0"] < units["x1"]

    x, y = groups(U32, U32, inside=inside)
    assert len(x)
    assert (x.view(np.uint64) < y.view(np.uint64)).all()
    assert ((x == x[:, :1]).all(axis=1)).any()


def test_an_empty_domain_gives_nothing():
    assert not neighbour_inputs({"x": U32}, np.random.default_rng(1), lambda units: units["x"] != units["x"])[0].size
