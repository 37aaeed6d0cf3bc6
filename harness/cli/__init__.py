"""The command line `ptxdiff`, with one module for each verb. `python -m ptxdiff` does the same."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Sequence
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
        from ptxdiff.cli import completion

        entered = completion.verb_of_line()
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
            sub.set_defaults(main=module.main)
            chosen = sub
    if completing:
        completion.complete(parser, chosen)
        return 0
    if entered and not entered[0].startswith("-") and entered[0] not in VERBS:
        parser.error(f"no command is called {entered[0]!r}{did_you_mean(entered[0], VERBS)}; ptxdiff --help lists all")
    args, strange = parser.parse_known_args(entered)
    if strange:
        chosen.error(_strange(strange[0], chosen, args.verb))
    args.rest = rest
    try:
        require(*NEEDED.get(args.verb, ()), purpose=f"ptxdiff {args.verb}")
        _prepare(args, entered[1:])
        return int(args.main(args))
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
    from ptxdiff.cli import project

    if args.verb in project.LOADING:
        try:
            project.import_as_pytest(word for word in words if not word.startswith("-"))
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
