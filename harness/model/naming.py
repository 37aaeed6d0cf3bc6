"""Names of cases and variants: one parser for every spelling that pytest, `ptxdiff list` and the reports print.

    cases/rcp.py   rcp.py   rcp   cases                     a file, a case by its name, a folder
    cases/rcp.py::rcp.rn   rcp.py::rcp.rn   rcp::rcp.rn     a variant
    rcp rcp.rn                                              the same in two words
    cases/rcp.py::other::rn   rcp.other::rn                 a variant of a case that is not called `case`
    rcp::rcp.rn[sm_90a-emulator]                            on one target by one backend

A file is searched for in the current folder, then in ./cases. Only files that a word may mean are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ptxdiff.model import files
from ptxdiff.model.load import LoadedCase, claim, in_folder, load, noted
from ptxdiff.model.targets import normal
from ptxdiff.model.variants import CaseError
from ptxdiff.suggestions import did_you_mean

_PLACE = re.compile(r"(?P<rest>.+)\[(?P<target>\w+)-(?P<backend>gpu|emulator|assembler)\]", re.S)


@dataclass(frozen=True)
class Named:
    """A case and its selected variants: all of them, or one.

    target, backend: those in the words, or "". whole: whether no variant was named.
    """

    loaded: LoadedCase
    variants: tuple[str, ...]
    target: str = ""
    backend: str = ""
    whole: bool = True

    @property
    def address(self) -> str:
        """Its node id in pytest: `cases/rcp.py::other::rn[sm_90a-emulator]`."""
        path = self.loaded.path
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        parts = [str(shown)] + [self.loaded.attribute] * (self.loaded.attribute != "case")
        location = f"[{self.target}-{self.backend}]" if self.target else ""
        return "::".join(parts + ([] if self.whole else [f"{self.variants[0]}{location}"]))


def named(words: Sequence[str], faults: list[CaseError] | None = None) -> list[Named]:
    """The cases that words of the command line name, in order. Raises CaseError with the names that exist.

    faults: a list that receives the errors of files that cannot be loaded; the cases of the others are returned.
    """
    named_cases: list[Named] = []
    last: list[Named] = []
    for word in words:
        bare, target, backend = _placed(word)
        before = [n for n in last if n.whole and bare in n.variants]
        if before and not _is_a_place(bare):
            named_cases = named_cases[: -len(last)]
            last = [_only(n, bare, target, backend) for n in before]
        elif last and all(n.whole for n in last) and "::" not in bare and not _is_a_place(bare):
            raise CaseError(_no_variant(", ".join(n.loaded.name for n in last), bare, last))
        else:
            last = _one_word(bare, target, backend, faults)
        named_cases += last
    return named_cases


def one_variant(words: Sequence[str]) -> Named:
    """The only variant that some words name. Raises CaseError if they name none or several."""
    candidates = [replace(n, variants=(v,), whole=False) for n in named(words) for v in n.variants]
    if len(candidates) != 1:
        there = ", ".join(f"{n.loaded.name}::{n.variants[0]}" for n in candidates)
        raise CaseError(f"{' '.join(words)} names {len(candidates)} variants; name one of {there}")
    return candidates[0]


def agreed(option: str, option_value: str | None, name_value: str) -> str | None:
    """The value of an option that the name may also contain. Raises CaseError if the two differ."""
    if option_value is not None and name_value and option_value != name_value:
        raise CaseError(f"{option} {option_value}, and the name says {name_value}; leave one of them out")
    return option_value if option_value is not None else name_value or None


def _placed(word: str) -> tuple[str, str, str]:
    match = _PLACE.fullmatch(word)
    if match is None:
        return word, "", ""
    try:
        return match["rest"], normal(match["target"]), match["backend"]
    except ValueError as e:
        raise CaseError(f"{word}: {e}") from None


def _is_a_place(word: str) -> bool:
    """Whether a word names a file, a folder or a case, instead of a variant of the previous word."""
    path = word.partition("::")[0]
    return path.endswith(".py") or Path(path).is_dir() or bool(_cases_called(path))


def _one_word(word: str, target: str, backend: str, faults: list[CaseError] | None) -> list[Named]:
    path, *names = word.split("::")
    cases = _cases_at(path, None if names else faults)
    everything = [Named(c, tuple(c.case.variants), target, backend) for c in cases]
    if not names or not names[0]:
        return everything
    of_case = [n for n in everything if names[0] in (n.loaded.attribute, n.loaded.name)]
    if of_case and len(names) == 1:
        return of_case
    inside, variant = (of_case, "::".join(names[1:])) if of_case else (everything, "::".join(names))
    chosen = [_only(n, variant, target, backend) for n in inside if variant in n.variants]
    if chosen:
        return chosen
    if not of_case and (path.endswith(".py") or Path(path).is_dir()):
        there = ", ".join(f"{n.loaded.attribute}::{v}" for n in everything for v in n.variants)
        missing = f"no case called {names[0]}, and has no variant {variant!r}"
        near = did_you_mean(variant, [x for n in everything for x in (*n.variants, n.loaded.attribute)])
        raise CaseError(f"{path} binds {missing}{near}; there are {there}")
    raise CaseError(_no_variant(path, variant, inside))


def _only(found: Named, variant: str, target: str, backend: str) -> Named:
    return replace(found, variants=(variant,), target=target, backend=backend, whole=False)


def _no_variant(place: str, variant: str, cases: Sequence[Named]) -> str:
    hint = "".join(f"; {n.loaded.name} is a case: name it so" for n in cases if n.loaded.attribute == variant)
    have, those = ("has", "it has") if len(cases) == 1 else ("have", "they have")
    names = dict.fromkeys(v for n in cases for v in n.variants)
    meant = "" if hint else did_you_mean(variant, names)
    return f"{place} {have} no variant {variant!r}{meant}; {those} {', '.join(names)}{hint}"


def _cases_at(place: str, faults: list[CaseError] | None) -> list[LoadedCase]:
    """The cases of a file, a folder or a name; `faults` as in `named`."""
    path = Path(place)
    if path.is_dir():
        return in_folder(path, faults)
    if path.suffix == ".py":
        meant = [path] if path.exists() else [f for f in _here() if place == f.name or str(f).endswith(f"/{place}")]
        if not meant:
            beside = [*path.parent.glob("*.py"), *_here()]
            near = did_you_mean(path.name, [f.name for f in beside])
            raise CaseError(f"no such file or folder: {place}{near or '; name case files, or a case'}")
        return [c for f in meant for c in _loaded(f, faults)]
    if path.exists():
        raise CaseError(f"{place} is no Python file; name case files, folders of them, or cases")
    called = _cases_called(place)
    if not called:
        here = [f.stem for f in _here()]
        names = ", ".join(here) or "none: there is no folder ./cases"
        near = did_you_mean(place, here)
        raise CaseError(f"no case is called {place!r}{near}; cases here: {names}; no such file or folder: {place}")
    return called


def _loaded(file: Path, faults: list[CaseError] | None) -> list[LoadedCase]:
    with noted(faults):
        return load(file)
    return []


def _here() -> list[Path]:
    folder = Path(files.FOLDER)
    return files.case_files(folder) if folder.is_dir() else []


def _cases_called(name: str) -> list[LoadedCase]:
    """The cases in ./cases of a name, or those of the file of that name; only files of such names are loaded."""
    claimed: dict[str, Path] = {}
    loaded_cases = []
    for file in _here():
        if name == file.stem or name.startswith(f"{file.stem}."):
            for loaded in load(file):
                if name in (loaded.name, file.stem):
                    claim(claimed, loaded)
                    loaded_cases.append(loaded)
    return loaded_cases
