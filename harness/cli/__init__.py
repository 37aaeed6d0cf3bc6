"""The command line `ptxdiff`, with one module for each verb. `python -m ptxdiff` does the same."""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from ptxdiff.extras import MissingPackage, advice, missing_package, require
from ptxdiff.suggestions import did_you_mean

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ptxdiff.model.naming import Named
    from ptxdiff.model.variants import CaseError


# Verb to the line that --help shows. Each is a module of this package with `configure(parser)` and `main(args)`.
VERBS = {
    "run": "run cases, write records, and a report if asked",
    "list": "list cases, variants and where they run",
    "show": "show a variant's asm, PTX and SASS for a target",
    "lint": "find mistakes in inline PTX, in any Python, C++ or CUDA file, without running it",
    "emulate": "run a snippet of inline asm on values given here",
    "report": "make the HTML report, or another format, from records",
    "conformance": "the evidence that each instruction form of the emulator is right; measure it on a GPU",
    "compare": "what changed between two runs, targets, versions or revisions",
    "gate": "accept or refuse a run against a baseline; make a new baseline",
    "speed": "time the variants of cases on the GPU here, compared with a copy and with PyTorch",
    "fuzz": "try assemblers on random PTX, with the emulator as the judge",
    "cluster": "the nodes of a Ray cluster, and files that start one on Kubernetes and Slurm",
    "sweep": "run all inputs of one variant, in shards, on every GPU",
    "mutate": "plant mistakes in asm and references, and list those that a run would miss",
    "prove": "prove variants right for all inputs, or find an input on which one is wrong",
    "init": "write what a repository with cases needs: a CI workflow, pre-commit hooks, .gitignore",
    "new": "write a new case file as a starting point",
    "records": "list the runs of a folder, write one as a file of JSON lines, remove texts that no run needs",
    "cache": "show or delete what lies in the cache folder",
}

NEEDED = dict.fromkeys(("run", "show", "sweep", "mutate", "speed"), ("torch", "triton", "numba", "llvmlite")) | {
    "prove": ("torch", "bitwuzla", "z3")
}
"""Packages of extras without which a verb does nothing."""


_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)$")


class VerbParser(argparse.ArgumentParser):
    """A parser, also of a verb, that names the nearest of an option's words for one that is none of them."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit with 2."""
        match = _CHOICE.search(message)
        super().error(message + (did_you_mean(match[1], re.findall(r"[\w.-]+", match[2])) if match else ""))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb. Exit codes: 0 done, 1 something failed, 2 usage, 130 stopped by Ctrl-C."""
    entered = [*(sys.argv[1:] if arguments is None else arguments)]  # not list(...): the module of that verb hides it
    completing = "_ARGCOMPLETE" in os.environ and arguments is None
    if completing:
        from ptxdiff import cli

        entered = cli.verb_of_line()
    rest: list[str] = []
    if entered[:1] == ["run"] and "--" in entered:  # only `run` passes words on, to pytest
        entered, rest = entered[: entered.index("--")], entered[entered.index("--") + 1 :]
    parser = VerbParser("ptxdiff", description="Differential correctness tests for inline PTX in Triton.")
    from ptxdiff import __version__

    parser.add_argument("--version", action="version", version=f"ptxdiff {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    chosen = parser
    for verb, line in VERBS.items():
        # Only the module of the requested verb is imported.
        sub = verbs.add_parser(verb, help=line, description=line[0].upper() + line[1:] + ".", add_help=True)
        if verb in entered[:1]:
            module = importlib.import_module(f"ptxdiff.cli.{verb}")
            module.configure(sub)
            sub.set_defaults(main=module.main, answered=getattr(module, "answered", None))
            chosen = sub
    if completing:
        cli.complete(parser, chosen)
        return 0
    if entered and not entered[0].startswith("-") and entered[0] not in VERBS:
        parser.error(f"no command is called {entered[0]!r}{did_you_mean(entered[0], VERBS)}; ptxdiff --help lists all")
    args, strange = parser.parse_known_args(entered)
    if strange:
        chosen.error(_strange(strange[0], chosen, args.verb))
    args.rest = rest
    try:
        require(*NEEDED.get(args.verb, ()), purpose=f"ptxdiff {args.verb}")
        if args.answered is not None and (code := args.answered(args, entered[1:])) is not None:
            return int(code)
        try:
            _prepare(args, entered[1:])
            return int(args.main(args))
        finally:
            if hasattr(args, "loading"):
                args.loading.end()
    except ModuleNotFoundError as e:
        package = missing_package(e)
        if not package:
            raise
        say(str(e) if isinstance(e, MissingPackage) else advice([package], f"ptxdiff {args.verb}"), file=sys.stderr)
        return 2
    except UsageError as e:
        say(f"ptxdiff {args.verb}: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        say(f"ptxdiff {args.verb}: stopped", file=sys.stderr)
        return 130  # as shells report SIGINT
    except BrokenPipeError:  # the program that reads our output has ended
        return 1


def _prepare(args: argparse.Namespace, words: Sequence[str]) -> None:
    """Let case files import what they may import under pytest. Raises UsageError."""
    from ptxdiff import cli

    if args.verb in cli.LOADING:
        try:
            cli.import_as_pytest(word for word in words if not word.startswith("-"))
        except ModuleNotFoundError:
            raise
        except ImportError as e:
            raise UsageError(str(e)) from None


def _strange(word: str, parser: argparse.ArgumentParser, verb: str) -> str:
    """The message for a word that a verb does not know, with the nearest option."""
    if not word.startswith("-"):
        return f"{word!r} is one word too many"
    name = word.partition("=")[0]
    known = (s.lstrip("-") for a in parser._actions if a.help != argparse.SUPPRESS for s in a.option_strings)
    near = re.sub(r"(?<=mean )|(?<= or )", "--", did_you_mean(name.lstrip("-"), known))
    if not near and verb == "run":
        return f"no option {name}; an option of pytest follows --: ptxdiff run cases -- {word}"
    return f"no option {name}{near or f'; ptxdiff {verb} --help lists all'}"


def say(text: str, file: TextIO | None = None) -> None:
    """Print a text that may contain names and words of cases and records, with control characters made harmless."""
    from ptxdiff.records.escaping import terminal

    print(terminal(text), file=file)


def render(*renderables: RenderableType) -> None:
    """Print what rich renders, with control characters made harmless after rich has wrapped the lines."""
    from rich.console import Console

    from ptxdiff.records.escaping import guarded

    console = Console()
    with console.capture() as captured:
        for renderable in renderables:
            console.print(renderable, markup=False)
    sys.stdout.write(guarded(captured.get()))


NAMES = "cases and variants as pytest, list and the report print them: cases/rcp.py, rcp::rcp.rn, rcp rcp.rn"


def named(words: Sequence[str], faults: list[CaseError] | None = None) -> list[Named]:
    """See `ptxdiff.model.naming.named`. Raises UsageError."""
    from ptxdiff.model import naming
    from ptxdiff.model.variants import CaseError

    try:
        return naming.named(words, faults)
    except CaseError as e:
        raise UsageError(str(e)) from None


class UsageError(Exception):
    """The command line asks for something impossible. The text says what is wrong and what to write instead."""


# ---- A user's project, as `python -m pytest` finds it: its root, its settings, its conftest.py files -----------------
#
# So a case file that imports the user's own kernels (`from src.kern.k import double`) loads under every verb.

LOADING = ("compare", "list", "mutate", "prove", "show", "speed", "sweep")
"""Verbs that load case files in their own process. `ptxdiff run` starts pytest, which does this itself."""

_SETTINGS = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "tox.ini", "setup.cfg")


def import_as_pytest(words: Iterable[str]) -> None:
    """Make imports work as in `python -m pytest WORDS`: the working directory, `pythonpath`, and conftest.py files.

    Raises ImportError, with the file's name, if a conftest.py cannot be executed, and for settings that pytest refuses.
    """
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    paths = _paths(words)
    if not any(map(os.path.isfile, _settings_for([here, *paths]))):
        return
    import pytest
    from _pytest.config import ConftestImportFailure, _prepareconfig

    from ptxdiff.cli.run import plugin_words

    words = ["--capture=no", "--assert=plain", *plugin_words(), *paths]
    try:
        _prepareconfig(words)  # as pytest.main does first; nothing is collected or configured
    except pytest.UsageError as e:
        raise ImportError(f"pytest's settings: {e}") from e
    except ConftestImportFailure as e:
        raise ImportError(f"{e.path}: {type(e.cause).__name__}: {e.cause}") from e


def pytests_files(words: Iterable[str]) -> list[str]:
    """The files, which may be absent, in which pytest finds settings and conftest.py files for words of a command."""
    paths = _paths(word for word in words if not word.startswith("-"))
    inner = [str(p / "conftest.py") for path in paths for p in Path(path).glob("test*") if p.is_dir()]
    return [*_settings_for([os.getcwd(), *paths]), *inner]


def _paths(words: Iterable[str]) -> list[str]:
    named = (word.partition("::")[0] for word in words)
    paths = [p for p in named if p.endswith(".py") or os.sep in p or Path(p).is_dir()]
    return [p for p in paths if Path(p).exists()] or [p for p in ("cases",) if Path(p).is_dir()]


def _settings_for(places: Iterable[str]) -> list[str]:
    """Where pytest looks for settings and for a conftest.py: in these folders and above them."""
    folders = {f for p in places for f in (Path(p).resolve(), *Path(p).resolve().parents)}
    return [str(folder / name) for folder in sorted(folders) for name in (*_SETTINGS, "conftest.py")]


# ---- Completion in bash, zsh and fish by argcomplete -----------------------------------------------------------------
#
# A key press starts ptxdiff, so nothing is imported here that takes time: case files are parsed and not executed.

NAMED = "NAME"
"""The metavar of arguments that name cases and variants."""


def verb_of_line() -> list[str]:
    """The first word behind the program's name on the line that is completed; none if there is no other word yet."""
    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0"))]
    try:
        line_words = shlex.split(line)
    except ValueError:  # an open quotation mark
        line_words = line.split()
    return line_words[1:2]


def complete(parser: argparse.ArgumentParser, chosen: argparse.ArgumentParser) -> None:
    """Answer the shell and end the process, if it is the shell that asks. chosen: the parser of the verb."""
    import argcomplete

    for action in chosen._actions:
        if action.dest == "target" or action.dest == "between":
            action.completer = _targets  # type: ignore[attr-defined]
        elif action.metavar == NAMED and not action.option_strings:
            action.completer = _names  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def _targets(prefix: str, **_: object) -> list[str]:
    from ptxdiff.model.targets import KNOWN

    return [name for name in KNOWN if name.startswith(prefix)]


def _names(prefix: str, **_: object) -> list[str]:
    """The cases in ./cases by name and by file; behind `::` the variants of one."""
    file_name, colons, _variant = prefix.partition("::")
    if colons:
        path = Path(file_name) if file_name.endswith(".py") else Path("cases") / f"{file_name}.py"
        return [f"{file_name}::{name}" for name in variants_in(path)]
    if "/" in prefix or Path(prefix).is_dir():
        folder = Path(prefix if prefix.endswith("/") else Path(prefix).parent)
        return [str(p) for p in sorted(folder.glob("[!_.]*.py"))]
    return sorted(path.stem for path in Path("cases").glob("[!_.]*.py"))


def variants_in(path: Path) -> Iterator[str]:
    """The names of variants that stand in a case file as text."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "Case"):
        for keyword in call.keywords:
            if keyword.arg == "variants" and isinstance(keyword.value, ast.Dict):
                keys = (key.value for key in keyword.value.keys if isinstance(key, ast.Constant))
                yield from (key for key in keys if isinstance(key, str))
