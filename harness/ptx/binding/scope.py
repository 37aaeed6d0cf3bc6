"""Scopes of names: each block has one."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar

from ptxdiff.ptx.binding.program import Register
from ptxdiff.ptx.text.nodes import Declaration, Name

T = TypeVar("T")

_REGISTERS, _LABELS, _TARGETS, _VARIABLES = map(attrgetter, ("registers", "labels", "targets", "variables"))


class Scope:
    """Names visible in a block; a scope knows the one around it."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.registers: dict[str, Register | list[Register]] = {}
        self.labels: dict[str, int] = {}
        self.targets: dict[str, list[Name]] = {}
        self.names: set[str] = set()
        self.variables: dict[str, Declaration] = {}

    def register(self, name: str) -> Register | list[Register] | None:
        """The register (or registers of a vector) of that name, from the innermost scope that has it."""
        return self._innermost(_REGISTERS, name)

    def label(self, name: str) -> int | None:
        """The number of the step after a label of that name."""
        return self._innermost(_LABELS, name)

    def branch_targets(self, name: str) -> list[Name] | None:
        """The labels that a .branchtargets of that name lists."""
        return self._innermost(_TARGETS, name)

    def variable(self, name: str) -> Declaration | None:
        """The variable of that name."""
        return self._innermost(_VARIABLES, name)

    def _innermost(self, table: Callable[[Scope], dict[str, T]], name: str) -> T | None:
        scope: Scope | None = self
        while scope is not None:
            found = table(scope).get(name)
            if found is not None:
                return found
            scope = scope.outer
        return None
