"""Expected failures: known faults that a case declares, each with the diagnosis that must explain it."""

from __future__ import annotations

from dataclasses import replace

from ptxdiff.model.variants import Context, ExpectedFailure, PtxasFailure
from ptxdiff.records import DECLARED, PTXAS, Result, names_assembler


def settle(results: list[Result], expected: ExpectedFailure | None, label: str, *, whole: bool = True) -> None:
    """Mark the expected failures among an item's results; fail an item that passes where it should have failed.

    A failure with another diagnosis stays a failure. `label` names the item. whole: whether the results are of the
    whole plan; else inputs that were left out may be those that fail, so that a pass contradicts nothing.
    """
    if not whole:
        before = list(results)
        settle(results, expected, label)
        results[:] = [old if new.verdict != old.verdict else new for old, new in zip(before, results, strict=True)]
        return
    if isinstance(expected, PtxasFailure):
        for name, ends in expected.assemblers.items():
            _settle_assembled(results, expected, name, ends, label)
        return
    for context in expected.contexts if expected else ():
        assert expected is not None
        _settle(results, expected, context, label)


def _settle(results: list[Result], expected: ExpectedFailure, context: Context, label: str) -> None:
    concerned = [
        k
        for k, r in enumerate(results)
        if r.key.context == context and r.verdict in ("pass", "fail") and (r.total or r.diagnosis == expected.diagnosis)
    ]
    for k in concerned:
        if results[k].verdict == "fail" and results[k].diagnosis == expected.diagnosis:
            results[k] = replace(results[k], expected_failure=True)
    if context == "shared" and not concerned:
        concerned = _proved_right(results)
    if concerned and not any(results[k].expected_failure for k in concerned):
        last = results[concerned[-1]]
        text = f"expected to fail in the {context} context ({expected.diagnosis}) and did not"
        if last.verdict == "pass":
            message = f"{last.key.case}::{label}: {text}"
            results[concerned[-1]] = replace(last, verdict="fail", words=text, message=message)


def _settle_assembled(results: list[Result], expected: PtxasFailure, name: str, ends: str, label: str) -> None:
    """Settle the results of an assembler with a known fault. For wrong bits, only results that were run count."""
    wrong = ends == "wrong"
    concerned = [
        k
        for k, r in enumerate(results)
        if r.ptxas and names_assembler(name, r.ptxas) and r.key.context in expected.contexts
        and r.verdict in ("pass", "fail") and (r.total > 0 or not wrong)
    ]  # fmt: skip
    for k in concerned:
        r = results[k]
        if r.verdict == "fail" and r.diagnosis == PTXAS and (r.total > 0) == wrong:
            results[k] = replace(r, expected_failure=True)
    last = results[concerned[-1]] if concerned else None
    if last is not None and last.verdict == "pass" and not any(results[k].expected_failure for k in concerned):
        text = f"{last.ptxas} was known as {name} to be at fault ({ends}) and is not; take it out of assemblers="
        results[concerned[-1]] = replace(last, verdict="fail", words=text, message=f"{last.key.case}::{label}: {text}")


def settle_declared(results: list[Result], why: str, label: str) -> None:
    """Mark results with other bits on a target for which the case declares them; fail an item that gives the right
    bits.

    Only wrong bits in straight runs are excused, never an undefined bit, a stray write or another finding. A pass on a
    model does not show which bits hardware gives.
    """
    if not why:
        return
    concerned = [k for k, r in enumerate(results) if r.key.context == "straight" and r.total]
    for k in concerned:
        r = results[k]
        if r.verdict == "fail" and r.different and not r.findings:
            text = f"on {r.key.target}: {why} ({r.words})"
            results[k] = replace(r, expected_failure=True, diagnosis=DECLARED, words=text)
    judged = [k for k in concerned if results[k].verdict == "pass" and results[k].evidence != "model"]
    if judged and not any(results[k].diagnosis == DECLARED for k in concerned):
        last = results[judged[-1]]
        text = f"declared to give other bits on {last.key.target} ({why}) and did not; take it out of differs="
        message = f"{last.key.case}::{label}: {text}"
        results[judged[-1]] = replace(last, verdict="fail", words=text, message=message)


def _proved_right(results: list[Result]) -> list[int]:
    """Results of asm that the emulator need not run with shared registers, because its text proves that sharing is
    harmless."""
    executed = [k for k, r in enumerate(results) if r.key.backend == "emulator" and r.total]
    return executed if all(r.verdict == "pass" for r in results) else []
