"""A random walk over the modifiers of all forms: the emulator and ptxas accept and refuse the same instructions.

    python -m tests.support.emulator.legality_campaign --lines 20000 --seed 1 [--kernels] [--targets sm_80,sm_107a]
    [--opcodes cvt]

A walk begins at a legal spelling of a random form. Each step adds, removes, replaces or moves one modifier; the words
are those of the opcode, and of all other opcodes. It goes on from instructions that are refused as well, so that it
meets forms that no table lists. What the two disagree on is printed, one line of each opcode and reason with the number
of its kind, both ways: what ptxas accepts and the emulator refuses, and the reverse. The exit status is 1 if there is
any.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import ptxdiff.emulator.kernel.run  # noqa: F401  the machine's own instructions
from ptxdiff.emulator.isa.forms import FORMS, Bound, Form
from ptxdiff.emulator.text.types import TYPES
from tests.support.emulator import legality

STEPS = 6
"""Steps of one walk."""


@cache
def vocabulary(opcode: str) -> tuple[str, ...]:
    """The modifiers of an opcode's forms."""
    return tuple(dict.fromkeys(c for f in FORMS[opcode] for g in f.groups for c in g.choices))


@cache
def everywhere() -> tuple[str, ...]:
    """The modifiers of all opcodes, each once."""
    return tuple(dict.fromkeys(word for opcode in FORMS for word in vocabulary(opcode)))


@dataclass(frozen=True)
class Spelled:
    """A place of a walk: a form's spelling, its modifiers now, and their places in that spelling (-1: new)."""

    bound: Bound
    words: tuple[str, ...]
    origins: tuple[int, ...]

    @classmethod
    def of(cls, bound: Bound) -> Spelled:
        """The beginning of a walk."""
        words = tuple(c for c in bound.chosen if c)
        return cls(bound, words, tuple(range(len(words))))

    def line(self) -> str:
        """The instruction, with registers of the widths that its types ask for."""
        begun = [c for c in self.bound.chosen if c]
        changed = {begun[o]: w for w, o in zip(self.words, self.origins, strict=True) if o >= 0 and begun[o] != w}
        kinds = {old: new for old, new in changed.items() if old in TYPES and new in TYPES}
        spelling = ".".join([self.bound.form.opcode, *self.words])
        text = legality.written(self.bound, spelling)
        for number, spec in enumerate(self.bound.form.operands):
            kind = self.bound.type_of(spec)
            word = next(
                (w for w in kinds if spec.type.removeprefix("bits ").removeprefix("wide ") in _groups(self.bound, w)),
                "",
            )
            if not word or spec.constant:
                continue
            width = TYPES[kinds[word]].width * (2 if "wide " in spec.type else 1)
            new = "%pred" if TYPES[kinds[word]].kind == "pred" else f"%b{min(width, 64)}"
            old = "%pred" if kind.kind == "pred" else f"%b{kind.width}"
            text = text.replace(f"{old}_{number}", f"{new}_{number}")
        return text


def _groups(bound: Bound, word: str) -> set[str]:
    """The names under which a form's operands refer to a type that was chosen."""
    return {g.name for g, c in zip(bound.form.groups, bound.chosen, strict=True) if c == word} | {word}


def stepped(draw: random.Random, at: Spelled) -> Spelled:
    """The walk's next place: one modifier more, less, another, or elsewhere."""
    words, origins = list(at.words), list(at.origins)
    kind = draw.choice(("add", "add", "remove", "replace", "replace", "replace", "move"))
    if kind == "add" or not words:
        place = draw.randrange(len(words) + 1)
        words.insert(place, _word(draw, at))
        origins.insert(place, -1)
    elif kind == "remove":
        place = draw.randrange(len(words))
        del words[place], origins[place]
    elif kind == "replace":
        place = draw.randrange(len(words))
        types = [w for w in vocabulary(at.bound.form.opcode) if w in TYPES] if words[place] in TYPES else []
        words[place] = draw.choice(types) if types and draw.random() < 0.8 else _word(draw, at)
    elif len(words) > 1:
        place, to = draw.sample(range(len(words)), 2)
        words.insert(to, words.pop(place))
        origins.insert(to, origins.pop(place))
    return Spelled(at.bound, tuple(words), tuple(origins))


def _word(draw: random.Random, at: Spelled) -> str:
    """A modifier: mostly of the same opcode."""
    return draw.choice(vocabulary(at.bound.form.opcode) if draw.random() < 0.8 else everywhere()) or "rn"


def lines(seed: str, opcodes: Sequence[str] = ()) -> Iterator[str]:
    """Instructions of endless walks, the same for one seed."""
    draw = random.Random(seed)
    forms: list[Form] = [f for f in legality.scalar_forms() if not opcodes or f.opcode in opcodes]
    named = sorted({f.opcode for f in forms})
    while True:
        opcode = draw.choice(named)  # each as often, however many forms it has
        form = draw.choice([f for f in forms if f.opcode == opcode])
        at = Spelled.of(draw.choice(_few(form)))
        for _ in range(draw.randrange(1, STEPS)):
            at = stepped(draw, at)
            if vocabulary(opcode):
                yield at.line()


@cache
def _few(form: Form) -> list[Bound]:
    return [bound for bound, _ in zip(form.spellings(), range(500), strict=False)]


_FOUR = "{%b32_0, %b32_1, %b32_2, %b32_3}"
OF_KERNELS = (
    "ld.global.b32 %b32_0, [%b64_7];", "ld.shared.v2.b64 {%b64_0, %b64_1}, [%b64_7];",
    "ld.volatile.u16 %b16_0, [%b64_7];", f"ld.global.nc.L1::no_allocate.v4.f32 {_FOUR}, [%b64_7];",
    "ld.relaxed.gpu.global.u64 %b64_0, [%b64_7];", "ld.acquire.sys.b32 %b32_0, [%b64_7];",
    "ldu.global.b32 %b32_0, [%b64_7];", "ld.local.cs.s8 %b16_0, [%b64_7];",
    "ld.global.L2::cache_hint.b32 %b32_0, [%b64_7], %b64_6;", "ld.mmio.relaxed.sys.global.b32 %b32_0, [%b64_7];",
    "st.global.b32 [%b64_7], %b32_0;", f"st.shared.v4.b32 [%b64_7], {_FOUR};",
    "st.release.cta.shared.u32 [%b64_7], %b32_0;", "st.weak.global.wt.f64 [%b64_7], %b64_0;",
    "st.global.L1::evict_last.L2::cache_hint.b64 [%b64_7], %b64_0, %b64_6;",
    "atom.global.add.u32 %b32_0, [%b64_7], %b32_1;", "atom.acq_rel.gpu.cas.b64 %b64_0, [%b64_7], %b64_1, %b64_2;",
    "atom.shared.min.s64 %b64_0, [%b64_7], %b64_1;", "atom.add.noftz.f16x2 %b32_0, [%b64_7], %b32_1;",
    "atom.relaxed.cta.global.exch.b32 %b32_0, [%b64_7], %b32_1;", "red.global.add.f32 [%b64_7], %b32_1;",
    "red.release.sys.shared.and.b32 [%b64_7], %b32_1;", "red.relaxed.gpu.max.u64 [%b64_7], %b64_1;",
    "prefetch.global.L2 [%b64_7];", "prefetchu.L1 [%b64_7];", "fence.acq_rel.gpu;", "fence.proxy.async.global;",
    "fence.sc.cta;", "membar.gl;", "bar.sync 0;", "bar.sync 1, 64;", "bar.arrive 1, 64;", "barrier.sync.aligned 0;",
    "barrier.arrive 1, 64;", "bar.red.popc.u32 %b32_0, 0, %pred_1;", "bar.red.and.pred %pred_0, 1, %pred_1;",
    "bar.warp.sync -1;", "shfl.sync.bfly.b32 %b32_0, %b32_1, 1, 31, -1;", "vote.sync.any.pred %pred_0, %pred_1, -1;",
    "vote.sync.ballot.b32 %b32_0, %pred_1, -1;", "match.any.sync.b32 %b32_0, %b32_1, -1;", "activemask.b32 %b32_0;",
    "match.all.sync.b64 %b32_0|%pred_0, %b64_1, -1;", "redux.sync.add.u32 %b32_0, %b32_1, -1;",
    "elect.sync %b32_0|%pred_0, -1;", "mbarrier.init.shared.b64 [%b64_7], 1;", "mbarrier.inval.shared.b64 [%b64_7];",
    "mbarrier.arrive.shared.b64 %b64_0, [%b64_7];", "mbarrier.arrive.noComplete.shared.b64 %b64_0, [%b64_7], 1;",
    "mbarrier.arrive.expect_tx.shared.b64 %b64_0, [%b64_7], 16;",
    "mbarrier.test_wait.shared.b64 %pred_0, [%b64_7], %b64_1;",
    "mbarrier.try_wait.parity.shared.b64 %pred_0, [%b64_7], %b32_1;", "mbarrier.pending_count.b64 %b32_0, %b64_1;",
    "mbarrier.expect_tx.relaxed.cta.shared.b64 [%b64_7], 16;", "cp.async.ca.shared.global [%b64_6], [%b64_7], 4;",
    "cp.async.cg.shared.global.L2::128B [%b64_6], [%b64_7], 16;", "cp.async.commit_group;", "cp.async.wait_group 1;",
    "cp.async.wait_all;", "cp.async.mbarrier.arrive.noinc.shared.b64 [%b64_7];", "isspacep.global %pred_0, %b64_1;",
    "cvta.global.u64 %b64_0, %b64_1;", "cvta.to.shared.u64 %b64_0, %b64_1;", "nanosleep.u32 1;", "pmevent 1;",
    "createpolicy.fractional.L2::evict_last.b64 %b64_0;", "mapa.u64 %b64_0, %b64_1, %b32_2;",
    "getctarank.u64 %b32_0, %b64_1;", "griddepcontrol.wait;", "mov.b64 %b64_0, {%b32_0, %b32_1};",
    "mov.u32 %b32_0, %b32_1;", f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {_FOUR}, [%b64_7];",
    f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%b64_7], {_FOUR};",
    "movmatrix.sync.aligned.m8n8.trans.b16 %b32_0, %b32_1;", "trap;", "exit;",
)  # fmt: skip
"""A legal line of each shape of operands of the instructions that only whole kernels have."""


def kernel_lines(seed: str, opcodes: Sequence[str] = ()) -> Iterator[str]:
    """The same for instructions of whole kernels: registers get the width of a type that takes another's place."""
    draw = random.Random(seed)
    begun = [line for line in OF_KERNELS if not opcodes or line.split(".")[0] in opcodes]
    while begun:
        spelling, _, rest = draw.choice(begun).removesuffix(";").partition(" ")
        opcode, *words = spelling.split(".")
        for _ in range(draw.randrange(1, STEPS)):
            kind, place = draw.choice(("add", "remove", "replace", "replace", "move")), draw.randrange(len(words) + 1)
            own = vocabulary(opcode) or everywhere()
            word = draw.choice(own if draw.random() < 0.8 else everywhere())
            if kind == "add" or place == len(words):
                words.insert(place, word)
            elif kind == "remove":
                del words[place]
            elif kind == "move":
                words.insert(draw.randrange(len(words)), words.pop(place))
            elif words[place] in TYPES and (types := [w for w in own if w in TYPES]):
                old, words[place] = words[place], draw.choice(types)
                rest = rest.replace(
                    f"%b{max(TYPES[old].width, 16)}_", f"%b{min(max(TYPES[words[place]].width, 16), 64)}_"
                )
                rest = rest.replace("[%b32_7]", "[%b64_7]").replace("[%b16_7]", "[%b64_7]")
            else:
                words[place] = word
            if opcode != "st" or "param" not in "".join(words):  # arguments of calls, which have tests of their own
                yield ".".join([opcode, *words]) + (f" {rest};" if rest else ";")


def walked(seed: str, count: int, opcodes: Sequence[str] = (), kernels: bool = False) -> list[str]:
    """The first `count` different instructions of the walks: of asm alone, or of whole kernels."""
    found: dict[str, None] = {}
    for line in (kernel_lines if kernels else lines)(seed, opcodes):
        found[line] = None
        if len(found) == count:
            break
    return list(found)


_NOT_MODELLED = re.compile(
    r"^(?:bar|barrier)\b.*\.red\b|\.mmio\b|\.pending_count\b|\.noComplete\b|^cp\.async\.mbarrier\b|^ldmatrix.*\.(?:row|col)\b"
    r"|^(?:mapa|getctarank)\.[us]32\b|^bar(?:\.cta)?\.(?:arrive|sync)\.any\b"
)
"""What the emulator refuses although ptxas accepts it: instructions without a definition here, generic addresses of 32
bits, and `bar.arrive.any`, which the ISA does not have."""
_OLDER_PTXAS = "Modifier '.volatile' cannot be applied to '.local' space"
"""What ptxas 12.9 refuses and 13.4 does not."""


def disagreements(made: Sequence[str], target: str, kernels: bool = False) -> list[str]:
    """What the emulator and ptxas disagree on, apart from instructions that are known to be missing."""
    found = legality.disagreements(made, target, not kernels)
    found = [d for d in found if _OLDER_PTXAS not in d]
    return [d for d in found if not ("emulate refuses" in d and _NOT_MODELLED.search(d.split("  ")[1]))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--lines", type=int, default=20000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--targets", default="sm_80,sm_90a,sm_107a")
    parser.add_argument("--opcodes", default="")
    parser.add_argument("--kernels", action="store_true", help="instructions of whole kernels")
    args = parser.parse_args(arguments)
    made = walked(args.seed, args.lines, [o for o in args.opcodes.split(",") if o], args.kernels)
    wrong = 0
    for target in args.targets.split(","):
        found = disagreements(made, target, args.kernels)
        wrong += len(found)
        print(f"{target}: {len(made):,} instructions; {legality.summary(found, 200)}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
