"""The assemblers of a run: what `--ptx-assembler` and `--ptx-opt` choose, for each item's target and Triton build."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ptxdiff.backends import BACKENDS
from ptxdiff.model.compilers import TRITONS_LEVEL, PtxasChoice
from ptxdiff.triton.builds import NoTriton
from ptxdiff.triton.ptxas import NoAssembler, assembler_at

if TYPE_CHECKING:
    from ptxdiff.running.plan import WorkItem

BUNDLED = "bundled"
"""On the command line: the ptxas that the installed Triton carries for a target."""

Chosen = PtxasChoice | None
"""An assembler; None means the one that Triton uses, with Triton's own options."""


@dataclass(frozen=True)
class AssemblerChoice:
    """The assemblers that the options choose. places: `BUNDLED`, and paths of programs. levels: of optimisation."""

    places: tuple[str, ...] = (BUNDLED,)
    levels: tuple[int, ...] = (TRITONS_LEVEL,)

    @classmethod
    def of(cls, places: Sequence[str] | None, levels: Sequence[int] | None, effort: str) -> AssemblerChoice:
        """The choice that the options make. Full effort adds level 0 if no level is named."""
        usual = (TRITONS_LEVEL, 0) if effort == "full" else (TRITONS_LEVEL,)
        return cls(tuple(dict.fromkeys(places or (BUNDLED,))), tuple(dict.fromkeys(levels or usual)))

    @property
    def tritons_own(self) -> bool:
        """Whether the choice contains the ptxas that Triton uses, at Triton's level."""
        return BUNDLED in self.places and TRITONS_LEVEL in self.levels

    def resolved(self, backend: str, target: str, compiler: str = "") -> tuple[Chosen, ...]:
        """The assemblers of an item, each once. Raises NoAssembler, and NoTriton if Triton's own is chosen but not
        installed.

        Triton's own at Triton's level is None: then Triton itself assembles the kernel, and launches it on a GPU.
        """
        if not BACKENDS[backend].chosen_ptxas or self == AssemblerChoice():
            return (None,)
        chosen_ones: list[Chosen] = []
        for path in self.places:
            for level in self.levels:
                if path != BUNDLED:
                    chosen_ones.append(assembler_at(path, level, options=tritons_options(target, compiler)))
                elif level == TRITONS_LEVEL:
                    chosen_ones.append(None)
                else:
                    chosen_ones.append(tritons_own(target, compiler, level))
        return tuple(dict.fromkeys(chosen_ones))

    @property
    def words(self) -> list[str]:
        """The choice as a run's environment record has it; empty for Triton's own alone. Raises NoAssembler."""
        if self == AssemblerChoice():
            return []
        named = [(path, level) for path in self.places for level in self.levels]
        return [f"{BUNDLED} -O{level}" if p == BUNDLED else assembler_at(p, level).label for p, level in named]


def timed_by(config: pytest.Config, target: str | None) -> tuple[Chosen, ...]:
    """The assemblers that are timed: those that the options name; full effort adds none. Raises UsageError."""
    places, levels = config.option.ptx_assembler, config.option.ptx_opt
    if target is None or not (places or levels):
        return (None,)
    try:
        return AssemblerChoice.of(places, levels, "quick").resolved("gpu", target)
    except (NoTriton, NoAssembler) as e:
        raise pytest.UsageError(f"--ptx-assembler: {e}") from None


def tritons_own(target: str, compiler: str = "", level: int = TRITONS_LEVEL) -> PtxasChoice:
    """The ptxas that Triton, or a build of it, carries for a target. Raises NoTriton and NoAssembler."""
    from ptxdiff.triton.targets import assembler_of

    try:
        own = assembler_of(target, compiler)
        return assembler_at(own.path, level, bundled=True, options=own.options)
    except IndexError:
        raise NoAssembler("the installed Triton assembles for no target") from None


def tritons_options(target: str, compiler: str = "") -> tuple[str, ...]:
    """The options with which Triton, or a build of it, calls ptxas for a target; none if Triton is missing."""
    from ptxdiff.triton.targets import assembler_of

    try:
        return assembler_of(target, compiler).options
    except (NoTriton, IndexError):
        return ()


def with_assembler(chosen: Chosen, work: Sequence[WorkItem]) -> list[WorkItem]:
    """The plan with each item's setup assembled by `chosen`."""
    return [replace(item, setup=replace(item.setup, assembler=chosen)) for item in work]


def label_of(chosen: Chosen, backend: str, target: str, compiler: str) -> str:
    """The assembler's label in records; "" if the backend runs no machine code, or no assembler is found."""
    if not BACKENDS[backend].chosen_ptxas:
        return ""
    if chosen is not None:
        return chosen.label
    try:
        return tritons_own(target, compiler).label
    except (NoTriton, NoAssembler):
        return ""


def option_words(chosen: Chosen) -> list[str]:
    """pytest's options that choose the same assembler again."""
    if chosen is None:
        return []
    option = [] if chosen.bundled else [f"--ptx-assembler={chosen.path}"]
    return [*option, f"--ptx-opt={chosen.level}"]


def parsed(place: str, folder: Path) -> str:
    """An absolute path for the value of `--ptx-assembler`, seen from `folder`. Raises NoAssembler if it is no ptxas."""
    if place == BUNDLED:
        return place
    path = os.path.abspath(folder / Path(place).expanduser())
    if os.path.isdir(path):
        raise NoAssembler(f"{place} is a folder; name the program in it, {os.path.join(place, 'ptxas')}")
    if not os.access(path, os.X_OK):
        raise NoAssembler(f"{place}: {'not executable' if os.path.exists(path) else 'there is no such file'}")
    assembler_at(path, TRITONS_LEVEL)
    return path
