"""Kernels under @triton.autotune and @triton.heuristics: each configuration is a variant, as nothing is timed here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ptxdiff.model.variants import CaseError, KernelVariant, Variant

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_REFUSED = "[]/\\:\n\t"  # what names of variants cannot have


def configured(variants: Mapping[str, Any]) -> dict[str, Any]:
    """The variants, with those of an autotuned kernel in place of it: one for each configuration.

    Configurations that contradict `meta` are left out, so that `meta={"BLOCK": 64}` chooses those with this value. If
    one is left, it keeps the variant's name; several add theirs: `tuned (BLOCK=64, num_warps=4)`. Functions that prune
    configurations are not called, as they are given tensors. Raises CaseError.
    """
    made: dict[str, Any] = {}
    for name, variant in variants.items():
        for label, one in _unwrapped(name, variant) if isinstance(variant, KernelVariant) else [("", variant)]:
            key = f"{name} ({label})" if label else name
            if key in made:
                raise CaseError(f"variant {key!r}: two configurations of {name!r}, or two variants, have this name")
            made[key] = one
    return made


def is_wrapped(function: Any) -> bool:
    """Whether a function is under @triton.autotune or @triton.heuristics."""
    return type(function).__name__ in ("Autotuner", "Heuristics")


def base_name(name: str, variant: Variant) -> str:
    """The name under which the case file declares a variant."""
    label = getattr(variant, "configuration", "")
    return name.removesuffix(f" ({label})") if label else name


def ruled(variant: KernelVariant, values: Mapping[str, Any]) -> KernelVariant:
    """The variant with the values of its heuristics in `meta`; a value that `meta` has already stays.

    values: sizes and scalars of the launch by name. Tensors are not among them. Raises CaseError for a rule that reads
    anything else.
    """
    meta = dict(variant.meta)
    for name, rule in variant.rules.items():
        if name in meta:
            continue
        try:
            meta[name] = rule({**values, **meta})
        except KeyError as error:
            raise CaseError(
                f"the heuristic for {name!r} reads {error.args[0]!r}, but a case gives heuristics sizes, scalars and "
                f"values of meta= ({', '.join({**values, **meta})}); give the value: meta={{{name!r}: ...}}"
            ) from None
    return replace(variant, meta=meta, rules={}) if variant.rules else variant


_TOO_MUCH = re.compile(
    r"needs [\d,]+ bytes of shared memory a block|uses too much shared data|out of resource: shared memory"
    r"|static_assert|CompileTimeAssertion"
)


def passed_over(words: str) -> bool:
    """Whether an autotuner skips a configuration with this error: a block needs more shared memory than the target has,
    or a `static_assert` fails."""
    return _TOO_MUCH.search(words) is not None


def _unwrapped(name: str, variant: KernelVariant) -> list[tuple[str, KernelVariant]]:
    function, tuner = variant.function, None
    rules = dict(variant.rules)  # of a variant of a case that is copied: its function has been unwrapped already
    while is_wrapped(function):
        if type(function).__name__ == "Autotuner":
            tuner = function
        else:
            rules = {**rules, **function.values}
        function = function.fn
    plain = replace(variant, function=function, rules=rules)
    if tuner is None:
        return [("", plain)]
    chosen = [c for c in tuner.configs if all(variant.meta.get(k, v) == v for k, v in c.kwargs.items())]
    if not chosen:
        choices = "; ".join(map(str, tuner.configs))
        raise CaseError(f"variant {name!r}: no configuration of the autotuner agrees with meta=; it has: {choices}")
    labels = [_label(config, tuner.configs) if len(chosen) > 1 else "" for config in chosen]
    plain = replace(plain, prunes=getattr(tuner, "early_config_prune", None) is not None)
    return [(label, _with(name, plain, config, label)) for label, config in zip(labels, chosen, strict=True)]


def _with(name: str, variant: KernelVariant, config: Any, label: str) -> KernelVariant:
    options = {n: v for n in _OPTIONS if (v := getattr(config, n, None)) is not None}
    num_warps = options.pop("num_warps", variant.num_warps)
    if config.pre_hook is not None or getattr(config, "ir_override", None) or options.pop("num_ctas", 1) != 1:
        raise CaseError(
            f"variant {name!r}: the configuration {config} has a pre_hook, an ir_override or num_ctas, which a case "
            "cannot run; give the @triton.jit function itself, and the values in meta="
        )
    meta = {**variant.meta, **config.kwargs}
    return replace(variant, meta=meta, num_warps=num_warps, options=options, configuration=label, tuned=True)


def _label(config: Any, among: Sequence[Any]) -> str:
    """The values of a configuration, and those of its options in which the configurations differ."""
    differing = [n for n in _OPTIONS if len({getattr(c, n, None) for c in among}) > 1]
    values = {**config.kwargs, **{n: getattr(config, n, None) for n in differing}}
    values_text = ", ".join(f"{n}={v}" for n, v in values.items())
    return re.sub(f"[{re.escape(_REFUSED)}]", "-", values_text)
