"""The failure message, with everything that is needed to act on it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ptxdiff.judging.judge import Judgement
from ptxdiff.model.describe import ftz_words
from ptxdiff.model.policies import Policies
from ptxdiff.records import Key, Offender, Result
from ptxdiff.records.causes import cause_words

EVIDENCE_WORDS = {
    "hardware": "bits computed by the device",
    "confirmed": "bits computed by the emulator, with instructions that hardware has confirmed",
    "specification": "bits computed by the emulator from the specification, not confirmed on hardware",
    "model": "bits computed by the emulator, those of an approximate instruction not known to be this GPU's",
    "none": "nothing was executed",
}
INTERPRETED = "bits of machine code that ran on the CPU, instruction by instruction; no GPU has confirmed them"


def headline(key: Key, judgement: Judgement, findings: Sequence[str], diagnosis: str = "") -> str:
    """One line: the cause and the repair where they are known, how many elements differ, and in which ways."""
    where = f"{key.case}::{key.variant}[{key.target}-{key.backend}]"
    kinds = ", ".join(f"{name} {count}" for name, count in _kinds(judgement).items())
    if judgement.different:
        cause = (
            cause_words(diagnosis, findings)
            or _exchanged_places(judgement)
            or judgement.cause
            or "".join(findings[:1])
            or judgement.where
        )
        ways = "they are those expected in other places" if judgement.moved == judgement.different else kinds
        counts = f"{judgement.different} of {judgement.total} codes differ ({ways})"
        return f"{where}: {cause}; {counts}" if cause else f"{where}: {counts}"
    return f"{where}: {findings[0]}" if findings else f"{where}: nothing was compared"


_EXCHANGED = re.compile(r"place (\d+) of a pack holds the result of place (\d+)")


def _exchanged_places(judgement: Judgement) -> str:
    """The cause and the repair if every wrong code is the result of another place in its pack; "" otherwise.

    Only if the places hold each other's results. A place that has another's, which keeps its own, may be chance: abs
    for neg is so where a number stands beside its negation.
    """
    if judgement.classes.get("positional", 0) != judgement.different:
        return ""
    found = dict.fromkeys(m.groups() for note in judgement.notes if (m := _EXCHANGED.search(note)))
    if not found or {here for here, _ in found} != {there for _, there in found}:
        return ""
    moves = ", ".join(f"place {here} of a pack has the result of place {there}" for here, there in list(found)[:4])
    return f"results in other places, {moves}: swap the operands that fill them"


def _kinds(judgement: Judgement) -> dict[str, int]:
    """How many codes differ in which way; without sides if a piece was judged where its codes are not at hand."""
    whole = sum(judgement.kinds.values()) == sum(judgement.classes.values())
    return judgement.kinds if whole else judgement.classes


def message(
    result: Result,
    policy: Policies,
    judgement: Judgement,
    command: str,
    against: str,
    load: Sequence[str] = (),
    story: Sequence[str] = (),
) -> str:
    """The whole message.

    against: the expected result's source. command: the command that repeats the first offender's pack. load: lines of
    Python that load the arrays. story: lines that explain the diagnosis, if it needs more than a word.
    """
    key = result.key
    lines = [
        headline(key, judgement, result.findings, result.diagnosis),
        f"  run       pack {key.pack}, shape {key.shape}, alignment {key.alignment}, num_warps {key.num_warps}, "
        f"{key.context}, fusion {'on' if key.fusion else 'off'}, inputs {key.input_set}",
        f"  policy    {policy.describe_match()}; ftz {ftz_words(policy.ftz)}; NaN {policy.nan}",
        f"  expected  {against}",
        f"  evidence  {INTERPRETED if result.key.backend == 'sass' else EVIDENCE_WORDS[result.evidence]}",
    ]
    lines += [f"  finding   {text}" for text in result.findings]
    remarks = [result.weakest] if result.weakest else []
    remarks += [f"ptxas fused {text}" for text in result.fused.values()]
    lines += [f"  note      {text}" for text in (*judgement.notes, *result.notes, *remarks)]
    if story:
        lines += story
    elif result.diagnosis:
        lines.append(f"  diagnosis {result.diagnosis} (reproduced bit for bit by the emulator)")
    if result.contraction_open:
        lines.append("  note      ptxas may fuse a multiplication and an addition of this code")
    if judgement.offenders:
        lines += ["  first", *_offender_lines(judgement.offenders[0], key.pack)]
    worst = judgement.worst_failing
    if worst and judgement.offenders and worst.index != judgement.offenders[0].index:
        lines += ["  worst", *_offender_lines(worst, key.pack)]
    lines.append(f"  repeat    {command}")
    lines += [f"  {'load' if n == 0 else '':<10}{line}" for n, line in enumerate(load)]
    return "\n".join(lines)


def _at(offender: Offender) -> str:
    if len(offender.at) == 2:
        return f"row {offender.at[0]}, column {offender.at[1]} (code {offender.index})"
    if offender.at:
        return f"element [{', '.join(map(str, offender.at))}] (code {offender.index})"
    return f"code {offender.index}"


def _offender_lines(offender: Offender, pack: int) -> list[str]:
    names = [*offender.inputs, "expected", "got"]
    width = max(len(n) for n in names)
    position_text = f", place {offender.place} in its pack" if pack > 1 or offender.place else ""
    lines = [f"    output {offender.output}, {_at(offender)}{position_text}"]
    lines += [f"    {n:<{width}}  {b.bits}  {b.value}" for n, b in offender.inputs.items()]
    lines.append(f"    {'expected':<{width}}  {offender.expected.bits}  {offender.expected.value}")
    lines.append(f"    {'got':<{width}}  {offender.got.bits}  {offender.got.value}")
    kept = offender.difference == "flush to zero" and offender.got.value.lstrip("-") != "0.0"
    difference = "no flush to zero" if kept else offender.difference
    unit = "" if offender.difference == "value" else " ulp"  # for integers
    steps = "" if offender.ulp is None else f", {offender.ulp:+d}{unit}"
    lines.append(f"    {'class':<{width}}  {difference}{steps}")
    return lines
