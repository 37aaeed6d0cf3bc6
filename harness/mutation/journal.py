"""What is known already of a case's mutants, a line for each variant or reference, so that a stopped command goes on.

A line is found again only where nothing changed that decides it: the case, the harness, what is installed, the target
and the budget (`harness.running.reuse.key_of`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.model.load import LoadedCase
from harness.mutation.campaign import Budget
from harness.records import Mutation, RecordError, from_json, to_json
from harness.running.item import Item
from harness.running.reuse import key_of

_LASTING = ("", "it has no asm of its own")
"""The words of mutations that are kept; a case that does not pass or compile now may do so later."""


class MutationJournal:
    """The journal in a file, which is begun where there is none. Raises ValueError for a file of something else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, Mutation] = {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text and not text.endswith("\n"):  # a process was ended within its last line
            text = text[: text.rfind("\n") + 1]
            path.write_text(text, encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            try:
                entry = json.loads(line)
                made = from_json(entry["mutation"])
                key = entry["key"]
            except (ValueError, KeyError, TypeError, RecordError) as e:
                raise ValueError(
                    f"{path}:{number} is no line of a journal of mutations ({e}); name another file"
                ) from e
            if isinstance(made, Mutation):
                self._known[key] = made

    def find(self, asked: Asked) -> Mutation | None:
        """What is known of a subject; None where something may have changed since."""
        key = asked.key()
        return self._known.get(key) if key else None

    def keep(self, asked: Asked, made: Mutation) -> None:
        """Note what was found out, unless another try might find more."""
        key = asked.key()
        if key is None or made.words not in _LASTING or made.count("undecided") or key in self._known:
            return
        self._known[key] = made
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "mutation": to_json(made)}) + "\n")


@dataclass(frozen=True)
class Asked:
    """What mutants are asked for: of which case and variants, of their asm or reference, where, and how many."""

    loaded: LoadedCase
    subject: str
    names: Sequence[str]
    target: str
    budget: Budget

    def key(self) -> str | None:
        """A digest of all that decides the answer; None where that is not known."""
        settings = ("mutants", self.subject, repr(self.budget))
        keys = [key_of(Item(self.loaded, name, self.target, "emulator"), *settings) for name in self.names]
        return None if None in keys else hashlib.sha256(" ".join(map(str, keys)).encode()).hexdigest()
