"""The emulator has no import circle. import-linter checks its rooms; those within `kernel` have the ISA's names, and
their modules are checked here."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest

grimp = pytest.importorskip("grimp", reason="import-linter's graph of imports is not installed")


def order_of(imports):
    return list(TopologicalSorter(imports).static_order())


def test_no_module_of_the_emulator_imports_itself_through_others():
    graph = grimp.build_graph("ptxdiff", exclude_type_checking_imports=True)
    modules = {m for m in graph.find_descendants("ptxdiff.emulator") if not graph.find_children(m)}
    imports = {m: graph.find_modules_directly_imported_by(m) & modules for m in modules}
    assert len(order_of(imports)) == len(modules) > 100


def test_a_circle_is_noticed():
    with pytest.raises(CycleError):
        order_of({"a": {"b"}, "b": {"a"}})
