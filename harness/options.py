"""The words for options: one table that pytest and every verb of `ptxdiff` read, so that a thing has one name.

`ptxdiff run --WORD` is `pytest --ptx-WORD`. Light: every pytest run loads this module.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ptxdiff.backends import BACKENDS

EFFORTS = ("quick", "full", "exhaustive")
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")


@dataclass(frozen=True)
class Option:
    """One option: its long word and its letter, what --help says of it, and what argparse is to know of its value."""

    word: str
    help: str
    letter: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The spellings on the command line, the letter first."""
        return (*((f"-{self.letter}",) if self.letter else ()), f"--{self.word}")

    @property
    def dest(self) -> str:
        """The attribute that has its value."""
        return self.word.replace("-", "_")


def _repeated(**facts: Any) -> dict[str, Any]:
    return {"action": "append", **facts}


RUNS = (
    Option("effort", "how much of the sweep to run", facts={"choices": EFFORTS, "default": "quick"}),
    Option(
        "backend",
        "where to run (repeatable); auto, the default, uses everything this machine has; at quick effort it gives sass "
        "a smaller plan, unless sass is named too",
        facts=_repeated(choices=("auto", *BACKENDS)),
    ),
    Option(
        "target",
        "a target to run (repeatable), or all; the default is every target that the installed Triton serves",
        letter="t",
        facts=_repeated(metavar="sm_90a"),
    ),
    Option(
        "compiler",
        "the Triton build for variants with compiler=NAME: a Python interpreter, or the folder of an environment "
        "(repeatable; `make tlx` makes one called tlx)",
        facts=_repeated(metavar="NAME=PATH"),
    ),
    Option(
        "also",
        "run every variant that names no compiler once more, compiled by the build called NAME (repeatable)",
        facts=_repeated(metavar="NAME"),
    ),
    Option(
        "assembler",
        "a ptxas for the machine code of the gpu and the assembler backend (repeatable): bundled, the default, "
        "for the one that Triton carries, or the program at PATH",
        facts=_repeated(metavar="bundled|PATH"),
    ),
    Option(
        "opt",
        "a level of optimisation of ptxas (repeatable; default: 3, Triton's; at full effort 3 and 0)",
        facts=_repeated(type=int, choices=range(4)),
    ),
    Option(
        "cluster",
        "run on the nodes of this Ray cluster: HOST:PORT of its head, auto (the one that this machine belongs to), or "
        "local (start one here); needs ptxdiff[cluster]",
        facts={"metavar": "ADDRESS"},
    ),
    Option(
        "require-gpu", "fail what no GPU here can run, instead of skipping it", facts={"action": "store_true"}
    ),
    Option(
        "replay", "repeat one pack of inputs; a failure message has the token", facts={"metavar": "TOKEN"}
    ),
    Option(
        "dump",
        "write each failure's inputs, outputs, expected values and mask to a .npz file in this folder",
        facts={"metavar": "DIR"},
    ),
    Option(
        "records",
        "write records to this file (.jsonl, or compressed .jsonl.zst), which then holds all of its run, or to a new "
        "file in this folder, in which runs are compressed and share their texts",
        facts={"metavar": "PATH"},
    ),
    Option(
        "share-texts",
        "put texts into the store of the folder of the records file, as where a folder is named",
        facts={"action": "store_true"},
    ),
    Option(
        "resume", "continue the given records file, and keep the results that it has", facts={"action": "store_true"}
    ),
    Option(
        "fresh",
        "run everything: reuse no results and no compiled code of earlier runs (default: results of the emulator and "
        "the assembler are reused where nothing has changed, and their records say so)",
        facts={"action": "store_true"},
    ),
    Option(
        "limit",
        "the longest time for work on a GPU, and for each run on the emulator (default: 60, and 600 for a sweep on a "
        "GPU; also an ini setting, ptx_limit)",
        facts={"type": float, "metavar": "SECONDS"},
    ),
    Option(
        "approximate",
        "bits of approximate instructions on the emulator: a Hopper GPU's (default), or the nearest to the true value; "
        "passes on the latter count as 'model'",
        facts={"choices": ("hopper", "rounded"), "default": "hopper"},
    ),
    Option(
        "sanitize",
        "run kernels on a GPU under this tool of compute-sanitizer (default: memcheck); its findings are failures",
        facts={"nargs": "?", "const": "memcheck", "choices": SANITIZERS},
    ),
    Option(
        "timing",
        "time the variants of every case as well, by each assembler that is named, alone on each GPU; "
        "--benchmark-only times them for pytest-benchmark",
        facts={"action": "store_true"},
    ),
    Option(
        "lint", "lint the asm of every case file as well, in an item of its own", facts={"action": "store_true"}
    ),
    Option(
        "prove",
        "prove each elementwise variant right for all inputs as well, in an item of its own; needs ptxdiff[prove]",
        facts={"action": "store_true"},
    ),
    Option(
        "prove-against",
        "what --prove asks about (repeatable): reference, the default, or sass, the machine code of every variant's "
        "kernels against their PTX",
        facts=_repeated(choices=("reference", "sass")),
    ),
)  # fmt: skip
"""The options of a run: `--ptx-WORD` of pytest, `--WORD` of `ptxdiff run`."""

SHARED = {
    option.word: option
    for option in (
        *RUNS,
        Option("constraints", "LLVM constraints, such as '=r,r' (default: derived)", letter="c"),
        Option("convention", "the spelling of the asm's operands", facts={"choices": ("triton", "llvm", "cuda")}),
        Option("format", "the form of the output", letter="f"),
        Option("fusion", "fuse multiplications and additions that ptxas may fuse", facts={"action": "store_true"}),
        Option("input", "an argument of the asm", letter="i", facts=_repeated(default=[])),
        Option("jobs", "processes that work at the same time", letter="j", facts={"metavar": "N"}),
        Option("journal", "the file that stores what is finished", facts={"metavar": "FILE"}),
        Option("ledger", "a file of evidence (default: the package's own)", facts={"metavar": "FILE"}),
        Option("only", "only these parts"),
        Option("output", "what to write", letter="o"),
        Option("pack", "elements per invocation", letter="p", facts={"type": int, "metavar": "N"}),
        Option("trace", "show every instruction that is executed"),
        Option("report", "write the HTML report here", facts={"metavar": "FILE"}),
        Option("seconds", "the time to spend", facts={"type": float, "metavar": "SECONDS"}),
        Option("seed", "the seed of what is drawn at random"),
        Option("baseline", "what was accepted"),
        Option("cases", "the folder of cases (default: cases)", facts={"metavar": "PATH", "default": "cases"}),
        Option("write", "write the result", facts={"action": "store_true"}),
        Option("quiet", "say less", letter="q", facts={"action": "count", "default": 0}),
        Option("verbose", "say more", letter="v", facts={"action": "count", "default": 0}),
    )
}
"""Words that several verbs have, each with one meaning and one letter."""


def add(parser: argparse._ActionsContainer, word: str, help: str = "", **facts: Any) -> argparse.Action:
    """Add the option of the table that has this word. help and facts replace the table's; None omits a fact."""
    option = SHARED[word]
    merged = {k: v for k, v in {**option.facts, **facts}.items() if v is not None}
    return parser.add_argument(*option.names, help=help or option.help, **merged)


def add_to_pytest(addoption: Callable[..., None]) -> None:
    """Give pytest the options of a run."""
    for option in RUNS:
        addoption(f"--ptx-{option.word}", help=option.help, **option.facts)


def pytest_words(args: argparse.Namespace) -> list[str]:
    """The values of a run's options as words for pytest. Options that were not given are left out."""
    words: list[str] = []
    for option in RUNS:
        value = getattr(args, option.dest)
        if value is True:
            words.append(f"--ptx-{option.word}")
        elif value not in (None, False, option.facts.get("default")):
            words += [f"--ptx-{option.word}={v}" for v in (value if isinstance(value, list) else [value])]
    return words


class _Old(argparse.Action):
    """An old spelling: warns, and does what the new spelling does."""

    def __init__(self, new: argparse.Action, value: Any, **facts: Any) -> None:
        nargs = 0 if value is not None else new.nargs
        kind: Any = new.type
        super().__init__(
            help=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=nargs, type=kind, metavar=new.metavar, **facts
        )
        self.new, self.value = new, value

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Store the value under the new name."""
        word = self.new.option_strings[-1]
        now = f"{word} {self.value}" if self.value is not None else word
        print(f"{parser.prog}: {option_string} is now {now}; the old spelling goes with the next release",
              file=sys.stderr)  # fmt: skip
        self.new(parser, namespace, values if self.value is None else self.value, option_string)


def formerly(parser: argparse._ActionsContainer, old: str, new: argparse.Action, value: Any = None) -> None:
    """Keep an old spelling of an option for one release. value: what the old option, which had no value, stands for."""
    parser.add_argument(old, action=_Old, new=new, value=value, dest=old.strip("-").replace("-", "_"))
