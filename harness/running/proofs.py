"""pytest's items of `--ptx-prove`: each fails with a counterexample, and is skipped where nothing is settled."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ptxdiff.model.policies import differs_on
from ptxdiff.model.variants import AsmVariant, PlainVariant
from ptxdiff.records import Proof, Sent, sent
from ptxdiff.records.escaping import OwnWords

if TYPE_CHECKING:
    from ptxdiff.model.load import LoadedCase


class Counterexample(Exception):
    """An input on which a variant is wrong, as text."""


class ProofItem(OwnWords, pytest.Item):
    """The proof of one variant, or of its machine code (`against` is "sass"), for all inputs."""

    own_error = Counterexample

    def __init__(self, *, loaded: LoadedCase, variant: str, against: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.loaded, self.variant, self.against = loaded, variant, against
        self.proof: Proof | None = None

    def runtest(self) -> None:
        """Raise Counterexample if there is one; skip where neither a proof nor a counterexample was found."""
        from ptxdiff.proving.solving import require_solvers
        from ptxdiff.proving.verdicts import REFERENCE, default_target, proof_of

        require_solvers("--ptx-prove")
        case = self.loaded.case
        variant, target = case.variants[self.variant], default_target(case, self.variant, self.against)
        if self.against == REFERENCE and (variant.expected_failure is not None or differs_on(variant, target)):
            pytest.skip("not proved: it is declared to be wrong")
        proof = self.proof = proof_of(self.loaded, self.variant, target, against=self.against)
        if proof.verdict == "counterexample":
            inputs = "; ".join(f"{n} = {', '.join(units)}" for n, units in proof.inputs.items())
            machine_code = " as machine code" if self.against == "sass" else ""
            subject = f"{self.loaded.name}::{self.variant} [{proof.target}]{machine_code}"
            raise Counterexample(f"{subject} is wrong for {inputs}: {proof.words}")
        if proof.verdict == "not settled":
            pytest.skip(f"not proved: {proof.words}")

    def ptxdiff_records(self) -> list[Sent]:
        """The item's records, for its report."""
        from ptxdiff.model.describe import case_info

        if self.proof is None:
            return []
        root = Path(os.path.commonpath([self.config.rootpath, self.path]))
        return [sent(case_info(self.loaded, self.path.relative_to(root).as_posix())), sent(self.proof)]

    def reportinfo(self) -> tuple[Path, int, str]:
        """The name under which pytest reports the item."""
        return self.path, 0, f"{self.loaded.name}::{self.variant}: proof against {self.against}"


def proof_items(parent: pytest.Collector, loaded: LoadedCase) -> Iterator[ProofItem]:
    """The items that --ptx-prove and --ptx-prove-against ask for.

    By the reference: each variant of an elementwise case in asm or plain Triton. Of machine code: each variant.
    """
    asked = parent.config.option
    sides = dict.fromkeys(asked.ptx_prove_against or (("reference",) if asked.ptx_prove else ()))
    for against in sides:
        for name, variant in loaded.case.variants.items():
            by_elements = loaded.case.elementwise and isinstance(variant, AsmVariant | PlainVariant)
            if against == "sass" or by_elements:
                suffix = "proof" if against == "reference" else f"proof-{against}"
                yield ProofItem.from_parent(
                    parent, name=f"{name}[{suffix}]", loaded=loaded, variant=name, against=against
                )
