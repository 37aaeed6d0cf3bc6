"""The Triton build that compiles each variant, and copies of variants for further builds.

This module has only the names of builds; `ptxdiff.triton.builds` has their places.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from ptxdiff.model.case import Case, CaseDeclaration
from ptxdiff.model.variants import CaseError, Variant

_also: tuple[str, ...] = ()
_made: dict[int, tuple[Case, Case]] = {}
"""Cases with twins, by the id of the case in its file; both are kept alive."""


def compiler_of(case: CaseDeclaration, variant: Variant) -> str:
    """The name of the build that compiles a variant; "" for the Triton of this environment."""
    return variant.compiler or case.compiler


def also_with(names: Iterable[str]) -> None:
    """Set the builds for which `with_twins` adds copies of variants."""
    global _also
    if _also != (_also := tuple(names)):
        _made.clear()


def twin(variant: str, compiler: str) -> str:
    """The name of a variant's copy for another build."""
    return f"{variant}@{compiler}"


def with_twins(case: Case) -> Case:
    """The case with a copy, for each requested build, of every variant that names no build. Raises CaseError."""
    if not _also:
        return case
    if id(case) not in _made:
        made: dict[str, Variant] = {}
        for name, variant in case.variants.items():
            made[name] = variant
            for compiler in _also if not compiler_of(case, variant) else ():
                if twin(name, compiler) in case.variants:
                    raise CaseError(f"variant {twin(name, compiler)!r} has the name of {name!r} compiled by {compiler}")
                made[twin(name, compiler)] = replace(variant, compiler=compiler)
        _made[id(case)] = (case, replace(case, variants=made))
    return _made[id(case)][1]


class ModuleElsewhere(ModuleType):
    """A placeholder for a module that only another Triton build has. Functions may name it but not use it here."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"{self.__name__}.{name}: the Triton of this environment has no {self.__name__}; within a @triton.jit "
            "function of a variant with compiler= the build of that name has it"
        )


def module_of_build(name: str) -> ModuleType:
    """A module of Triton by its full name, or a placeholder if it is not installed here.

    Use it in a case file whose kernels another build compiles (`compiler="tlx"`), for modules that only that build has:
    `tlx = module_of_build("triton.language.extra.tlx")`. Raises CaseError for a module of another package, because no
    digest would cover its code.
    """
    if name.partition(".")[0] != "triton":
        raise CaseError(f"module_of_build({name!r}): only modules of triton may be missing here; import others plainly")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not error.name or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, but a module that it imports does not
    return ModuleElsewhere(name)


# The choice of an assembler: a ptxas and an optimisation level -----------------------------------------------------

LEVELS = (0, 1, 2, 3)
TRITONS_LEVEL = 3
"""The level of Triton's calls of ptxas: Triton names none, so this is ptxas's default."""


@dataclass(frozen=True)
class PtxasChoice:
    """One ptxas at one level, instead of the one that Triton uses.

    path: the program's path. version: the version that it prints ("12.9.86"). level: 0 to 3. digest: a digest of the
    program's bytes, because two programs may print the same version. script: it is a script, which may call any
    program, so none of its results are kept for another run. bundled: it is part of a Triton. options: the options of
    Triton's calls besides level, target and contraction, such as `--regAllocOptLevel=2`, as far as this program has
    them.
    """

    path: str
    version: str
    level: int
    digest: str
    script: bool = False
    bundled: bool = False
    options: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Its name in records: `ptxas 12.9.86 -O0 --regAllocOptLevel=2 (1a2b3c4d5e6f)`.

        Equal labels mean equal programs, levels and options. Records from before options existed have none.
        """
        return f"{' '.join((self.name, *self.options))} ({self.digest})"

    @property
    def name(self) -> str:
        """Its name in messages: `ptxas 12.9.86 -O0`."""
        return f"ptxas {self.version} -O{self.level}"
