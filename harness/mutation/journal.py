"""A journal of finished mutations, one line for each variant or reference, with which a stopped command continues.

A line is reused only if everything that decides it is unchanged: the case, the harness, the installed packages, the
target and the budget (`ptxdiff.running.reuse.key_of`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ptxdiff.model.load import LoadedCase
from ptxdiff.mutation.campaign import Budget
from ptxdiff.records import Mutation, RecordError, from_json, to_json
from ptxdiff.running.item import Item
from ptxdiff.running.reuse import key_of

_LASTING = ("", "it has no asm of its own")
"""Only mutations with these words are stored, because a case that does not pass or compile now may do so later."""


class MutationJournal:
    """The journal in a file, which is created at the first entry. Raises ValueError for a file of another kind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, Mutation] = {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text and not text.endswith("\n"):  # a process ended while it wrote its last line
            text = text[: text.rfind("\n") + 1]
            path.write_text(text, encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            try:
                entry = json.loads(line)
                made = from_json(entry["mutation"])
                key = entry["key"]
            except (ValueError, KeyError, TypeError, RecordError) as e:
                raise ValueError(f"{path}:{number} is no line of a mutation journal ({e}); name another file") from e
            if isinstance(made, Mutation):
                self._known[key] = made

    def find(self, asked: MutationRequest) -> Mutation | None:
        """The stored mutation of a request; None if there is none, or if something has changed since."""
        key = asked.key()
        return self._known.get(key) if key else None

    def keep(self, asked: MutationRequest, made: Mutation) -> None:
        """Store a mutation, unless another attempt might decide more mutants."""
        key = asked.key()
        if key is None or made.words not in _LASTING or made.count("undecided") or key in self._known:
            return
        self._known[key] = made
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "mutation": to_json(made)}) + "\n")


@dataclass(frozen=True)
class MutationRequest:
    """A request: the mutants of a case's variants on a target. subject: asm, ptx or reference."""

    loaded: LoadedCase
    subject: str
    names: Sequence[str]
    target: str
    budget: Budget

    def key(self) -> str | None:
        """A digest of everything that decides the mutations; None if that is not known."""
        settings = ("mutants", self.subject, repr(self.budget))
        keys = [key_of(Item(self.loaded, name, self.target, "emulator"), *settings) for name in self.names]
        return None if None in keys else hashlib.sha256(" ".join(map(str, keys)).encode()).hexdigest()
