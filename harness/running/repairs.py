"""A change of one word of asm that makes all its wrong results right, found by running the asm with it.

Nothing is inferred from the difference of the bits: a change is named only if the emulator computes what is expected
with it, on every input of the set. It is a place to look at, and decides no verdict. Asm in a Triton function is
changed in the kernel's PTX, wherever the compiler put it. A module that a case gives as PTX is changed itself.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.sets import within
from ptxdiff.jobs import Job
from ptxdiff.judging.judge import Judgement, passes
from ptxdiff.judging.likeness import EXCHANGED
from ptxdiff.model.arguments import format_of
from ptxdiff.model.derive import DerivationError, asm_form
from ptxdiff.model.dialect import AsmCall
from ptxdiff.model.match import DomainError
from ptxdiff.model.policies import Policies
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.variants import AsmVariant, CaseError, KernelVariant, PlainVariant, PtxVariant

_LEAST = 16
"""Fewer different inputs with wrong results than this fit too many changes: a replay, for example, has one."""
_SOME = 64
"""Inputs on which every change is tried first, the wrong ones before others; only what passes there runs on all."""
_MOST = 256
"""Changes that are tried for a variant."""
_LEAST_BITS = 64
"""Wrong results of a whole kernel with fewer bits than this, all together, fit too many changes."""
_MOST_IN_KERNELS = 96
"""Changes that are tried for a whole kernel, which runs anew for each."""
_MOST_LINES = 4000
"""Lines of PTX of a kernel that is run with changes."""
_SECONDS = 2.0
"""The longest run of a kernel with a change."""


@dataclass(frozen=True)
class Repair:
    """A part of a text, from `start` up to `end`, and what to write instead; `words` shows both."""

    start: int
    end: int
    new: str
    words: str

    def applied(self, text: str) -> str:
        """The text with the change."""
        return text[: self.start] + self.new + text[self.end :]


class Repairs:
    """The changes for one item. They are searched once for each text, and tried again for each further result."""

    def __init__(self, policy: Policies) -> None:
        self.policy = policy
        self._known: dict[int, Repair | None] = {}

    def cause(self, job: Job, judgement: Judgement) -> str:
        """The change in words, if one makes this result right; "" otherwise."""
        variant, setup = job.variant, job.setup
        if isinstance(variant, KernelVariant | PlainVariant | PtxVariant) and setup.context == "straight":
            return self._in_kernel(job, judgement)
        if not isinstance(variant, AsmVariant) or setup.context != "straight":
            return ""
        if not job.case.elementwise or not job.inputs or judgement.different < _LEAST:
            return ""
        wrong = _wrong(job, judgement)
        if _different(job, wrong) < _LEAST:
            return ""
        pack = 1 if variant.derived_packs else setup.pack
        text = variant.texts[pack].text
        searched = pack not in self._known
        if searched:
            some = _failing_first(wrong)
            self._known[pack] = next(
                (
                    repair
                    for repair in itertools.islice(repairs(text), _MOST)
                    if self._right(job, pack, repair, some) and self._right(job, pack, repair, None)
                ),
                None,
            )
        repair = self._known[pack]
        if repair is not None and (searched or self._right(job, pack, repair, None)):
            return f"all results are right with {repair.words}"
        return _depends_on_other_places(job, variant, wrong)

    def confirmed(self, job: Job, cause: str) -> str:
        """A cause that judging found; "" if it advises to swap two operands, and no run shows that this helps.

        A reference with its inputs exchanged may give the bits of another mistake, such as a missing modifier. Only
        setups without a context are run.
        """
        variant = job.variant
        names = next((p for p in itertools.permutations(job.case.inputs, 2) if cause == EXCHANGED.format(*p)), None)
        if names is None:
            return cause
        if job.setup.context != "straight":
            return ""
        one, other = names
        swapped = {**job.inputs, one: job.inputs[other], other: job.inputs[one]}
        if not isinstance(variant, AsmVariant):
            return cause if self._kernel_gives(job, swapped) else ""
        units, given = ({n: np.asarray(u).reshape(-1) for n, u in side.items()} for side in (job.inputs, swapped))
        return cause if self._gives(job, variant, given, units) else ""

    def _in_kernel(self, job: Job, judgement: Judgement) -> str:
        from ptxdiff.backends.compiled import CompiledKernel, compile_job

        kernel = compile_job(job)
        if not isinstance(kernel, CompiledKernel) or not judgement.compared:
            return ""
        made = kernel.compilation
        wrong = sum(int(output.failing.sum()) * output.fmt.code_bits for output in judgement.compared.values())
        if wrong < _LEAST_BITS or made.ptx.count("\n") > _MOST_LINES:
            return ""
        given = isinstance(job.variant, PtxVariant)
        key = str(job.path), job.case_name, job.variant_name, made.ptx if given else made.asm
        if key not in _KNOWN_IN_KERNELS:
            some = itertools.islice(_module_changes(made.ptx) if given else _changes(made.asm), _MOST_IN_KERNELS)
            found = next((change for change in some if self._right_in_kernel(job, kernel, *change)), None)
            _KNOWN_IN_KERNELS[key] = found
        elif (found := _KNOWN_IN_KERNELS[key]) and not self._right_in_kernel(job, kernel, *found):
            return ""
        if found is None:
            return ""
        call, repair = found
        where = " of the PTX" if call is None else " of the asm" + (f" at {call.place}" if call.place else "")
        return f"all results are right with {repair.words}{where}"

    def _right_in_kernel(self, job: Job, kernel: Any, call: AsmCall | None, repair: Repair) -> bool:
        """Whether all results are right with a change of every copy of an asm block; None: of the whole text."""
        from ptxdiff.backends.compiled import outputs_of_text
        from ptxdiff.emulator import PtxError

        whole = kernel.compilation.ptx
        ptx = repair.applied(whole) if call is None else replaced(whole, call.text, repair.applied(call.text))
        if ptx == whole:
            return False
        try:
            outputs = outputs_of_text(job, kernel, ptx, _SECONDS)
            return passes(job.case, self.policy, job.inputs, outputs, job.setup.pack)
        except (PtxError, ReferenceFault, DomainError, ValueError):
            return False

    def _kernel_gives(self, job: Job, given: Mapping[str, Any]) -> bool:
        """Whether the kernel of a Triton function gives for `given` all that is expected of the job's inputs."""
        from ptxdiff.backends.compiled import CompiledKernel, compile_job, outputs_of_text
        from ptxdiff.emulator import PtxError

        kernel = compile_job(job)
        if not isinstance(kernel, CompiledKernel):
            return False
        try:
            outputs = outputs_of_text(replace(job, inputs=given), kernel, kernel.compilation.ptx, _SECONDS)
            return passes(job.case, self.policy, job.inputs, outputs, job.setup.pack)
        except (PtxError, ReferenceFault, DomainError, ValueError):
            return False

    def _right(self, job: Job, pack: int, repair: Repair, chosen: Any) -> bool:
        """Whether all results are right with a change. chosen: numbers of the inputs; None for all."""
        variant = job.variant
        assert isinstance(variant, AsmVariant)
        given = variant.texts[pack]
        changed = replace(variant, texts={**variant.texts, pack: replace(given, text=repair.applied(given.text))})
        units = {n: np.asarray(u).reshape(-1) for n, u in job.inputs.items()}
        units = units if chosen is None else {n: u[chosen] for n, u in units.items()}
        return self._gives(job, changed, units, units)

    def _gives(self, job: Job, variant: AsmVariant, given: Mapping[str, Any], units: Mapping[str, Any]) -> bool:
        """Whether a variant gives for `given` all that is expected of `units`."""
        from ptxdiff.backends.snippet import run_once
        from ptxdiff.emulator import PtxError

        trial = replace(job, variant=variant, setup=replace(job.setup, padding=None))
        try:
            outputs = run_once(trial, asm_form(job.case, variant, job.setup.pack), given, {})
            return passes(job.case, self.policy, units, outputs, job.setup.pack)
        except (PtxError, CaseError, DerivationError, ReferenceFault, DomainError, ValueError):
            return False


Change = tuple[AsmCall | None, Repair]
"""A change of a block of asm in a kernel; without a block, of the whole module."""
_KNOWN_IN_KERNELS: dict[tuple[str, str, str, str | tuple[AsmCall, ...]], Change | None] = {}
"""What made a variant with these blocks of asm, or this module, right, so that it is searched once and not for each
target. Another case expects other results of the same kernel."""


def _changes(calls: Iterable[AsmCall]) -> Iterator[Change]:
    """Changes of each block of a kernel, one of each block by turns."""
    turns = [
        zip(itertools.repeat(call), itertools.chain(_operands_exchanged(call.text), repairs(call.text)), strict=False)
        for call in dict.fromkeys(calls)
    ]
    for round_ in itertools.zip_longest(*turns):
        yield from filter(None, round_)


def _module_changes(text: str) -> Iterator[Change]:
    """Changes of a module. It has many statements, so those of constants come by turns with all others."""
    others, constants = _of_words(text), _of_constants(text)
    for both in itertools.zip_longest(constants, others):
        yield from ((None, repair) for repair in both if repair is not None)


def _operands_exchanged(text: str) -> Iterator[Repair]:
    """Two operands of the block exchanged wherever they stand, as if its arguments were in another order."""
    names = sorted(set(_OPERAND.findall(text)), key=int)
    for one, other in itertools.combinations(names, 2):
        both = {one: other, other: one}
        new = _OPERAND.sub(lambda m, both=both: f"${both.get(m[1], m[1])}", text)  # type: ignore[misc]
        yield Repair(0, len(text), new, f"operands ${one} and ${other} exchanged")


_OPERAND = re.compile(r"\$(\d+)")


def replaced(ptx: str, old: str, new: str) -> str:
    """PTX in which every block of inline asm that a compiler made of the text `old` is made of `new`.

    Both have operands as `$0`. The operands in the PTX stay. Texts with other uses of `$` are found nowhere.
    """
    numbers: list[str] = []

    def captured(part: str) -> str:
        if not (match := _OPERAND.fullmatch(part)):
            return r"\s+".join(map(re.escape, re.split(r"\s+", part)))
        if match[1] in numbers:
            return f"(?P=operand{match[1]})"
        numbers.append(match[1])
        return rf"(?P<operand{match[1]}>[%\w.+-]+?)"

    pattern = "".join(captured(part) for part in re.split(r"(\$\d+)", old.strip()))
    block = re.compile(rf"(?P<begin>// begin inline asm\s+){pattern}(?P<end>\s+// end inline asm)")

    def rewritten(match: re.Match[str]) -> str:
        return match["begin"] + _OPERAND.sub(lambda m: match[f"operand{m[1]}"], new.strip()) + match["end"]

    return block.sub(rewritten, ptx)


def _wrong(job: Job, judgement: Judgement) -> NDArray[np.bool_]:
    """For each input, whether a result is wrong."""
    count = min(np.asarray(u).size for u in job.inputs.values())
    wrong = np.zeros(count, dtype=bool)
    for name, output in judgement.compared.items():
        per = format_of(job.case.outputs[name]).codes_per_unit if name in job.case.outputs else 0
        if per and output.failing.size == count * per:
            wrong |= output.failing.reshape(count, per).any(axis=1)
    return wrong


_PACKS = 64
"""Packs, those with wrong results first, in which inputs of other places are changed."""
_MOST_RUNS = 64
"""Pairs of an input and a place that are changed."""


def _depends_on_other_places(job: Job, variant: AsmVariant, wrong: NDArray[np.bool_]) -> str:
    """The cause if the result of a place in a pack changes with an input of another place; "" if none does."""
    from ptxdiff.backends.snippet import run_once
    from ptxdiff.emulator import PtxError

    pack = job.setup.pack
    whole = wrong.size // pack
    if pack < 2 or not whole:
        return ""
    order = np.argsort(~wrong[: whole * pack].reshape(whole, pack).any(axis=1), kind="stable")[:_PACKS]
    given = {n: np.asarray(u).reshape(-1)[: whole * pack].reshape(whole, pack)[order] for n, u in job.inputs.items()}
    alone = replace(job, setup=replace(job.setup, padding=None))
    rng = np.random.default_rng(0)

    def outputs(units: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        flat = {n: np.ascontiguousarray(u).reshape(-1) for n, u in units.items()}
        made = run_once(alone, asm_form(job.case, variant, pack), flat, {})
        return {n: np.asarray(u).reshape(-1, pack) for n, u in made.items()}

    try:
        expected = outputs(given)
        for name, place in itertools.islice(itertools.product(given, range(pack)), _MOST_RUNS):
            changed = given[name].copy()
            changed[:, place] = _changed(job, {n: u[:, place] for n, u in given.items()}, name, rng)
            for output, units in outputs({**given, name: changed}).items():
                bits = [u.view(f"u{u.itemsize}") for u in (np.ascontiguousarray(units), expected[output])]
                moved = [k for k in np.flatnonzero((bits[0] != bits[1]).any(axis=0)).tolist() if k != place]
                if moved:
                    return f"{output} of place {moved[0]} in a pack depends on {name} of place {place}"
    except (PtxError, CaseError, DerivationError, ValueError):
        pass
    return ""


def _changed(job: Job, units: dict[str, NDArray[Any]], name: str, rng: np.random.Generator) -> NDArray[Any]:
    """Other units of an input, or the same ones where the case's domain has no others beside the other inputs.

    units: those of all inputs in one place of each pack. Outside the domain, a carry may reach another place by right.
    """
    own = np.ascontiguousarray(units[name])
    bits = own.view(f"u{own.itemsize}")
    random = bits ^ rng.integers(1, np.iinfo(bits.dtype).max, len(bits), bits.dtype, endpoint=True)
    changed = own.copy()
    formats = {n: format_of(argument) for n, argument in job.case.inputs.items()}
    for other in (rng.permutation(own), random.view(own.dtype)):
        inside = within(job.case.domain, formats, {**units, name: other})
        changed[inside] = other[inside]
    return changed


def _different(job: Job, wrong: NDArray[np.bool_]) -> int:
    """The number of different inputs with wrong results."""
    bits = [np.ascontiguousarray(np.asarray(u).reshape(-1)[: wrong.size][wrong]) for u in job.inputs.values()]
    return len(set(zip(*(b.view(f"u{b.itemsize}").tolist() for b in bits), strict=True)))


def _failing_first(wrong: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Numbers of some inputs: half of them with wrong results, so far as there are so many."""
    parts = np.flatnonzero(wrong), np.flatnonzero(~wrong)
    return np.concatenate([p[np.linspace(0, p.size - 1, min(_SOME // 2, p.size)).astype(int)] for p in parts])


_ROUNDINGS = ("rn", "rz", "rm", "rp")
_ROUNDING = re.compile(r"\.(rn|rz|rm|rp)(?=\.)")
_FTZ = re.compile(r"\.ftz(?=\.)")
_STATEMENT = re.compile(r"(?P<opcode>[a-z]\w*)(?P<modifiers>(?:\.\w+)+)\s+(?P<operands>[^;{}\[\]]+?)\s*(?:;|$)", re.M)
_TAKES_FTZ = frozenset({"add", "sub", "mul", "fma", "mad", "min", "max", "abs", "neg", "setp", "ex2", "rcp", "sqrt"})
_SIGN = re.compile(r"(?<=\.)[us](?=(?:8|16|32|64)\b)")
_TYPE = re.compile(r"\.(f32|f16x2|f16)\b")
_INTEGER = re.compile(r"0[xX][0-9a-fA-F]+|\d+")
_GUARD = re.compile(r"@(!?)\s*(%?\w+)")
_REGISTER = re.compile(r"\$\d+|%?[A-Za-z_]\w*")
_OPCODES = (
    ("add", "sub"), ("addc", "add"), ("subc", "sub"), ("madc", "mad"), ("min", "max"), ("and", "or", "xor"),
    ("shl", "shr"), ("clz", "popc"), ("abs", "neg"), ("sin", "cos"), ("ex2", "lg2"), ("rcp", "sqrt", "rsqrt"),
    ("mul", "div"), ("div", "rem"),
)  # fmt: skip
_PARTS = (
    (".lo", ".hi"), (".lt", ".le", ".gt", ".ge", ".eq", ".ne"), (".l", ".r"), (".wrap", ".clamp"),
)  # fmt: skip
_PART = re.compile(r"\.[a-z]+(?=\.|$)")
_BITS = re.compile(r"\.[us](?=(?:16|32|64)\b)")
_CARRIES = frozenset({"add", "addc", "sub", "subc", "mad", "madc"})
"""Instructions that write the carry with `.cc`."""
_ROUND_TO_NEAREST = frozenset({"add", "sub", "mul"})
"""Instructions of floats that round to nearest if they do not say how."""


def repairs(text: str) -> Iterator[Repair]:
    """Changes of one word: rounding, `.ftz`, a type with or without sign, two sources exchanged, another opcode,
    `.lo` and `.hi`, a comparison, a carry, a predicate; and of a source another register, of a constant one more or
    less, two digits side by side exchanged, or one bit. The first change of each constant comes before the second of
    any."""
    yield from _of_words(text)
    for both in itertools.zip_longest(_of_constants(text), _of_registers(text)):
        yield from filter(None, both)


def _of_words(text: str) -> Iterator[Repair]:
    later: list[Repair] = []
    for match in _STATEMENT.finditer(text):
        line = _line(match)
        opcode, modifiers = match["opcode"], match["modifiers"]
        start = match.start("modifiers")
        for new in _modified(opcode, modifiers):
            change = f"{opcode}{new} instead of {opcode}{modifiers} on line {line}"
            yield Repair(start, match.end("modifiers"), new, change)
        start, names = match.start("operands"), _names(match)
        for i, j in itertools.combinations(range(1, len(names)), 2):
            if names[i] != names[j]:
                other = [*names]
                other[i], other[j] = names[j], names[i]
                change = f"{names[i]} and {names[j]} exchanged in {opcode}{modifiers} on line {line}"
                yield Repair(start, match.end("operands"), ", ".join(other), change)
        for new_opcode, new in _other_forms(opcode, modifiers):
            change = f"{new_opcode}{new} instead of {opcode}{modifiers} on line {line}"
            later.append(Repair(match.start("opcode"), match.end("modifiers"), new_opcode + new, change))
    yield from later
    for guard in _GUARD.finditer(text):
        new = f"@{guard[2]}" if guard[1] else f"@!{guard[2]}"
        line = text.count("\n", 0, guard.start()) + 1
        yield Repair(guard.start(), guard.end(), new, f"{new} instead of {guard[0]} on line {line}")


def _of_constants(text: str) -> Iterator[Repair]:
    constants = [
        _other_constants(match, names, k, _line(match))
        for match in _STATEMENT.finditer(text)
        for names in [_names(match)]
        for k in range(1, len(names))
        if _INTEGER.fullmatch(names[k])
    ]
    for turn in itertools.zip_longest(*constants):
        yield from filter(None, turn)


def _of_registers(text: str) -> Iterator[Repair]:
    """Each source of each statement replaced by the other names that stand in the text."""
    statements = [(match, _names(match)) for match in _STATEMENT.finditer(text)]
    known = list(dict.fromkeys(name for _, names in statements for name in names if _REGISTER.fullmatch(name)))
    for match, names in statements:
        for k in range(1, len(names)):
            for other in known if _REGISTER.fullmatch(names[k]) else ():
                if other != names[k]:
                    form = match["opcode"] + match["modifiers"]
                    change = f"{other} instead of {names[k]} in {form} on line {_line(match)}"
                    new = ", ".join([*names[:k], other, *names[k + 1 :]])
                    yield Repair(match.start("operands"), match.end("operands"), new, change)


def _line(match: re.Match[str]) -> int:
    """The number of the line on which a statement begins."""
    return match.string.count("\n", 0, match.start()) + 1


def _names(match: re.Match[str]) -> list[str]:
    return [operand.strip() for operand in match["operands"].split(",")]


def _other_constants(match: re.Match[str], names: list[str], k: int, line: int) -> Iterator[Repair]:
    """Changes of the constant that is operand `k` of a statement."""
    for constant in _beside(names[k]):
        change = f"{constant} instead of {names[k]} in {match['opcode']}{match['modifiers']} on line {line}"
        new = ", ".join([*names[:k], constant, *names[k + 1 :]])
        yield Repair(match.start("operands"), match.end("operands"), new, change)


def _modified(opcode: str, modifiers: str) -> Iterator[str]:
    if rounding := _ROUNDING.search(modifiers):
        for other in _ROUNDINGS:
            if other != rounding[1]:
                yield modifiers[: rounding.start()] + f".{other}" + modifiers[rounding.end() :]
    elif opcode in _ROUND_TO_NEAREST and _TYPE.search(modifiers):
        yield from (f".{other}{modifiers}" for other in _ROUNDINGS if other != "rn")
    if ftz := _FTZ.search(modifiers):
        yield modifiers[: ftz.start()] + modifiers[ftz.end() :]
    elif opcode in _TAKES_FTZ and (kind := _TYPE.search(modifiers)):
        yield modifiers[: kind.start()] + ".ftz" + modifiers[kind.start() :]
    for sign in _SIGN.finditer(modifiers):
        yield modifiers[: sign.start()] + {"u": "s", "s": "u"}[sign[0]] + modifiers[sign.end() :]


def _other_forms(opcode: str, modifiers: str) -> Iterator[tuple[str, str]]:
    """Forms of another opcode or with another part: what a slip of the pen, or of an index, makes of each other."""
    for group in _OPCODES:
        for other in group if opcode in group else ():
            if other == "shr":
                yield from ((other, modifiers.replace(".b", sign)) for sign in (".u", ".s"))
            elif other != opcode:
                yield other, _BITS.sub(".b", modifiers) if other == "shl" else modifiers
    for parts in _PARTS:
        for part in _PART.finditer(modifiers):
            for other in parts if part[0] in parts else ():
                if other != part[0]:
                    yield opcode, modifiers[: part.start()] + other + modifiers[part.end() :]
    if opcode in _CARRIES:
        without = modifiers.removeprefix(".cc") if modifiers.startswith(".cc") else f".cc{modifiers}"
        yield opcode, without


def _beside(constant: str) -> Iterator[str]:
    """The constant with one more and one less, with digits exchanged, and with one bit of 32 changed, the lowest
    first."""
    digits = len(constant) - 2 if constant.lower().startswith("0x") else 0
    value = int(constant, 16 if digits else 10)
    others = dict.fromkeys(
        [value + 1, max(value - 1, 0), *_exchanged_digits(value, digits), *(value ^ 1 << k for k in range(32))]
    )
    yield from (f"0x{other:0{digits}x}" if digits else str(other) for other in others if other != value)


def _exchanged_digits(value: int, digits: int) -> Iterator[int]:
    """A number of some hexadecimal digits with two digits side by side exchanged."""
    for k in range(0, 4 * (digits - 1), 4):
        different = (value >> k ^ value >> k + 4) & 15
        yield value ^ (different << k | different << k + 4)
