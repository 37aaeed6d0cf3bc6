"""What decides a case's results besides the definition of its variants: the texts, settings and files around it.

A definition follows values from one function to the next. Code can be reached in ways that no such walk sees: a
decorator that registers it, a module that replaces a function of torch, a conftest.py, `__subclasses__`. So results are
carried over to a later run only if these parts are equal as well:

    "case file"             the text of the file that binds the case, in records without the next part
    "kernels in it"         in records: its texts of asm, and its Triton functions
    "imported modules"      the texts of the user's modules that it imports, directly or through others
    "conftest.py"           the texts of each conftest.py beside or above it, and of what these import
    "plugins"               the user's plugins of pytest, sitecustomize and usercustomize, and what they import
    "installed plugins"     names and versions of installed plugins
    "settings"              environment variables, ini settings and options that one of those texts names

`opened` adds the files that the case's code opened, which are known after its run only. Reuse compares texts byte for
byte (`exact`). Records hold the same parts without comments and layout, equal on every machine.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ptxdiff.model.identity.code import is_users
from ptxdiff.model.identity.encoding import digest
from ptxdiff.model.identity.modules import imported_texts
from ptxdiff.model.identity.opened import Opened, digest_of, opened_by
from ptxdiff.model.identity.source import file_text, real_path

DIGITS = 16


@dataclass(frozen=True)
class PytestSession:
    """What a session of pytest adds to every case.

    root: its root folder. plugins: the files of the user's plugins. installed: names and versions of installed plugins.
    setting: the value of an option, or of an ini setting, as text; None if nothing has that name.
    """

    root: str = ""
    plugins: tuple[str, ...] = ()
    installed: tuple[str, ...] = ()
    setting: Callable[[str], str | None] = lambda name: None


KERNELS = "kernels in it"

OF_THE_SESSION = ("plugins", "installed plugins", "settings")
"""The parts that a session of pytest adds. A cluster's node has other ones, and takes its driver's: `take_parts`."""

_session = PytestSession()
_digests_of: dict[tuple[Path, bool], dict[str, str]] = {}
_texts_of: dict[Path, _Texts] = {}
_imports_of: dict[str, dict[str, str]] = {}
_taken: dict[str, Mapping[str, str]] = {}


@dataclass(frozen=True)
class _Texts:
    """The texts that decide a case file's results, by part and path."""

    parts: Mapping[str, Mapping[str, str]]

    @property
    def files(self) -> list[str]:
        return [path for texts in self.parts.values() for path in texts]

    @property
    def everything(self) -> list[str]:
        return [text for texts in self.parts.values() for text in texts.values()]


def set_session(session: PytestSession) -> None:
    """From now on cases belong to this session. Texts are looked up again: its files may be other ones."""
    global _session
    _session = session
    _digests_of.clear()
    _texts_of.clear()
    _imports_of.clear()


def take_parts(path: Path, parts: Mapping[str, str]) -> None:
    """From now on, these parts of a case file are those of another process, on whose behalf this one runs the case."""
    real = os.path.realpath(path)
    if _taken.get(real) != parts:
        _taken[real] = dict(parts)
        _digests_of.clear()


def in_session() -> bool:
    """Whether this process has a session of pytest."""
    return bool(_session.root)


def dependencies(path: Path, *, exact: bool = False) -> dict[str, str]:
    """The digests of the parts, for a case file that has been loaded.

    exact: comments and layout count too.
    """
    if (path, exact) in _digests_of:
        return dict(_digests_of[path, exact])
    given, path = path, Path(os.path.abspath(path))
    texts = _texts(path)
    found: dict[str, str] = {}
    for part, by_path in texts.parts.items():
        if part == "case file" and not exact:
            rest, kernels = _without_kernels("".join(by_path.values()))
            found |= {part: _short(rest), KERNELS: _short(kernels)}
            continue
        named = {
            os.path.relpath(file, path.parent): text if exact else _meaning(text) for file, text in by_path.items()
        }
        found[part] = _short(sorted(named.items()))
    found["installed plugins"] = _short(_session.installed)
    found["settings"] = _short((_named_settings(texts), _named_data(texts)))
    found |= _taken.get(os.path.realpath(path), {})
    _digests_of[given, exact] = found
    return dict(found)


def opened(path: Path) -> Opened:
    """What the code of a case file, and of what it depends on, has opened so far in this process."""
    path = Path(os.path.abspath(path))
    texts = _texts(path)
    sources = [str(path), *texts.files]
    found = opened_by(sources, without=sources)
    if not any(_COMPUTED.search(text) for text in texts.everything):
        return found
    # It may import modules under computed names, also ones that are loaded already.
    known = {os.path.realpath(source) for source in sources}
    more = {file: digest_of(file) for file in _users_files() if os.path.realpath(file) not in known}
    return Opened(dict(sorted((more | dict(found.files)).items())), found.unknown)


def portable(path: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Digests by path, with paths relative to the case file's folder where they lie in the session's root folder."""
    root, folder = _session.root or str(path.parent), os.path.abspath(path.parent)
    inside = {f: os.path.relpath(f, folder) if f.startswith(f"{root}{os.sep}") else f for f in files}
    return {inside[f]: digest for f, digest in files.items()}


def changed_files(path: Path, files: Mapping[str, str]) -> list[str]:
    """The files of `portable` whose contents differ now, in order."""
    folder = os.path.abspath(path.parent)
    return [f for f, was in sorted(files.items()) if digest_of(os.path.normpath(os.path.join(folder, f))) != was]


def set_from_outside(path: Path) -> str:
    """Which loaded file sets an attribute of a module that a case file imports, in words; "" if none does.

    Only files count that the case file does not import itself: without them it would find another value there.
    """
    path = Path(os.path.abspath(path))
    texts = _texts(path)
    own = {real_path(file) for file in texts.files}
    for module in sys.modules.copy().values():
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or real_path(file) in own:
            continue
        if not is_users(module):
            continue
        for name, attribute in _set_attributes(file_text(file)):
            other = vars(module).get(name)
            if isinstance(other, ModuleType) and real_path(getattr(other, "__file__", None) or "") in own:
                return f"{os.path.basename(file)} sets {attribute} of {other.__name__.rpartition('.')[2]}"
    return ""


@functools.lru_cache(maxsize=1024)
def _set_attributes(text: str) -> tuple[tuple[str, str], ...]:
    """The attributes that a source sets, each with the name that it has for their owner."""
    if not re.search(r"^[ \t]*\w+\.\w+[^=\n]*=[^=]|\bsetattr\(", text, re.MULTILINE):
        return ()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    attributes: list[tuple[str, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            attributes.append((node.value.id, node.attr))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            owner, attribute, *_ = [*node.args, ast.Constant("an attribute"), ast.Constant("an attribute")]
            if isinstance(owner, ast.Name):
                attributes.append((owner.id, str(getattr(attribute, "value", "an attribute"))))
    return tuple(dict.fromkeys(attributes))


_COMPUTED = re.compile(
    r"\b(import_module|__import__|sys\.modules|runpy|exec|spec_from_file_location|module_from_spec|SourceFileLoader|"
    r"pkgutil|find_spec)\b"
)
"""Names with which code can import a module whose name no import statement has."""

_READS_ENVIRONMENT = re.compile(r"\b(environ|environb|getenv)\b")

_CASE_MODULE = re.compile(r"\.case_[0-9a-f]{8}$")


def _users_files() -> list[str]:
    """The files of the user's loaded modules that are no case files."""
    modules = [m for name, m in sys.modules.copy().items() if not _CASE_MODULE.search(name)]
    return sorted({str(m.__file__) for m in modules if getattr(m, "__file__", None) and is_users(m)})


def _texts(path: Path) -> _Texts:
    if path not in _texts_of:
        own = Path(os.path.realpath(path))
        beside = [str(folder / "conftest.py") for folder in own.parents]
        beside = [file for file in beside if os.path.exists(file)]
        plugins = [*_session.plugins, *_customizing()]
        parts = {
            "case file": {str(own): file_text(str(own))},
            "imported modules": imported_texts(own),
            "conftest.py": _with_imports(beside),
            "plugins": _with_imports(plugins),
        }
        _texts_of[path] = _Texts(parts)
    return _texts_of[path]


def _customizing() -> list[str]:
    """The files with which a user changes every start of Python."""
    loaded = (sys.modules.get(name) for name in ("sitecustomize", "usercustomize"))
    return [str(m.__file__) for m in loaded if isinstance(m, ModuleType) and getattr(m, "__file__", None)]


def _with_imports(files: Iterable[str]) -> dict[str, str]:
    texts_by_file: dict[str, str] = {}
    for file in files:
        if file not in _imports_of:
            _imports_of[file] = imported_texts(Path(file), Path(file)) | {file: file_text(file)}
        texts_by_file |= _imports_of[file]
    return texts_by_file


def _named_settings(texts: _Texts) -> list[tuple[str, str]]:
    """The session's settings that a conftest.py or a plugin names, and the environment variables that any text names.

    A name that is computed counts if a part of it stands in the text.
    """
    settings: dict[str, str] = {}
    for part, by_path in texts.parts.items():
        for text in by_path.values():
            if part in _OF_PYTEST:
                known = {c: _session.setting(c) for c in _constants(text)}
                settings |= {name: value for name, value in known.items() if value is not None}
            if _READS_ENVIRONMENT.search(text):
                named = set(_constants(text))
                parts = [c for c in named if len(c) > 2]
                settings |= {f"${n}": v for n, v in os.environ.items() if n in named or any(p in n for p in parts)}
    return sorted(settings.items())


_OF_PYTEST = ("conftest.py", "plugins")
"""The parts that pytest loads, and that may ask it for settings."""


def _named_data(texts: _Texts) -> list[tuple[str, str]]:
    """The files that a conftest.py or a plugin names. They were imported before their openings could be noted."""
    data_files: dict[str, str] = {}
    for part in _OF_PYTEST:
        for source, text in texts.parts[part].items():
            for name in _constants(text):
                if len(name) > 200 or "\n" in name or not re.search(r"\w[./]\w", name):
                    continue
                for folder in (os.path.dirname(source), os.getcwd()):
                    if os.path.isfile(path := os.path.join(folder, name)) and not path.endswith(".py"):
                        data_files[name] = digest_of(path)
    return sorted(data_files.items())


@functools.lru_cache(maxsize=1024)
def _constants(text: str) -> tuple[str, ...]:
    """The texts that stand in a source."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    constants = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
    return tuple(dict.fromkeys(os.fsdecode(c) for c in constants if isinstance(c, str | bytes)))


@functools.lru_cache(maxsize=1024)
def _meaning(text: str) -> str:
    """A source without comments and layout; any other text as it is."""
    try:
        return ast.unparse(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return text


@functools.lru_cache(maxsize=1024)
def _without_kernels(text: str) -> tuple[str, tuple[tuple[int, str], ...]]:
    """The meaning of a source without its kernels, and these: texts with operands or statements, functions of a `jit`.

    Each kernel has the number of its node, so that the two together tell any two sources apart: what stands in a
    kernel's place, an empty text or `pass`, may stand elsewhere too.

    Whoever repairs asm changes the second alone, so that the gate can tell it from a change of what judges the asm.
    """
    try:
        cut = _Kernels()
        return ast.unparse(cut.visit(ast.parse(text))), tuple(cut.kernels)
    except (SyntaxError, ValueError, RecursionError):
        return text, ()


class _Kernels(ast.NodeTransformer):
    def __init__(self) -> None:
        self.kernels: list[tuple[int, str]] = []
        self.visited = 0

    def visit(self, node: ast.AST) -> Any:
        """See NodeTransformer.visit."""
        self.visited += 1
        return super().visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if not (isinstance(node.value, str) and re.search(r"\$\d|;", node.value)):
            return node
        self.kernels.append((self.visited, node.value))
        return ast.Constant("")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if any(re.search(r"\bjit\b", ast.unparse(d)) for d in node.decorator_list):
            self.kernels.append((self.visited, ast.unparse(node)))
            return ast.Pass()
        return self.generic_visit(node)


def _short(value: object) -> str:
    return digest(value)[:DIGITS]
