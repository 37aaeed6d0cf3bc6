"""Which forms of machine instructions are believed, on which targets: a ledger that `teaching` writes.

A line says of a form in how many different contexts it ran in machine code whose bits were those of the PTX definition,
in how many others the bits differed, and the digest of its definition then. A form is taught if it agreed in at least
`CONTEXTS` and differed in none. A changed definition loses its line. `confirmed` and `refuted` count the contexts in
which a GPU ran the same machine code and gave the same words, or others.

Instructions without a row (control flow, memory, exchange, barriers, tensor cores) are "moves". `MOVES` counts for each
of their forms the kernels that ran with it and gave the PTX's bits. Only an accusation of ptxas asks for these: without
one, a result counts because the PTX gives the same bits.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import textwrap
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ptxdiff.conformance.ledger import code_digest, text_of
from ptxdiff.sass import isa  # noqa: F401  declares the rows
from ptxdiff.sass.machine import StepCode
from ptxdiff.sass.rows import ROWS, InstructionRow

PATH = Path(__file__).with_name("taught.jsonl")
MOVES = Path(__file__).with_name("moves.jsonl")
CONTEXTS = 2
"""A context is a form of PTX, how its operands were given, and a level of ptxas."""


def contents_digest() -> str:
    """A digest of what this process reads as the two ledgers, for the keys of results that rest on them."""
    return hashlib.sha256(b"\0".join((_contents(PATH), _contents(MOVES)))).hexdigest()


@cache
def _contents(path: Path) -> bytes:
    """The bytes of a ledger, read once: a key must not name another text than the one that decided the result."""
    return path.read_bytes() if path.exists() else b""


def unsettled(forms: Iterable[str], target: str) -> list[str]:
    """Those of some forms that are not taught on a target."""
    return sorted(f for f in forms if _standing(PATH, target, f) is None)


def targets() -> frozenset[str]:
    """The targets of which some form is taught."""
    return frozenset(target for target, form in _lines(PATH) if _standing(PATH, target, form) is not None)


def unsettled_moves(moves: Mapping[str, StepCode], target: str) -> list[str]:
    """Those of some moves that are not taught on a target. moves: by form what the step that ran it does."""
    known = _moves(MOVES)
    return sorted(f for f, step in moves.items() if (target, f, move_digest(step)) not in known)


def weakest(forms: Iterable[str], target: str) -> tuple[str, int, int]:
    """Of some forms that are taught: the one with the fewest contexts confirmed by a GPU, then the fewest at all.

    Also its contexts, and those that a GPU confirmed. ("", 0, 0) if there is no form.
    """
    standing = [(*(_standing(PATH, target, form) or (0, 0))[::-1], form) for form in forms]
    confirmed, agreed, form = min(standing, default=(0, 0, ""))
    return form, agreed, confirmed


@cache
def _lines(path: Path) -> Mapping[tuple[str, str], list[dict[str, Any]]]:
    """The lines of each form on a target."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in map(json.loads, filter(None, _contents(path).splitlines())):
        found.setdefault((line["target"], line["form"]), []).append(line)
    return found


@cache
def _standing(path: Path, target: str, form: str) -> tuple[int, int] | None:
    """The contexts of a form that is taught on a target, and those that a GPU confirmed; None if it is not taught.

    Asked form by form: digests of all rows take as long as running a small case.
    """
    lines = _lines(path).get((target, form), [])
    if any(line["differed"] or line.get("refuted") for line in lines):
        return None
    valid = [line for line in lines if line["digest"] == digest(form)]
    agreed = sum(line["agreed"] for line in valid)
    return (agreed, sum(line.get("confirmed", 0) for line in valid)) if agreed >= CONTEXTS else None


@cache
def _moves(path: Path) -> frozenset[tuple[str, str, str]]:
    lines = [json.loads(line) for line in _contents(path).splitlines() if line]
    return frozenset(
        (e["target"], e["form"], e["digest"]) for e in lines if e["agreed"] >= CONTEXTS and not e["differed"]
    )


_move_digests: dict[StepCode, str] = {}


def move_digest(code: StepCode) -> str:
    """Eight digits that change with the code of a step's class and action, and of the functions that they call."""
    if code not in _move_digests:
        step, action = code
        own = text_of(ast.parse(textwrap.dedent(inspect.getsource(step))))
        called = [step.run, *([inspect.unwrap(action)] if action is not None else [])]
        parts = [own, *(code_digest(function, text_of) for function in called)]
        _move_digests[code] = hashlib.sha256(" ".join(parts).encode()).hexdigest()[:8]
    return _move_digests[code]


def digest(form: str) -> str:
    """Eight digits that change with the definition of a form's row; "" if no row has this name."""
    return _digest_of_name(form.split(" ")[0])


@cache
def _digest_of_name(name: str) -> str:
    rows = [row for row in dict.fromkeys(r for same in ROWS.values() for r in same) if row.name == name]
    return hashlib.sha256("".join(map(_of, rows)).encode()).hexdigest()[:8] if rows else ""


def _of(row: InstructionRow) -> str:
    shapes = [(shape.destinations, shape.sources) for shape in row.shapes]
    more = f" {sorted(row.given.items())}" if row.given else ""
    more += f" {code_digest(row.undecided)}" if row.undecided is not None else ""
    more += " again" if any(shape.again for shape in row.shapes) else ""
    return f"{code_digest(row.definition)} {row.name} {shapes} {sorted(map(str, row.choices.items()))}{more}"
