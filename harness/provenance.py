"""What a result is about, in hashes: the bits that went in and came out, and what the variant is made of."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from types import CodeType
from typing import Any

import numpy as np

from harness.case import AsmVariant, CaseError, Policies, Variant, alternatives
from harness.derive import asm_form, packs_of
from harness.goldens import sums
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
        blocks.append(Block(first, min(DIGEST_BLOCK, count - first), digest(part), sums(part)))
    return tuple(blocks)


def fingerprint(loaded: LoadedCase, variant: Variant, policy: Policies) -> dict[str, str]:
    """Hashes of what a variant is made of, so that a gate can tell what changed since a baseline."""
    parts = {"policy": repr((policy.describe_match(), sorted(policy.ftz.items()), policy.nan))}
    parts["targets"] = policy.targets.text
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
    """The source of a function and of what it calls: functions of its file, and modules of references.

    What else the file holds is left out: another variant beside it changes nothing.
    """
    found: dict[str, str] = {}
    plain = getattr(function, "fn", function)
    home = getattr(getattr(plain, "func", plain), "__module__", "")
    _gather(function, home, found)
    return "\n".join(found[name] for name in sorted(found))


def _gather(value: Any, home: str, found: dict[str, str]) -> None:
    value = getattr(value, "fn", value)  # a Triton function wraps a Python one
    value = getattr(value, "func", value)  # a functools.partial
    module = value if inspect.ismodule(value) else inspect.getmodule(value)
    if module is not None and module.__name__.partition(".")[0] == "references":
        value, name = module, module.__name__
        inner = [v for v in vars(module).values() if inspect.ismodule(v) or inspect.isfunction(v)]
    elif inspect.isfunction(value):
        if value.__module__ != home:
            return
        name = f"{value.__module__}.{value.__qualname__}"
        inner = [value.__globals__[n] for n in _names(value.__code__) if n in value.__globals__]
    else:
        if isinstance(value, int | float | str | tuple | frozenset):  # a constant that a function names
            found[repr(value)] = repr(value)
        return
    if name in found:
        return
    try:
        found[name] = inspect.getsource(value)
    except (OSError, TypeError):
        found[name] = name
    for v in inner:
        _gather(v, home, found)


def _names(code: CodeType) -> set[str]:
    """The globals that a function's code may name, its inner functions included."""
    inner = [_names(c) for c in code.co_consts if isinstance(c, CodeType)]
    return set(code.co_names).union(*inner)
