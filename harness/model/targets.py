"""Sets of GPU architectures, as a case declares them.

The table lists the architectures that PTX ISA 9.x names and for which current Triton can compile.
`ptxdiff.triton.targets` probes which of them the installed compilers support; this module has only names and order.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ptxdiff.suggestions import did_you_mean

# In order of compute capability; sm_101 is CUDA 12's name of CUDA 13's sm_110. From 9.0 on Triton compiles for the
# architecture-specific target (suffix `a`).
KNOWN = (
    "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90a",
    "sm_100a", "sm_101a", "sm_103a", "sm_107a", "sm_110a", "sm_120a", "sm_121a",
)  # fmt: skip

# PTX ISA 11.1.2, "PTX ISA Notes": the version in which each target string was introduced. That of sm_107 is
# what ptxas 13.5.37 demands, which refuses 9.3.
_INTRODUCED = {
    "6.3": "sm_75", "7.0": "sm_80", "7.1": "sm_86", "7.4": "sm_87", "7.8": "sm_89 sm_90", "8.0": "sm_90a",
    "8.6": "sm_100 sm_100a sm_101 sm_101a", "8.7": "sm_120 sm_120a",
    "8.8": "sm_100f sm_101f sm_103 sm_103a sm_103f sm_120f sm_121 sm_121a sm_121f",
    "9.0": "sm_88 sm_110 sm_110a sm_110f", "9.4": "sm_107 sm_107a sm_107f",
}  # fmt: skip
INTRODUCED = {name: version for version, names in _INTRODUCED.items() for name in names.split()}
"""The first version of the PTX ISA that has a target, by the target's name, for the targets that it lists."""


def version_number(version: str) -> tuple[int, ...]:
    """A version as a tuple of numbers, for comparison: (8, 10) > (8, 8)."""
    return tuple(int(part) for part in version.split("."))


@functools.lru_cache(maxsize=1024)
def capability(target: str) -> int:
    """The number in a target's name: 90 for `sm_90a`. Raises ValueError for anything else."""
    match = re.fullmatch(r"sm_(\d+)([af]?)", target)
    if not match:
        raise ValueError(f"{target!r} is no target; write one like 'sm_90a' (known: {', '.join(KNOWN)})")
    return int(match[1])


# developer.nvidia.com/cuda-gpus: the compute capability of each product; a generation's name stands for its data centre
# GPU.
_PRODUCTS = {
    "sm_75": "turing t4 rtx2080", "sm_80": "ampere a100 a30", "sm_86": "a10 a40 a6000 rtx3090", "sm_87": "orin",
    "sm_89": "ada l4 l40 l40s rtx4090", "sm_90a": "hopper h100 h200 h800 h20 gh200", "sm_100a": "blackwell b200 gb200",
    "sm_103a": "b300 gb300", "sm_110a": "thor", "sm_120a": "rtx5090 rtx5080", "sm_121a": "gb10 spark",
}  # fmt: skip
PRODUCTS = {name: target for target, names in _PRODUCTS.items() for name in names.split()}
"""Targets by the names of GPUs and of generations."""


def normal(name: str) -> str:
    """The table's spelling of a target: `sm_90`, `90`, `sm90`, `hopper` and `H100` all give `sm_90a`.

    Raises ValueError, with the nearest names, for anything else.
    """
    word = re.sub(r"[\s_-]+", "", name.strip().lower())
    if word in PRODUCTS:
        return PRODUCTS[word]
    digits = re.fullmatch(r"(?:sm)?(\d+)[af]?", word)
    for target in KNOWN:
        if digits and capability(target) == int(digits[1]):
            return target
    meant = did_you_mean(word, [*KNOWN, *PRODUCTS])
    raise ValueError(f"{name!r} is no target that ptxdiff knows; known: {', '.join(KNOWN)}{meant}")


def written(name: str) -> str:
    """The target of code that runs as it is: `sm_90` stays, without the `a`; `hopper` gives `sm_90a`.

    Raises ValueError, with the nearest names, for a word that names none.
    """
    return name if re.fullmatch(r"sm_\d+[af]?", name) else normal(name)


@dataclass(frozen=True)
class TargetSet:
    """An immutable set of targets, with the text of its declaration."""

    names: frozenset[str]
    text: str

    def __contains__(self, target: object) -> bool:
        return target in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.names, key=capability))

    def __or__(self, other: TargetSet) -> TargetSet:
        return TargetSet(self.names | other.names, f"{self.text} or {other.text}")

    def __sub__(self, other: TargetSet) -> TargetSet:
        return TargetSet(self.names - other.names, f"{self.text} except {other.text}")


def only(*targets: str) -> TargetSet:
    """Exactly these targets."""
    names = [normal(t) for t in targets]
    return TargetSet(frozenset(names), ", ".join(names))


def since(target: str) -> TargetSet:
    """This target and every target of a higher compute capability."""
    first = capability(normal(target))
    return TargetSet(frozenset(t for t in KNOWN if capability(t) >= first), f"{normal(target)} and later")


ALL = TargetSet(frozenset(KNOWN), "every target")
NONE = TargetSet(frozenset(), "no target")


def target_set(value: TargetSet | str | Iterable[str]) -> TargetSet:
    """The set for a declaration: a TargetSet, one name, or several. Raises ValueError for anything else."""
    if isinstance(value, TargetSet):
        return value
    names = [value] if isinstance(value, str) else list(value) if isinstance(value, Iterable) else [value]
    if wrong := [n for n in names if not isinstance(n, str)]:
        raise ValueError(
            f"{wrong[0]!r} is no target: give a name such as 'sm_90a', a list of names, since('sm_80') or "
            "only('sm_100a'); without targets= a variant must work on every target"
        )
    return only(*names)
