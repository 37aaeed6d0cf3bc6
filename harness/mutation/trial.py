"""Run one mutant like its case, with the plan, the emulator and the judge of all other runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.jobs import Job, Setup, block_of
from ptxdiff.model.case import Case
from ptxdiff.model.derive import asm_form, packs_of
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.variants import AsmText, AsmVariant, CaseError, KernelVariant, PlainVariant, Variant
from ptxdiff.mutation.asm import AsmMutant
from ptxdiff.running.item import Item, ItemResults
from ptxdiff.running.run import run_item
from ptxdiff.triton.assemble import assemble
from ptxdiff.triton.builds import NoTriton
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.cubin import loaded_sections
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.launch import launch_of
from ptxdiff.triton.spec import Digests, digests_from
from ptxdiff.triton.targets import assembler

Fate = Literal["killed", "padding", "survived", "refused", "undecided"]


@dataclass(frozen=True)
class Trial:
    """The fate of a mutant at quick effort, and the reason. "padding": it fails only as `Result.padding_alone`."""

    fate: Fate
    words: str = ""


class Subject:
    """A case on one target, whose variants are replaced by one mutant after another.

    It uses one copy of the case with its own dict of variants. Input sets are cached by case, so they are made once.
    digests: of the unchanged Triton functions.
    """

    def __init__(self, loaded: LoadedCase, target: str, limit: float, digests: Digests | None = None) -> None:
        self.digests: Digests = {} if digests is None else digests
        self.case: Case = replace(loaded.case, variants=dict(loaded.case.variants))
        self.loaded = replace(loaded, case=self.case)
        self.target, self.backend = target, EmulatorBackend(limit)

    def item(self, name: str) -> Item:
        """The test item of a variant."""
        return Item(self.loaded, name, self.target, self.backend.name)

    def run(self, name: str) -> ItemResults:
        """Run a variant up to its first failure."""
        with digests_from(self.digests):
            return run_item(self.item(name), self.backend, "quick", stop=True)

    def baseline(self, name: str) -> str:
        """The reason why mutants of a variant would be meaningless: it does not pass unchanged; "" if it does."""
        trial_run = self.run(name)
        if trial_run.results and all(r.verdict == "pass" for r in trial_run.results):
            return ""
        wrong = next((r for r in trial_run.results if r.verdict != "pass"), None)
        verdict = "nothing ran" if wrong is None else f"{wrong.outcome}: {wrong.words}"
        return f"it does not pass unchanged on {self.target}: {verdict}"

    def put(self, name: str, variant: Variant) -> None:
        """Bind another variant to a name."""
        variants = self.case.variants
        assert isinstance(variants, dict)
        variants[name] = variant

    def limited(self, limit: float) -> Subject:
        """The same subject with another time limit for an emulated kernel, in seconds."""
        return Subject(self.loaded, self.target, limit, self.digests)

    def fresh(self) -> Subject:
        """The same subject with a new copy of the case, so that input sets are made again for a changed reference."""
        return Subject(self.loaded, self.target, self.backend.limit, self.digests)


def texts_of(case: Case, variant: AsmVariant) -> Mapping[int, tuple[AsmText, AsmVariant]]:
    """The texts of a variant to mutate, by pack, in Triton's or LLVM's spelling, each with a variant of that text.

    If packed forms are derived, the only text is the author's, and packed forms of its mutants are derived again; the
    constraints are those of the largest pack. Raises CaseError if a text cannot be translated to LLVM's spelling.
    """
    if variant.derived_packs and variant.convention == "triton":
        form = asm_form(case, variant, max(packs_of(case, variant)))
        return {1: (AsmText(variant.texts[1].text, form.constraints), variant)}
    by_pack = {}
    for pack in packs_of(case, variant):
        form = asm_form(case, variant, pack)
        text = AsmText(form.text, form.constraints)
        by_pack[pack] = text, replace(variant, texts={pack: text}, derived_packs=(), convention=form.convention)
    return by_pack


def mutated(case: Case, variant: AsmVariant, pack: int, given: AsmText, mutant: AsmMutant) -> AsmVariant:
    """A variant of `texts_of` with a mutant's text. Raises CaseError if packed forms cannot be derived from it."""
    if variant.derived_packs and mutant.constraints == given.constraints:
        return replace(variant, texts={1: AsmText(mutant.text)})
    if variant.derived_packs:
        pack = max(packs_of(case, variant))
        text = asm_form(case, variant, pack).text
        return replace(variant, texts={pack: AsmText(text, mutant.constraints)}, derived_packs=())
    return replace(variant, texts={pack: AsmText(mutant.text, mutant.constraints)})


def refusal(subject: Subject, variant: AsmVariant) -> str:
    """The reason why the binder, or the derivation of packed forms, refuses a mutant; "" if neither does."""
    from ptxdiff.emulator import PtxError, analyse

    try:
        for pack in packs_of(subject.case, variant):
            form = asm_form(subject.case, variant, pack)
            analyse(form.text, form.constraints, target=subject.target)
    except (PtxError, CaseError) as e:
        return " ".join(str(e).split())
    return ""


def trial_of(found: ItemResults) -> Trial:
    """The result for one mutant. Only a verdict "fail" kills it; an error does not."""
    failed = [r for r in found.results if r.verdict == "fail"]
    for result in failed:
        if not result.padding_alone:
            return Trial("killed", result.words)
    if failed:
        return Trial("padding", failed[0].words)
    if found.results and all(r.verdict == "pass" for r in found.results):
        return Trial("survived")
    other = next((r for r in found.results if r.verdict != "pass"), None)
    if other is not None and other.verdict == "error" and other.words.startswith("reference "):
        return Trial("refused", other.words)  # a ReferenceFault: the reference raised, or did not return codes
    return Trial("undecided", "nothing ran" if other is None else f"{other.verdict}: {other.words}")


def try_asm(subject: Subject, name: str, variant: AsmVariant) -> Trial:
    """Run a mutant of asm as the subject's variant `name`, which stays replaced."""
    if reason := refusal(subject, variant):
        return Trial("refused", reason)
    subject.put(name, variant)
    return trial_of(subject.run(name))


# ---- Mutants with the machine code of the original -------------------------------------------------------------------


Code = tuple[Mapping[str, bytes], ...]


def setups_of(subject: Subject, name: str) -> list[Setup]:
    """One setup for each different kernel of a variant; for asm only that of the largest pack."""
    variant = subject.case.variants[name]
    # With fusion, Triton's default, because only then ptxas treats `add` and `add.rn` differently after `mul`.
    fusion = variant.fusion is not False
    if isinstance(variant, AsmVariant):
        pack = max(packs_of(subject.case, variant))
        return [Setup(pack=pack, block=block_of(pack), shape=(1024,), fusion=fusion)]
    assert isinstance(variant, PlainVariant | KernelVariant)
    if subject.case.elementwise:
        return [Setup(shape=(1024,), fusion=fusion)]
    warps = variant.num_warps if isinstance(variant, KernelVariant) else 4
    return [Setup(sizes=dict(sizes), num_warps=warps, fusion=fusion) for sizes in subject.case.sizes]


def job_of(subject: Subject, name: str, setup: Setup) -> Job:
    """The job of a variant in a setup, without inputs."""
    variant = subject.case.variants[name]
    return Job(subject.case, subject.loaded.name, subject.loaded.path, name, variant, subject.target, setup)


def machine_code(subject: Subject, name: str) -> Code | None:
    """The machine code of a variant's present text, one part for each setup; None if one does not compile or assemble.

    None must not be compared: two refused texts are not equivalent.
    """
    codes = []
    for setup in setups_of(subject, name):
        job = job_of(subject, name, setup)
        try:
            compilation = compile_kernel(launch_of(job).spec(job.target))
            if isinstance(compilation, Refusal):
                return None
            assembly = assemble(replace(compilation, ptxas=assembler(job.target)))
            if isinstance(assembly, Refusal):
                return None
            codes.append(loaded_sections(assembly.cubin))
        except (ValueError, TypeError, NoTriton):
            return None
    return tuple(codes) or None
