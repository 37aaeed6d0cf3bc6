"""Test items and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ptxdiff.model.compilers import compiler_of
from ptxdiff.model.identity.definition import definition
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.policies import variant_on
from ptxdiff.model.variants import Variant
from ptxdiff.records import Key, Result, Sent, Text, TextKind, Verdict, sent, text_hash
from ptxdiff.triton.builds import label


@dataclass
class ItemResults:
    """The results of one item, in the plan's order, and the texts (asm, PTX, SASS) that they name by hash."""

    results: list[Result] = field(default_factory=list)
    texts: dict[str, Text] = field(default_factory=dict)
    _sent: tuple[Sent, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def of(cls, records: Sequence[Sent]) -> ItemResults:
        """Results and texts from records that were encoded as JSON before."""
        results = [r for r, _ in records if isinstance(r, Result)]
        return cls(results, {r.hash: r for r, _ in records if isinstance(r, Text)}, tuple(records))

    @property
    def sent(self) -> tuple[Sent, ...]:
        """Texts and results with their JSON. Each record is encoded once."""
        known = {id(s.record): s for s in self._sent}  # also keeps them alive, so that no other record gets their ids
        records: list[Text | Result] = [*self.texts.values(), *self.results]
        self._sent = tuple(known.get(id(r)) or sent(r) for r in records)
        return self._sent

    @property
    def verdict(self) -> Verdict:
        """The item's verdict: that of its worst result. An item without results is `not run`."""
        order: tuple[Verdict, ...] = ("error", "fail", "unsupported", "pass", "not run")
        verdicts = {r.verdict for r in self.results if not r.expected_failure}
        if not verdicts and self.results:
            return "fail"  # all are expected failures
        return next((v for v in order if v in verdicts), "not run")

    def keep(self, kind: TextKind, text: str | None) -> str:
        """Store a text and return its hash; "" for no text."""
        if not text:
            return ""
        found = text_hash(text)
        self.texts.setdefault(found, Text(found, kind, text))
        return found


@dataclass(frozen=True)
class Item:
    """A test item: a variant of a loaded case, on one target, by one backend."""

    loaded: LoadedCase
    variant_name: str
    target: str
    backend: str

    @property
    def variant(self) -> Variant:
        """The variant as it is declared for the target."""
        return variant_on(self.loaded.case.variants[self.variant_name], self.target)

    @property
    def compiler(self) -> str:
        """The name of the Triton build that compiles it; "" for the Triton of this environment."""
        return compiler_of(self.loaded.case, self.variant)

    @property
    def label(self) -> str:
        """`rcp.rn[sm_90a-emulator]`."""
        return label_of(self.variant_name, self.target, self.backend)


def label_of(variant: str, target: str, backend: str) -> str:
    """`rcp.rn[sm_90a-emulator]`."""
    return f"{variant}[{target}-{backend}]"


def fingerprint_of(item: Item) -> dict[str, str]:
    """The digests of an item's definition, which all its results carry."""
    return definition(item.loaded.case, item.variant)


def not_run(item: Item, reason: str) -> ItemResults:
    """The results of an item that cannot run here."""
    key = Key(item.loaded.name, item.variant_name, item.target, item.backend, compiler=label(item.compiler))
    return ItemResults([Result(key=key, verdict="not run", words=reason)])
