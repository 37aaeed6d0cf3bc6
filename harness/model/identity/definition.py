"""The parts of a case and one of its variants that decide the verdict.

The parts have names, so that a gate can say which part changed. Each part is a digest; the same source gives the same
digest on every machine.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxdiff.locations import PACKAGE, REFERENCES, files_below
from ptxdiff.model.case import Case
from ptxdiff.model.compilers import compiler_of
from ptxdiff.model.derive import asm_form, packs_of
from ptxdiff.model.identity.code import digest_with_code
from ptxdiff.model.identity.encoding import digest, without_encoding
from ptxdiff.model.policies import policies
from ptxdiff.model.variants import (
    AsmVariant,
    CaseError,
    KernelVariant,
    LaunchedVariant,
    PlainVariant,
    PtxVariant,
    Variant,
    alternatives,
)

KEPT_DIGITS = 16

_known: dict[tuple[int, int, bool], tuple[Case, Variant, dict[str, str]]] = {}
"""Definitions by the ids of case and variant. Both are kept alive, so that no other object gets their ids."""


def definition(case: Case, variant: Variant, *, exact: bool = False, anew: bool = False) -> dict[str, str]:
    """The digests of a variant's code and of its judging rules, by part. Computed once per variant and process.

    exact: for comparisons within one environment; byte code and versions of packages count too. anew: of the values
    that the case has now; the definition that was computed before stays the one that later calls return.
    """
    key = (id(case), id(variant), exact)
    if anew:
        known, shared = _known.pop(key, None), _shared.pop((id(case), exact), None)
        try:
            return definition(case, variant, exact=exact)
        finally:
            if known is not None:
                _known[key] = known
            if shared is not None:
                _shared[id(case), exact] = shared
    if key not in _known:
        of_all = _of_all(case, exact)
        if policies(case, variant).reference is not case.reference:
            del of_all["reference"]
        parts = {n: v for n, v in {**_wanted(case, variant), **_made_of(case, variant)}.items() if n not in of_all}
        _known[key] = (case, variant, {name: _digest(value, exact) for name, value in parts.items()} | of_all)
    return dict(_known[key][2])


def _of_all(case: Case, exact: bool) -> dict[str, str]:
    """The digests of the parts that all or most variants of a case share, which take longest to compute."""
    key = id(case), exact
    if key not in _shared:
        parts = {"reference": alternatives(case.reference), **_inputs(case)}
        _shared[key] = (case, {name: _digest(value, exact) for name, value in parts.items()})
    return dict(_shared[key][1])


_shared: dict[tuple[int, bool], tuple[Case, dict[str, str]]] = {}
"""Like `_known`, by case."""


def _digest(value: Any, exact: bool) -> str:
    """The digest of a part, and a description of its first value without an encoding, if there is one."""
    met = len(without_encoding())
    encoded = digest_with_code(value, exact=exact)[:KEPT_DIGITS]
    strange = without_encoding()[met:]
    return f"{INCOMPARABLE}{_kind(strange[0])} {encoded}" if strange else encoded


INCOMPARABLE = "cannot be compared: "
"""The prefix of a digest of a part with a value without an encoding: it differs between processes."""


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def what_changed(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """A description of the parts that differ: changed ones, and ones that cannot be compared; "" if none differs."""
    differ = changed_parts(before, after)
    strange = {n: d for n in differ if (d := after.get(n, before.get(n, ""))).startswith(INCOMPARABLE)}
    changed = [n for n in differ if n not in strange]
    changes = [f"{', '.join(changed)} changed"] if changed else []
    for name, encoded in strange.items():
        kind = encoded.removeprefix(INCOMPARABLE).rpartition(" ")[0]
        if " " in kind:  # a reason, and not the name of a type
            changes.append(f"{name} cannot be compared with another process: {kind}")
        else:
            changes.append(f"{name} uses a value of type {kind}, which cannot be compared with that of another process")
    return "; ".join(changes)


def _wanted(case: Case, variant: Variant) -> dict[str, Any]:
    """The parts that decide how a variant is judged, and on which inputs."""
    policy = policies(case, variant)
    declared = {"differs": tuple(variant.differs.items())} if variant.differs else {}
    return {
        **declared,
        "reference": alternatives(policy.reference),
        "policy": (policy.match, policy.ftz, policy.nan),
        "meets": (policy.meets, case.reference if policy.meets else None),
        "targets": (policy.targets, policy.refused),
        "expected failure": variant.expected_failure,
        **_inputs(case),
    }


def _inputs(case: Case) -> dict[str, Any]:
    """The parts that decide the inputs of all variants."""
    return {
        "formats": (tuple(case.inputs.items()), tuple(case.outputs.items())),
        "inputs": (case.where, tuple(case.hard_cases), tuple(case.sizes), case.generate),
    }


def _made_of(case: Case, variant: Variant) -> dict[str, Any]:
    """The parts that decide what runs, by kind of variant."""
    carry = policies(case, variant).carry
    parts: dict[str, Any] = {"launch": (variant.fusion, carry)}
    if compiler := compiler_of(case, variant):
        parts["compiler"] = compiler
    if isinstance(variant, AsmVariant):
        forms = [(pack, *_form(case, variant, pack)) for pack in packs_of(case, variant)]
        parts["asm"] = [(pack, text) for pack, text, _ in forms]
        parts["constraints"] = [(pack, constraints) for pack, _, constraints in forms]
        if variant.convention != "triton":
            parts["convention"] = variant.convention
        if variant.reads_padding:
            parts["padding"] = "filled at random"
    elif isinstance(variant, PlainVariant):
        parts["function"] = (variant.function, variant.constants)
    elif isinstance(variant, LaunchedVariant):
        parts["launch"] = (variant.fusion, carry, variant.grid, variant.meta, variant.num_warps)
    if isinstance(variant, KernelVariant):
        parts["function"] = variant.function
        if variant.tuned or variant.rules:
            parts["launch"] += (variant.rules, variant.options, variant.tuned)
    elif isinstance(variant, PtxVariant):
        parts["ptx"] = (variant.text, variant.entry)
        parts["launch"] += (variant.block, variant.shared, variant.parameters)
    return parts


def _form(case: Case, variant: AsmVariant, pack: int) -> tuple[str, str]:
    try:
        form = asm_form(case, variant, pack)
    except CaseError as e:
        return str(e), ""
    return form.text, form.constraints


def changed_parts(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the parts that differ."""
    return tuple(sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n)))


# Everything that decides a run's bits, as one immutable value ------------------------------------------------------
#
# Everything that the executing machine receives.

DIGITS = 32


@dataclass(frozen=True)
class Experiment:
    """One run of one code on one machine. Equal experiments give equal bits and equal findings.

    machine: the executing machine, in words and versions; for the emulator with a digest of all instruction
    definitions. code: digest of the PTX text, byte for byte, or of the program that an asm form was bound to.
    launch: digest of the entry, the parameters' bytes, the memory to which they point, grid, block and shared memory;
    for asm without a kernel, of operands, storage types, pack, padding, shared registers and steps. It includes
    contraction. inputs: digest of the inputs with their names, types and shapes.
    """

    machine: str
    code: str
    launch: str
    inputs: str

    @property
    def digest(self) -> str:
        """The value in hexadecimal digits. Records hold it as `identity`."""
        return digest(self)[:DIGITS]


def experiment(machine: str, code: str, launch: Any, inputs: Mapping[str, Any]) -> Experiment:
    """The experiment of a code text, a launch description and inputs (arrays by name)."""
    return Experiment(machine, hashlib.sha256(code.encode()).hexdigest(), digest(launch), digest(dict(inputs)))


@functools.cache
def emulator(approximate: str) -> str:
    """The emulator as a machine: its choice of `approximate`, and a digest of all of `ptxdiff.emulator`."""
    return f"emulator {approximate} {_text_digest(PACKAGE / 'emulator')}"


@functools.cache
def harness() -> str:
    """A digest of the text of every module that decides a verdict: the harness and the references."""
    return digest([_text_digest(PACKAGE, _NOT_THE_HARNESS), _text_digest(REFERENCES)])[:DIGITS]


_NOT_THE_HARNESS = ("references", "reports", "examples")
"""Folders that an installed package holds and a checkout's `harness` does not."""


def _text_digest(folder: Path, without: Collection[str] = ()) -> str:
    """A digest of all modules in a folder. Raises FileNotFoundError for a folder without modules."""
    files = files_below(folder, ".py", without)
    if not files:
        raise FileNotFoundError(f"{folder} holds no Python file; identities of results are made from its text")
    hasher = hashlib.sha256()
    for file in files:
        text = file.read_bytes()
        hasher.update(f"{file.relative_to(folder)} {len(text)}\0".encode() + text)
    return hasher.hexdigest()[:DIGITS]
