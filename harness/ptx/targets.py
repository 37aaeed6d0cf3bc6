"""GPU targets and the requirements that instruction forms state against them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.ptx.errors import PtxError


@dataclass(frozen=True, slots=True)
class Target:
    """A target such as `sm_90a`: its number and its suffix (`a` architecture-specific, `f` family, or none)."""

    number: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """From `sm_90a`, `sm_90` or `90a`. Raises PtxError for anything else."""
        found = re.fullmatch(r"(?:sm_?)?(\d{2,3})([af]?)", text.strip().lower())
        if not found:
            raise PtxError(f"{text!r} is no target; write one like 'sm_90a'")
        return cls(int(found[1]), found[2])

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"


@dataclass(frozen=True)
class Requirement:
    """The targets that have something.

    `minimum`: any target of at least this number. `exact`: names (`100a`, `100f`) any of which suffices; a name
    with `f` is a family: it stands for every target of the same ten from that number on, with suffix a or f.
    `below`: an upper end (exclusive), for what newer targets lost.
    """

    minimum: int = 0
    exact: tuple[str, ...] = ()
    below: int = 0

    def met_by(self, target: Target) -> bool:
        """Whether the target has it."""
        if self.below and target.number >= self.below:
            return False
        if not self.exact:
            return target.number >= self.minimum
        return any(_named(name, target) for name in self.exact)

    def __str__(self) -> str:
        if self.exact:
            return ", ".join(f"sm_{name}" for name in self.exact)
        text = f"sm_{self.minimum} and later" if self.minimum else "any target"
        return f"{text}, below sm_{self.below}" if self.below else text


def _named(name: str, target: Target) -> bool:
    wanted = Target.parse(name)
    if wanted.suffix == "f":
        return (
            target.suffix in ("a", "f")
            and target.number // 10 == wanted.number // 10
            and target.number >= wanted.number
        )
    return target == wanted


def requirement(value: Requirement | int | str | tuple[str, ...]) -> Requirement:
    """A Requirement from its short forms: a number (`90`: that and later) or names (`"100a 103a"`)."""
    if isinstance(value, Requirement):
        return value
    if isinstance(value, int):
        return Requirement(minimum=value)
    names = tuple(value.split()) if isinstance(value, str) else tuple(value)
    return Requirement(exact=names)
