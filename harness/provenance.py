"""What a result is about, in hashes: the bits that went in and came out, and what the variant is made of."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.case import AsmVariant, CaseError, Policies, Variant, alternatives
from harness.derive import asm_form, packs_of
from harness.loader import LoadedCase
from harness.records import Block, text_hash

DIGEST_BLOCK = 1 << 16  # inputs a digest covers: small enough to find a change in, few enough to store


def digest(units: Mapping[str, Any]) -> str:
    """A hash of arrays by name."""
    found = hashlib.sha256()
    for name, array in units.items():
        found.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:32]


def block_digests(outputs: Mapping[str, Any]) -> tuple[Block, ...]:
    """The output bits digested in blocks of inputs, all outputs together."""
    if not outputs:
        return ()
    flat = {n: np.ascontiguousarray(o).reshape(-1) for n, o in outputs.items()}
    count = max(len(o) for o in flat.values())
    blocks = []
    for first in range(0, count, DIGEST_BLOCK):
        part = {n: o[first : first + DIGEST_BLOCK] for n, o in flat.items()}
        blocks.append(Block(first, min(DIGEST_BLOCK, count - first), digest(part)))
    return tuple(blocks)


def fingerprint(loaded: LoadedCase, variant: Variant, policy: Policies) -> dict[str, str]:
    """Hashes of what a variant is made of, so that a gate can tell what changed since a baseline."""
    parts = {"policy": repr((policy.describe_match(), sorted(policy.ftz.items()), policy.nan)) + policy.targets.text}
    parts["reference"] = "".join(map(source_of, alternatives(policy.reference)))
    if isinstance(variant, AsmVariant):
        forms = [(p, *_form(loaded, variant, p)) for p in packs_of(loaded.case, variant)]
        parts["asm"] = repr([(p, text) for p, text, _ in forms])
        parts["constraints"] = repr([(p, constraints) for p, _, constraints in forms])
    else:
        parts["function"] = source_of(variant.function)  # type: ignore[attr-defined]
    return {name: text_hash(text) for name, text in parts.items()}


def _form(loaded: LoadedCase, variant: AsmVariant, pack: int) -> tuple[str, str]:
    try:
        form = asm_form(loaded.case, variant, pack)
    except CaseError as e:
        return str(e), ""
    return form.text, form.constraints


def source_of(function: Any) -> str:
    """The source of a function and its module's, where it can be had: a helper's change changes the reference."""
    function = getattr(function, "fn", function)  # a Triton function wraps a Python one
    function = getattr(function, "func", function)  # a functools.partial
    try:
        module = inspect.getmodule(function)
        return inspect.getsource(function) + (inspect.getsource(module) if module else "")
    except (OSError, TypeError):
        return repr(function)
