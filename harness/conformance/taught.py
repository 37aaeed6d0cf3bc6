"""Which forms of machine instructions are believed, on which targets: a ledger that `teaching` writes.

A line says of a form in how many different contexts it ran in machine code whose bits were those of the PTX definition,
in how many others the bits differed, and the digest of its definition then. A form is taught if it agreed in at least
`CONTEXTS` and differed in none. A changed definition loses its line. `confirmed` and `refuted` count the contexts in
which a GPU ran the same machine code and gave the same words, or others.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ptxdiff.conformance.ledger import _code
from ptxdiff.sass import isa  # noqa: F401  declares the rows
from ptxdiff.sass.rows import ROWS, InstructionRow

PATH = Path(__file__).with_name("taught.jsonl")
CONTEXTS = 2
"""A context is a form of PTX, how its operands were given, and a level of ptxas."""


def unsettled(forms: Iterable[str], target: str) -> list[str]:
    """Those of some forms that are not taught on a target."""
    known = _taught(PATH)
    return sorted(f for f in forms if (target, f) not in known)


def targets() -> frozenset[str]:
    """The targets of which some form is taught."""
    return frozenset(target for target, _ in _taught(PATH))


@cache
def _taught(path: Path) -> frozenset[tuple[str, str]]:
    if not path.exists():
        return frozenset()
    agreed: Counter[tuple[str, str]] = Counter()
    differed: set[tuple[str, str]] = set()
    for line in map(json.loads, filter(None, path.read_text().splitlines())):
        form = line["target"], line["form"]
        if line["digest"] == digest(line["form"]):
            agreed[form] += line["agreed"]
        if line["differed"] or line.get("refuted"):
            differed.add(form)
    return frozenset(form for form, count in agreed.items() if count >= CONTEXTS and form not in differed)


def digest(form: str) -> str:
    """Eight digits that change with the definition of a form's row; "" if no row has this name."""
    return _digests().get(form.split(" ")[0], "")


@cache
def _digests() -> dict[str, str]:
    rows: dict[str, list[InstructionRow]] = {}
    for row in dict.fromkeys(r for same in ROWS.values() for r in same):
        rows.setdefault(row.name, []).append(row)
    return {name: hashlib.sha256("".join(map(_of, same)).encode()).hexdigest()[:8] for name, same in rows.items()}


def _of(row: InstructionRow) -> str:
    shapes = [(shape.destinations, shape.sources) for shape in row.shapes]
    return f"{_code(row.definition)} {row.name} {shapes} {sorted(map(str, row.choices.items()))}"
