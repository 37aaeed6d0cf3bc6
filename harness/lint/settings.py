"""Settings of the linter: `[tool.ptxdiff.lint]` in pyproject.toml, under the options of the command line.

    [tool.ptxdiff.lint]
    select = ["syntax", "missing-early-clobber"]     # only these rules
    ignore = ["contraction"]                         # all rules except these
    per-file-ignores = { "third_party/**" = ["superseded-form"] }
    exclude = ["generated", "src/old/*.cu"]
    targets = ["sm_90a"]

As for ruff, the settings of a file are those of the nearest pyproject.toml above it that has the table; files of one
run may have different ones. Patterns are relative to the folder of that pyproject.toml; one without a slash matches a
name in any folder. Unlike ruff's, `*` does not cross a slash; `**` does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ptxdiff.suggestions import did_you_mean, nearest

NAME = "pyproject.toml"
TABLE = "tool.ptxdiff.lint"
KEYS = ("exclude", "ignore", "per-file-ignores", "select", "targets")
ABOUT_FILES = frozenset(("internal", "unreadable-file"))
"""Rules whose findings say that something was not examined. `select` does not leave them out; `ignore` may."""


class SettingsError(ValueError):
    """Settings or options that cannot be used; the message names the file, the key and what to write."""


@cache
def rule_names() -> tuple[str, ...]:
    """The names of all rules, which are those of their pages. It loads no rule."""
    from importlib.resources import files

    pages = files("ptxdiff.lint").joinpath("pages").iterdir()
    return tuple(sorted(p.name.removesuffix(".md") for p in pages if p.name.endswith(".md")))


def unknown_rule(name: str) -> str:
    """The message about a name that is no rule's."""
    return f"no rule is called {name!r}{did_you_mean(name, rule_names())} (ptxdiff lint --rules lists them)"


@dataclass(frozen=True)
class LintSettings:
    """The table of one pyproject.toml. folder: the absolute path of its folder; "" if there is no such file."""

    folder: str = ""
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """The path of the pyproject.toml; "" if there is none."""
        return os.path.join(self.folder, NAME) if self.folder else ""

    def excluding(self, path: Path) -> str:
        """The pattern of `exclude` that matches a file or folder itself; "" for none."""
        return self._matching(self.exclude, path) if self.exclude else ""

    def excluding_above(self, path: Path) -> str:
        """The pattern of `exclude` that matches a file, or a folder above it; "" for none."""
        if not self.exclude:
            return ""
        own = Path(os.path.abspath(path))
        folders = [p for p in own.parents if len(p.parts) > len(Path(self.folder).parts)]
        return next((pattern for each in (own, *folders) if (pattern := self.excluding(each))), "")

    def ignored_in(self, path: Path) -> frozenset[str]:
        """The rules that `per-file-ignores` names for a file."""
        rules = (names for pattern, names in self.per_file_ignores if self._matching((pattern,), path))
        return frozenset(name for names in rules for name in names)

    def _matching(self, patterns: Sequence[str], path: Path) -> str:
        relative = os.path.relpath(os.path.abspath(path), self.folder).replace(os.sep, "/")
        return next((p for p in patterns if _pattern(p).fullmatch(relative if "/" in p.rstrip("/") else path.name)), "")


@dataclass(frozen=True)
class Options:
    """What the command line says. It wins over settings.

    select: replaces `select` and `ignore` of the settings, if it is given. ignore: adds to those of the settings.
    targets: replace those of the settings, if given. isolated: read no settings. force_exclude: exclude also paths that
    the user names.
    """

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    isolated: bool = False
    force_exclude: bool = False


@dataclass(frozen=True)
class Selection:
    """The rules for one file.

    rules: those to run; None for all that run by default. ignored: those that settings or options ignore everywhere.
    hidden: those that `per-file-ignores` names for the file; they run, and their findings are counted. complete:
    whether every rule runs that the project's settings want, so that a comment for all rules can be found unused.
    """

    rules: tuple[str, ...] | None = None
    ignored: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    complete: bool = True

    @classmethod
    def of(cls, names: Iterable[str] | None) -> Selection:
        """The selection of exactly these rules, or of all that run by default."""
        return cls() if names is None else cls(tuple(names), complete=False)

    def reports(self, name: str) -> bool:
        """Whether a finding of a rule without a check (about comments, or about the file) is reported."""
        if name in ABOUT_FILES:
            return name not in self.ignored
        return name in self.rules if self.rules is not None else name not in self.ignored


class Configuration:
    """The settings and options of a run, by file. Each pyproject.toml is read once."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self._of_folder: dict[str, LintSettings] = {}
        for name in (*(self.options.select or ()), *self.options.ignore):
            if name not in rule_names():
                raise SettingsError(unknown_rule(name))

    @property
    def files(self) -> list[str]:
        """The settings files that have decided anything so far."""
        return sorted({each.file for each in self._of_folder.values() if each.file})

    def settings(self, path: Path) -> LintSettings:
        """The settings of a file or folder: those of the nearest pyproject.toml above it. Raises SettingsError."""
        if self.options.isolated:
            return LintSettings()
        here = os.path.abspath(path)
        return self._settings(here if os.path.isdir(here) else os.path.dirname(here))

    def _settings(self, folder: str) -> LintSettings:
        if folder not in self._of_folder:
            settings = read(folder)
            above = os.path.dirname(folder)
            if settings is None:
                settings = LintSettings() if above == folder else self._settings(above)
            self._of_folder[folder] = settings
        return self._of_folder[folder]

    def selection(self, path: Path) -> Selection:
        """The rules for a file."""
        settings, options = self.settings(path), self.options
        wanted: tuple[str, ...] | None
        if options.select is not None:
            wanted, ignored = options.select, frozenset(options.ignore)
        else:
            wanted, ignored = settings.select, frozenset((*settings.ignore, *options.ignore))
        rules = wanted
        if wanted is not None or ignored:
            from ptxdiff.lint.rules import rules as known

            defaults = [n for n, r in known().items() if r.default]
            rules = tuple(n for n in (defaults if wanted is None else wanted) if n not in ignored)
            if not rules:
                raise SettingsError("no rule is left: every rule of select is in ignore, too")
        complete = options.select is None and not options.ignore
        return Selection(rules, ignored, settings.ignored_in(path), complete)

    def targets(self, path: Path) -> tuple[str, ...]:
        """The targets that must run a file's asm."""
        return self.options.targets or self.settings(path).targets


def read(folder: str) -> LintSettings | None:
    """The settings in a folder's pyproject.toml; None if it has none. Raises SettingsError."""
    import tomllib

    file = os.path.join(folder, NAME)
    try:
        with open(file, "rb") as opened:
            content = opened.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from None
    if b"ptx" not in content.lower():  # other people's files may be anything
        return None
    try:
        tools = tomllib.loads(content.decode("utf-8")).get("tool", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if b"ptxdiff" not in content:
            return None
        raise SettingsError(f"{file} is no TOML: {error}") from None
    tables = tools.get("ptxdiff") if isinstance(tools, dict) else None
    if tables is None:
        for name, table in tools.items() if isinstance(tools, dict) else ():
            ours = isinstance(table, dict) and bool({"lint", *KEYS} & set(table))
            if ours and nearest(name, ("ptxdiff", "ptxdiff-lint"), 0.8):
                raise SettingsError(f"{file}: [tool.{name}] is read by nothing; did you mean [{TABLE}]?")
        return None
    if not isinstance(tables, dict):
        raise SettingsError(f"{file}: [tool.ptxdiff] must be a table; found {_shown(tables)}")
    for key in tables:
        if key != "lint":
            hint = f"; write it in [{TABLE}]" if key in KEYS else _hint(key, ("lint",))
            raise SettingsError(f"{file}: [tool.ptxdiff] has no {key!r}{hint}")
    return _checked(file, folder, tables["lint"]) if "lint" in tables else None


def _checked(file: str, folder: str, table: Any) -> LintSettings:
    where = f"{file}: [{TABLE}]"
    if not isinstance(table, dict):
        raise SettingsError(f"{where} must be a table; found {_shown(table)}")
    for key in table:
        if key not in KEYS:
            raise SettingsError(f"{where} has no key {key!r}{_hint(key, KEYS)}; its keys are {', '.join(KEYS)}")
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        raise SettingsError(
            f'{where} per-file-ignores must be a table, such as {{ "old/**" = ["syntax"] }}; found {_shown(per_file)}'
        )
    ignores = []
    for pattern, names in per_file.items():
        key = f"per-file-ignores {pattern!r}"
        _check_pattern(where, key, pattern)
        if os.path.isdir(os.path.join(folder, pattern)):
            raise SettingsError(
                f"{where} {key} is a folder, and matches no file: write {pattern.rstrip('/') + '/**'!r}"
            )
        ignores.append((pattern, _rules(where, key, names)))
    exclude = _texts(where, "exclude", table.get("exclude", []), "patterns", "generated/**")
    for pattern in exclude:
        _check_pattern(where, "exclude", pattern)
    targets = _texts(where, "targets", table.get("targets", []), "targets", "sm_90a")
    for target in targets:
        _check_target(where, target)
    return LintSettings(
        folder,
        _rules(where, "select", table["select"]) if "select" in table else None,
        _rules(where, "ignore", table.get("ignore", [])),
        tuple(ignores),
        exclude,
        targets,
    )


def _texts(where: str, key: str, value: Any, what: str, example: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        wrong = value if not isinstance(value, list) else next(v for v in value if not isinstance(v, str))
        raise SettingsError(f'{where} {key} must be a list of {what}, such as ["{example}"]; found {_shown(wrong)}')
    return tuple(value)


def _rules(where: str, key: str, value: Any) -> tuple[str, ...]:
    names = _texts(where, key, value, "names of rules", "missing-early-clobber")
    if key == "select" and not names:
        raise SettingsError(f"{where} select is empty: no rule would run; leave the key out for all rules")
    for name in names:
        if name not in rule_names():
            raise SettingsError(f"{where} {key}: {unknown_rule(name)}")
    return names


def _check_target(where: str, target: str) -> None:
    from ptxdiff.emulator import PtxError, Target

    try:
        Target.parse(target)
    except PtxError as error:
        raise SettingsError(f"{where} targets: {error}") from None


def _check_pattern(where: str, key: str, pattern: str) -> None:
    """Refuse what would match nothing, or more than it seems to."""
    problem = ""
    if not pattern.strip("/ "):
        problem = "is empty"
    elif pattern.startswith(("/", "~")) or re.match(r"[A-Za-z]:", pattern):
        problem = "is absolute; patterns are relative to the folder of pyproject.toml"
    elif {".", ".."} & set(pattern.split("/")):
        problem = "has a part . or ..; patterns are relative to the folder of pyproject.toml"
    elif "\\" in pattern:
        problem = "has a backslash; separate folders by /"
    elif pattern.startswith("!") or set("{}") & set(pattern):
        problem = "uses ! or {}, which are not supported; write a pattern for each path"
    elif any("**" in part and part != "**" for part in pattern.split("/")):
        problem = "has ** beside other characters; ** stands for whole folders, as in src/**/old.cu"
    else:
        try:
            _pattern(pattern)
        except re.error as error:
            problem = f"has a wrong set of characters: {error.msg}"
    if problem:
        raise SettingsError(f"{where} {key}: the pattern {pattern!r} {problem}")


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression of whole paths with slashes, or of names if it has no slash.

    `**` stands for any folders, also for none, and at the end for everything within; `*` and `?` do not cross a slash.
    """
    parts = pattern.rstrip("/").split("/")
    text = ""
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        if part == "**":
            text += ".+" if last else "(?:.+/)?"
            continue
        for piece in re.finditer(r"\[!?\]?[^\]]*\]|\*|\?|.", part):
            here = piece[0]
            if here in "*?":
                text += "[^/]*" if here == "*" else "[^/]"
            elif len(here) > 1:
                inner = here[1:-1].replace("\\", r"\\")
                text += f"[{'^/' + inner[1:] if inner[0] == '!' else inner}]"
            else:
                text += re.escape(here)
        text += "" if last else "/"
    return re.compile(text, re.DOTALL)


def _hint(name: str, known: Sequence[str]) -> str:
    return did_you_mean(name.replace("_", "-"), known)


def _shown(value: Any) -> str:
    kinds = {
        bool: "a truth value",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "a table",
    }
    return f"{kinds.get(type(value), 'a ' + type(value).__name__)}, {value!r}"
