"""Replay tokens: one pack of inputs and everything about how it was run, as a word for the command line.

    pack=4,place=2,shape=1009,align=16,warps=4,context=straight,fusion=0,x=3f800000:00000001:7f800000:00000000

The inputs of the whole pack are there because Triton's contract leaves open which elements share an invocation: a
fault may need its neighbours. A replay fills the shape by repeating the pack, so that every element of the failing
place holds the failing input again. Whole kernels name their input set instead, which is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness.jobs import Setup
from harness.model.arguments import format_of
from harness.model.case import Case
from harness.model.variants import CONTEXTS, Context

Units = Mapping[str, NDArray[np.generic]]


_SETUP_WORDS = ("pack", "place", "shape", "align", "warps", "context", "steps", "fusion", "padding", "inputs")


class TokenError(ValueError):
    """A replay token that cannot be read, or belongs to another case; the message says which part."""


@dataclass(frozen=True)
class Replay:
    """A token's meaning. inputs: for each input the units of one pack, none for whole kernels, which have a set."""

    setup: Setup
    place: int
    inputs: Mapping[str, NDArray[np.generic]]
    input_set: str = ""

    def fill(self, case: Case) -> dict[str, NDArray[np.generic]]:
        """Inputs of the setup's shape in which the pack repeats."""
        size = int(np.prod(self.setup.shape))
        return {n: np.resize(self.inputs[n], size).reshape(self.setup.shape) for n in case.inputs}


def token(setup: Setup, inputs: Units, index: int, input_set: str = "") -> str:
    """The token for the pack that holds unit number `index` of the inputs."""
    head = {
        "pack": setup.pack,
        "place": index % setup.pack,
        "shape": setup.shape_text.replace(",", ";") or "1",
        "align": setup.alignment,
        "warps": setup.num_warps,
        "context": setup.context,
        "steps": setup.steps,
        "fusion": int(setup.fusion),
    }
    if setup.padding is not None:
        head["padding"] = setup.padding
    if setup.sizes:
        head["inputs"] = input_set
        return ",".join(f"{k}={v}" for k, v in head.items())
    first = index - index % setup.pack
    words = []
    for name, units in inputs.items():
        flat = np.asarray(units).reshape(-1)
        # A pack that the end of the data cuts off is completed from the beginning, as the replay's repeats will be.
        chosen = np.take(flat, range(first, first + setup.pack), mode="wrap")
        width = 2 * flat.dtype.itemsize
        words.append(f"{_word(name)}=" + ":".join(f"{int(u) & ((1 << 4 * width) - 1):0{width}x}" for u in chosen))
    return ",".join([*(f"{k}={v}" for k, v in head.items()), *words])


def _word(name: str) -> str:
    """An input's name in a token, told from the words for the setup."""
    return f"input.{name}" if name in _SETUP_WORDS else name


def parse(text: str, case: Case) -> Replay:
    """The meaning of a token for a case. Raises TokenError."""
    try:
        words = dict(word.split("=", 1) for word in text.split(","))
    except ValueError:
        raise TokenError(f"{text!r} is no replay token: it consists of name=value, separated by commas") from None
    try:
        setup = Setup(
            pack=int(words.pop("pack")),
            alignment=int(words.pop("align", "16")),
            num_warps=int(words.pop("warps", "4")),
            context=_context(words.pop("context", "straight")),
            steps=int(words.pop("steps", "1")),
            fusion=words.pop("fusion", "0") == "1",
            padding=int(words.pop("padding")) if "padding" in words else None,
        )
        place = int(words.pop("place", "0"))
        shape = words.pop("shape", "1")
        if "=" in shape:
            sizes = {k: int(v) for k, v in (part.split("=") for part in shape.split(";"))}
            return Replay(replace(setup, sizes=sizes), place, {}, words.pop("inputs"))
        setup = replace(setup, shape=tuple(int(n) for n in shape.split("x")))
    except KeyError as e:
        raise TokenError(f"replay token {text!r}: {e} is missing") from None
    except ValueError as e:
        raise TokenError(f"replay token {text!r}: {e}") from None
    if min(setup.pack, setup.steps, *(setup.shape or (1,))) < 1:
        raise TokenError(f"replay token {text!r}: pack, steps and shape are at least 1")
    words = {name.removeprefix("input."): word for name, word in words.items()}
    unknown = set(words) - set(case.inputs)
    missing = set(case.inputs) - set(words)
    if unknown or missing:
        raise TokenError(
            f"replay token {text!r}: the case's inputs are {', '.join(case.inputs) or 'none'}; "
            f"the token gives {', '.join(sorted(words)) or 'none'}"
        )
    return Replay(setup, place, {n: _units(case, n, words[n], setup.pack) for n in case.inputs})


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
