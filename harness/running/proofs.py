"""pytest's items of `--ptx-prove`: each fails with a counterexample, and is skipped where nothing is settled."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ptxdiff.model.policies import differs_on
from ptxdiff.model.variants import AsmVariant
from ptxdiff.records import Proof, Sent, sent
from ptxdiff.records.escaping import OwnWords

if TYPE_CHECKING:
    from ptxdiff.model.load import LoadedCase


class Counterexample(Exception):
    """An input on which a variant is wrong, as text."""


class ProofItem(OwnWords, pytest.Item):
    """The proof of one variant's asm, for all inputs."""

    own_error = Counterexample

    def __init__(self, *, loaded: LoadedCase, variant: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.loaded, self.variant = loaded, variant
        self.proof: Proof | None = None

    def runtest(self) -> None:
        """Raise Counterexample if there is one; skip where neither a proof nor a counterexample was found."""
        from ptxdiff.proving.solving import require_solvers
        from ptxdiff.proving.verdicts import default_target, proof_of

        require_solvers("--ptx-prove")
        case = self.loaded.case
        variant, target = case.variants[self.variant], default_target(case, self.variant)
        if variant.expected_failure is not None or differs_on(variant, target):
            pytest.skip("not proved: it is declared to be wrong")
        found = self.proof = proof_of(self.loaded, self.variant, target)
        if found.verdict == "counterexample":
            inputs = "; ".join(f"{n} = {', '.join(units)}" for n, units in found.inputs.items())
            subject = f"{self.loaded.name}::{self.variant} [{found.target}]"
            raise Counterexample(f"{subject} is wrong for {inputs}: {found.words}")
        if found.verdict == "not settled":
            pytest.skip(f"not proved: {found.words}")

    def ptxdiff_records(self) -> list[Sent]:
        """The item's records, for its report."""
        from ptxdiff.model.describe import case_info

        if self.proof is None:
            return []
        root = Path(os.path.commonpath([self.config.rootpath, self.path]))
        return [sent(case_info(self.loaded, self.path.relative_to(root).as_posix())), sent(self.proof)]

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The name under which pytest reports the item."""
        return self.path, None, f"{self.loaded.name}::{self.variant}: proof"


def proof_items(parent: pytest.Collector, loaded: LoadedCase) -> Iterator[ProofItem]:
    """An item for each variant in asm of an elementwise case, if --ptx-prove asks for them."""
    if not parent.config.option.ptx_prove or not loaded.case.elementwise:
        return
    for name, variant in loaded.case.variants.items():
        if isinstance(variant, AsmVariant):
            yield ProofItem.from_parent(parent, name=f"{name}[proof]", loaded=loaded, variant=name)
