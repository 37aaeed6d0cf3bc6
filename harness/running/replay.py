"""Replay tokens: one pack of inputs and the setup in which it was run, as one word for the command line.

    identity=0c51-f0...,pack=4,place=2,shape=1009,align=16,warps=4,context=straight,fusion=0,x=3f800000:00000001:...

A token holds the inputs of the whole pack, because Triton may let any elements share an invocation, and a fault may
depend on the neighbours. A replay repeats the pack to fill the shape, so that the failing input is at its place in
every pack. For a whole kernel the token names the input set instead, which is the same on every machine.

`identity` holds digests of the variant's definition, of the PTX that ran, and of a kernel's inputs. A replay runs the
case as it is now, and reports what has changed since: somebody who repairs a variant replays it on purpose, and
somebody who repeats a colleague's token must not take another result for theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ptxdiff.jobs import Setup, block_of
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.identity import digest
from ptxdiff.model.identity.definition import INCOMPARABLE
from ptxdiff.model.variants import CONTEXTS, CaseError, Context

Units = Mapping[str, NDArray[np.generic]]


_SETUP_WORDS = (
    "identity",
    "pack",
    "place",
    "shape",
    "align",
    "misaligned",
    "warps",
    "context",
    "steps",
    "fusion",
    "padding",
    "alone",
    "inputs",
)


MARK = "--ptx-replay:"
UNCERTAIN = "0" * 8
"""In the place of a digest of what stands around a definition: what its code opens is not known."""
AS_IT_IS = "the replay runs the case as it is now"
UNKNOWN_ORIGIN = (
    f"{MARK} this token does not identify the case's definition, so the case may have changed since; {AS_IT_IS}"
)


class TokenError(ValueError):
    """A replay token that cannot be read, or belongs to another case. The message names the part at fault."""


@dataclass(frozen=True)
class Origin:
    """Digests of what a token was made from, shortened.

    definition: of all parts of the variant's definition; it decides whether anything has changed. parts: one for each
    part, in the order of their names, so that a change can be named. body: of the PTX that ran. inputs: of a whole
    kernel's inputs. around: of what stands around the definition, and of the files that its code opened. session: of
    the user's plugins of pytest, and of settings. The last four may be empty.
    """

    definition: str
    parts: tuple[str, ...]
    body: str = ""
    inputs: str = ""
    around: str = ""
    session: str = ""

    @classmethod
    def of(
        cls, definition: Mapping[str, str], body: str = "", inputs: str = "", around: str = "", session: str = ""
    ) -> Origin:
        """The origin of a definition (`ptxdiff.model.identity.definition`), a PTX body's hash and an inputs' digest.

        around, session: digests of what stands around the definition (`ptxdiff.running.carry_over`).
        """
        known = {n: "00" if d.startswith(INCOMPARABLE) else d for n, d in definition.items()}
        parts = tuple(known[name][-2:] for name in sorted(known))
        return cls(digest(sorted(known.items()))[:12], parts, body[:8], inputs[:8], around[:8], session[:8])

    @classmethod
    def read(cls, word: str) -> Origin:
        """The origin that a token contains. Raises ValueError."""
        if not re.fullmatch(
            r"[0-9a-f]{12}-(?:[0-9a-f]{2})+-(?:[0-9a-f]{8})?-(?:[0-9a-f]{8})?(?:-(?:[0-9a-f]{8})?){0,2}", word
        ):
            raise ValueError(f"identity={word} is incomplete; copy the whole token")
        definition, parts, body, inputs, *around = word.split("-")
        return cls(definition, tuple(re.findall("..", parts)), body, inputs, *around)

    def __str__(self) -> str:
        words = (self.definition, "".join(self.parts), self.body, self.inputs, self.around, self.session)
        return "-".join(words if self.session else words[:-1] if self.around else words[:-2])

    def changed(self, definition: Mapping[str, str]) -> tuple[str, ...]:
        """The names of the parts whose digests differ from a present definition; empty if all are the same."""
        today = Origin.of(definition)
        if today.definition == self.definition:
            return ()
        names = sorted(definition)
        if len(names) != len(self.parts):
            return ("the kind of variant",)
        parts = zip(names, self.parts, today.parts, strict=True)
        return tuple(n for n, then, now in parts if then != now) or ("its definition",)


@dataclass(frozen=True)
class Replay:
    """A token's meaning. inputs: for each input the units of one pack; none for whole kernels, which use input_set.

    origin: what the token was made from; None if the token does not contain it.
    """

    setup: Setup
    place: int
    inputs: Mapping[str, NDArray[np.generic]]
    input_set: str = ""
    origin: Origin | None = None

    def fill(self, case: Case) -> dict[str, NDArray[np.generic]]:
        """Inputs of the setup's shape, in which the pack repeats."""
        size = int(np.prod(self.setup.shape))
        return {n: np.resize(self.inputs[n], size).reshape(self.setup.shape) for n in case.inputs}


def remarks(
    replay: Replay | None, definition: Mapping[str, str], body: str = "", around: str = "", session: str = ""
) -> tuple[str, ...]:
    """What has changed since a token was made, for the person who replays it.

    body: hash of the PTX that ran. around, session: as in `Origin.of`.
    """
    if replay is None:
        return ()
    if replay.origin is None:
        return (UNKNOWN_ORIGIN,)
    found = [name for name in replay.origin.changed(definition) if name != "inputs"]  # checked apart
    if found:
        return (f"{MARK} the case has changed since this token was made: {', '.join(found)}; {AS_IT_IS}",)
    if strange := [name for name, found in definition.items() if found.startswith(INCOMPARABLE)]:
        return (f"{MARK} cannot tell whether the {', '.join(strange)} has changed since this token was made",)
    if around and replay.origin.around and UNCERTAIN in (around, replay.origin.around):
        return (f"{MARK} cannot tell whether what its code opens has changed since this token was made",)
    if around and replay.origin.around and not around.startswith(replay.origin.around):
        what = "the text of its file, a module or conftest.py that it imports, or a file that it opens"
        return (f"{MARK} what the case depends on has changed since this token was made: {what}; {AS_IT_IS}",)
    if session and replay.origin.session and not session.startswith(replay.origin.session):
        what = "a plugin of pytest, an option, an ini setting or an environment variable that its files name"
        return (f"{MARK} what the case depends on has changed since this token was made: {what}; {AS_IT_IS}",)
    if body and replay.origin.body and not body.startswith(replay.origin.body):
        why = "because of another Triton, or of a part of the case that no digest covers"
        return (f"{MARK} the case compiles to other code than when this token was made, {why}; {AS_IT_IS}",)
    return ()


def check_formats(replay: Replay, definition: Mapping[str, str]) -> None:
    """Raise CaseError if formats have changed, so that the bits in a token have another meaning."""
    if replay.origin is not None and "formats" in replay.origin.changed(definition):
        raise CaseError(
            f"{MARK} the formats of the case have changed since this token was made, so its bits have another meaning; "
            "run it without --ptx-replay"
        )


def token(setup: Setup, inputs: Units, index: int, input_set: str = "", *, origin: Origin | None = None) -> str:
    """The token for the pack that holds unit number `index` of the inputs."""
    head: dict[str, object] = {"identity": origin} if origin is not None else {}
    head |= {
        "pack": setup.pack,
        "place": index % setup.pack,
        "shape": setup.shape_text.replace(",", ";") or "1",
        "align": setup.alignment,
        "warps": setup.num_warps,
        "context": setup.context,
        "steps": setup.steps,
        "fusion": int(setup.fusion),
    }
    if setup.misaligned:
        head["misaligned"] = setup.misaligned
    if setup.padding is not None:
        head["padding"] = setup.padding
    if setup.alone:
        head["alone"] = 1
    if setup.sizes:
        head["inputs"] = input_set
        return ",".join(f"{k}={v}" for k, v in head.items())
    first = index - index % setup.pack
    assignments = []
    for name, units in inputs.items():
        flat = np.asarray(units).reshape(-1)
        # A pack that the end of the data cuts off is filled from the beginning, as the replay repeats it.
        chosen = np.take(flat, range(first, first + setup.pack), mode="wrap")
        width = 2 * flat.dtype.itemsize
        assignments.append(f"{_word(name)}=" + ":".join(f"{int(u) & ((1 << 4 * width) - 1):0{width}x}" for u in chosen))
    return ",".join([*(f"{k}={v}" for k, v in head.items()), *assignments])


def _word(name: str) -> str:
    """An input's name in a token; renamed if it is a word of the setup."""
    return f"input.{name}" if name in _SETUP_WORDS else name


def parse(text: str, case: Case) -> Replay:
    """The replay that a token describes, for a case. Raises TokenError."""
    try:
        words = [word.split("=", 1) for word in text.split(",")]
        fields = dict(words)
    except ValueError:
        raise TokenError(f"{text!r} is no replay token: expected name=value pairs, separated by commas") from None
    if len(fields) < len(words):
        twice = next(name for at, (name, _) in enumerate(words) if any(name == n for n, _ in words[:at]))
        raise TokenError(f"replay token {text!r}: {twice} stands there twice")
    try:
        origin = Origin.read(fields.pop("identity")) if "identity" in fields else None
        pack = int(fields.pop("pack"))
        setup = Setup(
            pack=pack,
            block=block_of(pack),
            alignment=_power_of_two("align", fields.pop("align", "16")),
            misaligned=fields.pop("misaligned", ""),
            num_warps=_power_of_two("warps", fields.pop("warps", "4")),
            context=_context(fields.pop("context", "straight")),
            steps=int(fields.pop("steps", "1")),
            fusion=_flag("fusion", fields.pop("fusion", "0")),
            padding=int(fields.pop("padding")) if "padding" in fields else None,
            alone=_flag("alone", fields.pop("alone", "0")),
        )
        index = int(fields.pop("place", "0"))
        if not 0 <= index < max(pack, 1):
            raise ValueError(f"place={index} is none of a pack of {pack}")
        shape = fields.pop("shape", "1")
        if "=" in shape:
            sizes = {k: int(v) for k, v in (part.split("=") for part in shape.split(";"))}
            return Replay(replace(setup, sizes=sizes), index, {}, fields.pop("inputs"), origin)
        setup = replace(setup, shape=tuple(int(n) for n in shape.split("x")))
    except KeyError as e:
        raise TokenError(f"replay token {text!r}: {e} is missing") from None
    except ValueError as e:
        raise TokenError(f"replay token {text!r}: {e}") from None
    if min(pack, setup.steps, *(setup.shape or (1,))) < 1:
        raise TokenError(f"replay token {text!r}: pack, steps and shape must be at least 1")
    fields = {name.removeprefix("input."): word for name, word in fields.items()}
    unknown = set(fields) - set(case.inputs)
    missing = set(case.inputs) - set(fields)
    if unknown or missing:
        raise TokenError(
            f"replay token {text!r}: the case's inputs are {', '.join(case.inputs) or 'none'}; "
            f"the token gives {', '.join(sorted(fields)) or 'none'}"
        )
    return Replay(setup, index, {n: _units(case, n, fields[n], setup.pack) for n in case.inputs}, "", origin)


def _power_of_two(name: str, word: str) -> int:
    number = int(word)
    if number < 1 or number & number - 1:
        raise ValueError(f"{name}={word} is no power of two")
    return number


def _flag(name: str, word: str) -> bool:
    if word not in ("0", "1"):
        raise ValueError(f"{name}={word} is neither 0 nor 1")
    return word == "1"


def _context(word: str) -> Context:
    for context in CONTEXTS:
        if word == context:
            return context
    raise ValueError(f"no context is called {word!r}; known: {', '.join(CONTEXTS)}")


def _units(case: Case, name: str, word: str, pack: int) -> NDArray[np.generic]:
    fmt = format_of(case.inputs[name])
    try:
        values = [int(w, 16) for w in word.split(":")]
    except ValueError:
        raise TokenError(f"input {name}={word!r}: expected hexadecimal numbers separated by colons") from None
    if len(values) != pack or any(v >> fmt.unit_bits for v in values):
        raise TokenError(f"input {name}={word!r}: expected {pack} values of {fmt.unit_bits} bits")
    unsigned = np.array(values, dtype=f"uint{fmt.unit_bits}")
    return unsigned.view(fmt.numpy_dtype())
