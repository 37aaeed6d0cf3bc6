"""The messages between the driver and the nodes, and the driver's checks of a node's reports.

A report must be about the item that was due, with its keys and its variant's definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ptxdiff.cluster.tasks import Misreported
from ptxdiff.model.identity.definition import INCOMPARABLE, what_changed
from ptxdiff.records import InRegisters, RecordError, Result, Timing, packed, sent, unpacked
from ptxdiff.running.assemblers import label_of
from ptxdiff.running.collection import VariantItem
from ptxdiff.running.item import fingerprint_of
from ptxdiff.triton.builds import label


@dataclass(frozen=True)
class NodeRun:
    """The options of a node's pytest session.

    ident: differs between runs. options: pytest's options of the driver. invoked: the folder in which the driver was
    started, relative to the project. targets: the GPU generations that the nodes have. parts: of what the batch's case
    file depends on, those that the driver's session decides (`ptxdiff.model.identity.dependencies`).
    """

    ident: str
    run_id: str
    options: Mapping[str, Any]
    invoked: str
    targets: tuple[str, ...]
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ItemReport:
    """The outcome of one item: pytest's reports, serialised; or words, which say why there are none."""

    nodeid: str
    reports: tuple[Mapping[str, Any], ...] = ()
    seconds: float = 0.0
    words: str = ""


def checked(found: Any, due: pytest.Item, node: str) -> ItemReport:
    """The report on an item, with the node in its records. Raises Misreported if it is about another item."""
    if not isinstance(found, ItemReport):
        raise Misreported(f"it sent {type(found).__name__} where a report on {due.nodeid} was due")
    if found.nodeid != due.nodeid or any(data.get("nodeid") != due.nodeid for data in found.reports):
        raise Misreported(f"it reported on {found.nodeid}, which it was not given; {due.nodeid} was due")
    if found.words:
        return found
    reports = tuple(_with_node(dict(data), due, node) for data in found.reports)
    if not reports:
        raise Misreported(f"it sent nothing on {due.nodeid}")
    if isinstance(due, VariantItem):
        _check_outcomes(reports, due)
    return replace(found, reports=reports)


def _check_outcomes(reports: Sequence[Mapping[str, Any]], due: VariantItem) -> None:
    """Raise Misreported where pytest's outcomes do not fit the results that came with them.

    An item that did not fail has a result, unless pytest skipped it, and none that fails.
    """
    if any(data["outcome"] == "failed" for data in reports):
        return
    results = [r for data in reports for r in _results(data)]
    bad = [r.verdict for r in results if r.verdict in ("fail", "error") and not r.expected_failure]
    skipped = any(data["outcome"] == "skipped" for data in reports)
    what = "was skipped" if skipped else "passed"
    if bad or (not results and not skipped):
        sends = f"a result with the verdict {bad[0]}" if bad else "no result"
        raise Misreported(f"it reported that {due.nodeid} {what}, but sent {sends}")


def _with_node(data: dict[str, Any], due: pytest.Item, node: str) -> dict[str, Any]:
    """A report whose records name their node. Raises Misreported for a record of another item."""
    if "ptxdiff_records" not in data:
        return data
    try:
        records = [r for r, _ in unpacked(data["ptxdiff_records"])]
    except (ValueError, RecordError) as error:
        raise Misreported(f"its records on {due.nodeid} cannot be read: {error}") from None
    for record in records:
        if isinstance(record, Result) and isinstance(due, VariantItem):
            _check(record, due)
    named = [replace(r, node=node) if isinstance(r, Result | Timing | InRegisters) else r for r in records]
    return data | {"ptxdiff_records": packed(map(sent, named))}


def _check(result: Result, due: VariantItem) -> None:
    item = due.item
    due_item = (item.loaded.name, item.variant_name, item.target, item.backend)
    if result.key.item != due_item:
        raise Misreported(f"its results on {due.nodeid} contain one of {result.key}")
    if difference := other_assembler(result, due):
        raise Misreported(f"{due.nodeid} was assembled {difference}")
    if result.key.compiler != (compiler := label(item.compiler)):
        there = result.key.compiler or "the installed Triton"
        raise Misreported(f"{due.nodeid} was compiled by {there}, instead of {compiler or 'the installed Triton'}")
    mine = fingerprint_of(item)
    # Leaves out parts that two processes cannot compare: their code is sent in a folder named by its contents' digest.
    both = {n: d for n, d in result.fingerprint.items() if not mine.get(n, "").startswith(INCOMPARABLE)}
    if result.fingerprint and (difference := what_changed(both, {n: d for n, d in mine.items() if n in both})):
        raise Misreported(f"{due.nodeid} has another definition there: {difference}")


def other_assembler(result: Result, due: VariantItem) -> str:
    """The assembler of a result, if the run did not choose it; "" if it did.

    A node may have another program at the same path, so its description is compared too.
    """
    origin = due.item.backend, due.item.target, due.item.compiler
    asked = {"" if chosen is None else chosen.label: label_of(chosen, *origin) for chosen in due.assemblers}
    if result.key.assembler not in asked and result.verdict != "not run":
        return f"by {result.key.assembler or 'the ptxas that Triton uses'}, which is not asked for"
    here = asked.get(result.key.assembler, "")
    return f"by {result.ptxas}, here by {here}" if here and result.ptxas not in ("", here) else ""


def _results(data: Mapping[str, Any]) -> list[Result]:
    return [r for r, _ in unpacked(data.get("ptxdiff_records", "")) if isinstance(r, Result)]
