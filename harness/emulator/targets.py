"""GPU targets, and the requirements of instruction forms on them."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ptxdiff.emulator.errors import PtxError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """A target such as `sm_90a`: its number and suffix (`a`: architecture-specific, `f`: family, or none)."""

    number: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """From `sm_90a`, `sm_90` or `90a`. Raises PtxError for anything else."""
        match = re.fullmatch(r"(?:sm_?)?(\d{2,3})([af]?)", text.strip().lower())
        if not match:
            raise PtxError(f"{text!r} is no target; write one like 'sm_90a'")
        return cls(int(match[1]), match[2])

    def older_than(self, number: int) -> bool:
        """Whether its number is below another."""
        return self.number < number

    def has(self, needed: Requirement) -> bool:
        """Whether it meets a requirement."""
        return needed.met_by(self)

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"


GENERATION = "Hopper"
"""The GPU generation whose approximate instructions the emulator computes (`ptxdiff.emulator.numeric.hopper`)."""


def of_generation(target: str) -> bool:
    """Whether a target is of that generation: sm_90 and sm_90a. Raises PtxError for a name that is no target."""
    return Target.parse(target).number == 90


@dataclass(frozen=True)
class Requirement:
    """The targets that an instruction form or special register needs.

    `minimum`: any target of at least this number. `exact`: names (`100a`, `100f`), any of which suffices. A name with
    `f` is a family: every target in the same ten with at least that number and suffix a or f. `below`: an exclusive
    upper end, for forms that newer targets do not have.
    """

    minimum: int = 0
    exact: tuple[str, ...] = ()
    below: int = 0

    def met_by(self, target: Target) -> bool:
        """Whether the target meets it."""
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


Answers = tuple[tuple["int | Requirement | str", "bool | str"], ...]
"""Questions about a target with their answers. A question is a number (is the target older?), a requirement (does it
meet it?), or a word (its name)."""


class AskedTarget:
    """A target that records every question about it.

    Code that knows a target only through this object gives the same result for every target with the same answers. It
    has no number and no suffix, so every question is recorded.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._answers: dict[int | Requirement | str, bool | str] = {}

    @property
    def answers(self) -> Answers:
        """The questions so far, in the order in which they were first asked."""
        return tuple(self._answers.items())

    def older_than(self, number: int) -> bool:
        """See `Target.older_than`."""
        return bool(self._answers.setdefault(number, self._target.older_than(number)))

    def has(self, needed: Requirement) -> bool:
        """See `Target.has`."""
        return bool(self._answers.setdefault(needed, self._target.has(needed)))

    def __str__(self) -> str:
        return str(self._answers.setdefault("name", str(self._target)))


AnyTarget = Target | AskedTarget


def answers_alike(target: Target, answers: Answers) -> bool:
    """Whether a target gives the same answers to the same questions."""
    return all(_answer(target, question) == answer for question, answer in answers)


def _answer(target: Target, question: int | Requirement | str) -> bool | str:
    if isinstance(question, int):
        return target.older_than(question)
    return str(target) if isinstance(question, str) else target.has(question)


class ByAnswers(Generic[T]):
    """A cache of the last `size` values made for targets, each shared by all targets with the same answers.

    A failed attempt is not cached.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._made: OrderedDict[tuple[Hashable, Answers], T] = OrderedDict()
        self._asked: dict[Hashable, list[Answers]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, target: Target, make: Callable[[AskedTarget], T]) -> tuple[T, Answers]:
        """The result of `make` for a target, and the answers on which it depends.

        key: everything else on which `make` depends.
        """
        with self._lock:
            for answers in self._asked.get(key, ()):
                if answers_alike(target, answers):
                    self._made.move_to_end((key, answers))
                    return self._made[key, answers], answers
        asked = AskedTarget(target)
        made = make(asked)
        with self._lock:
            self._made[key, asked.answers] = made
            known = self._asked.setdefault(key, [])
            if asked.answers not in known:
                known.append(asked.answers)
            while len(self._made) > self.size:
                (old, answers), _ = self._made.popitem(last=False)
                self._asked[old].remove(answers)
                if not self._asked[old]:
                    del self._asked[old]
        return made, asked.answers
