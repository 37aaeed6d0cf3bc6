"""Case files: Python modules that bind `Case` objects to names.

The object called `case` has the file's stem as its name; any other is `stem.attribute`. Cases in a list, a tuple or a
dict that is bound to a name are `stem.attribute.0` or `stem.attribute.key`; one that also has a name of its own is not
repeated. A leading underscore in a name hides the object bound to it. A module's name is derived from its path, so that
files with the same name in two folders are separate modules.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from ptxdiff.model import files
from ptxdiff.model.case import Case
from ptxdiff.model.compilers import with_twins
from ptxdiff.model.identity.modules import execute_file, module_name
from ptxdiff.model.variants import CaseError
from ptxdiff.suggestions import explained


@dataclass(frozen=True)
class LoadedCase:
    """A case with its name and file. title: the first line of its file's docstring."""

    case: Case
    name: str
    attribute: str
    path: Path
    title: str


def load(path: Path) -> list[LoadedCase]:
    """The cases of a file, in the order in which they are bound.

    Raises CaseError if the file binds none, or if it cannot be executed, with the line at fault.
    """
    if loaded_cases := cases_of(path):
        return loaded_cases
    raise CaseError(
        f"{path}: a case file binds a Case to a name: case = Case(inputs=..., outputs=..., ...). A leading underscore "
        f"hides a Case, and a file that is no case file: _{path.name}"
    )


def cases_of(path: Path) -> list[LoadedCase]:
    """The cases of a file, which may be none.

    Raises CaseError if the file cannot be executed, with the line at fault.
    """
    try:
        with staying():
            module = load_module(path)
        by_attribute = {name: with_twins(case) for name, case in cases_in(vars(module)).items()}
    except (Exception, SystemExit) as e:  # a file that calls sys.exit would otherwise end this process
        raise CaseError(f"{_place(path, e)}: {_words(path, e)}") from e
    title = (inspect.getdoc(module) or "").partition("\n")[0]
    return [
        LoadedCase(case, path.stem if name == "case" else f"{path.stem}.{name}", name, path, title)
        for name, case in by_attribute.items()
    ]


@contextlib.contextmanager
def staying() -> Iterator[None]:
    """Within this block `os._exit` raises CaseError in this process; a fork may still end so.

    A case's function that ends the process with status 0 would end the whole run as if everything had passed.
    """
    owner, leave = os.getpid(), os._exit

    def stay(status: int) -> NoReturn:
        if os.getpid() != owner:
            leave(status)
        raise CaseError(
            f"the case's code calls os._exit({status}), which would end the whole run with that status; return a "
            "value, or raise an exception"
        )

    modules = [m for m in (os, sys.modules.get("posix")) if m is not None]
    for module in modules:
        module._exit = stay  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in modules:
            module._exit = leave  # type: ignore[attr-defined]


def cases_in(namespace: Mapping[str, Any]) -> dict[str, Case]:
    """The cases that a module's namespace binds, by attribute; those in containers by attribute and keys, with dots.

    Raises CaseError if two have the same name, or if a key cannot be part of a name.
    """
    public = {name: value for name, value in namespace.items() if not name.startswith("_")}
    known = {id(value) for value in public.values() if isinstance(value, Case)}
    by_attribute: dict[str, Case] = {}
    for name, value in public.items():
        if isinstance(value, Case):
            by_attribute[name] = value
            continue
        for keys, case in _inside(value, ()):
            if id(case) in known:
                continue
            known.add(id(case))
            attribute = ".".join([name, *(_word(name, key) for key in keys)])
            if attribute in by_attribute:
                raise CaseError(f"two cases in {name} are called {attribute}; use keys that differ in their letters")
            by_attribute[attribute] = case
    return by_attribute


def _inside(value: Any, above: tuple[int, ...]) -> Iterator[tuple[tuple[Any, ...], Case]]:
    """The cases in a container and its inner containers, each with its keys. above: the containers around it."""
    if isinstance(value, Case):
        yield (), value
    elif isinstance(value, list | tuple | dict) and id(value) not in above:
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            for keys, case in _inside(member, (*above, id(value))):
                yield (key, *keys), case


def _word(name: str, key: Any) -> str:
    """A key as a part of a name: every character except letters, digits and underscores becomes an underscore."""
    word = re.sub(r"\W+", "_", str(key)) if isinstance(key, str | int) else ""
    if not word:
        raise CaseError(f"{name}[{key!r}] is a Case, and its key makes no name; use a string or a number as key")
    return word


def claim(named: dict[str, Path], loaded: LoadedCase) -> None:
    """Reserve a case's name. Raises CaseError if a case of another file has it."""
    other = named.setdefault(loaded.name, loaded.path)
    if other != loaded.path:
        raise CaseError(
            f"{loaded.path}: a case called {loaded.name!r} is in {other} as well, and results are kept by name; rename "
            "one of the files"
        )


def _place(path: Path, error: BaseException) -> str:
    """`cases/rcp.py:12`: the innermost line of the case file in an error's traceback."""
    if isinstance(error, SyntaxError) and error.lineno and error.filename == str(path.resolve()):
        return f"{path}:{error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path.resolve())]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _words(path: Path, error: BaseException) -> str:
    """The message of a CaseError; for any other error, its type, message and place."""
    if isinstance(error, CaseError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    inside = isinstance(error, SyntaxError) or last.filename in (str(path.resolve()), "<frozen importlib._bootstrap>")
    where = "" if inside else f" (raised at {Path(last.filename).name}:{last.lineno})"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}{where}"
    return f"{explained(error)}{where}"


def load_module(path: Path) -> ModuleType:
    """The file as a module, executed once per process; its folder is a package and is not on sys.path."""
    path = path.resolve()
    name = f"case_{hashlib.sha256(path.name.encode()).hexdigest()[:8]}"  # a stem may contain a dot
    return sys.modules.get(module_name(path, name)) or execute_file(path, name)


def in_folder(folder: Path, faults: list[CaseError] | None = None) -> list[LoadedCase]:
    """The cases of all case files of a folder. Raises CaseError, also if two have the same name.

    faults: a list that receives the errors instead, one for each such file; the cases of the other files are returned.
    """
    loaded_cases: list[LoadedCase] = []
    named: dict[str, Path] = {}
    for file in files.case_files(folder):
        tests = files.is_test_file(file, files.TEST_FILES)  # pytest runs its tests
        with noted(faults):
            for loaded in cases_of(file) if tests else load(file):
                claim(named, loaded)
                loaded_cases.append(loaded)
    return loaded_cases


@contextlib.contextmanager
def noted(faults: list[CaseError] | None) -> Iterator[None]:
    """Append the CaseError of the block to `faults` and go on; without a list it is raised."""
    try:
        yield
    except CaseError as error:
        if faults is None:
            raise
        faults.append(error)
