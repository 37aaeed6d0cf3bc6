"""A baseline of digests: the results of a whole catalogue, small enough for git.

It has one file for each case file, with one line for each variant and backend: digests of its definition, and of the
parts that decide how it is judged. For each target a line has the verdict, the evidence, registers, a digest of the
compiled PTX, how many codes were compared, judged and left unchecked, and a short digest of the output bits for all
inputs that ran. Baselines of an older form lack the counts and the parts; they are read, and the gate says so.
Inputs are identified by a digest, so that bits are compared on equal inputs only; a run with other inputs is refused
until it is accepted. A baseline does not name the machine that made it, but Triton's version.

`condensed` turns a run into results of this kind, and `load` reads a baseline as such results, so that both go through
the same gate as full records.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ptxdiff.gating.baseline import AROUND, BaselineError, around, file_name, listed, refuse_deleted, refuse_strangers
from ptxdiff.gating.gate import (
    ACCEPTED,
    HELD,
    RUN,
    WHOLE_ITEM,
    Decision,
    Objection,
    Policy,
    gate,
    known,
    weakest,
    without_digests,
)
from ptxdiff.records import (
    EVIDENCE,
    VERDICTS,
    Block,
    Key,
    Result,
    Run,
    RunRecords,
    Seal,
    Share,
    evidence_of_passes,
    passes,
)
from ptxdiff.records.seal import SealError

SCHEMA = 1
_HEAD = b'{"record":"digests"'
_ORDER = ("error", "fail", "unsupported", "pass", "not run")


def condensed(run: RunRecords) -> RunRecords:
    """A run in the form that a baseline of digests stores: a result for each item, and one for each of its inputs."""
    items = _by_item(run.results)
    results = [made for item in sorted(items) for made in _condensed(items[item])]
    return replace(run, results=results, texts={}, timings=[], in_registers=[])


def _condensed(results: Sequence[Result]) -> Iterator[Result]:
    """The condensed results of one item. Their verdict is the item's worst."""
    worst = min(results, key=lambda r: (_ORDER.index(r.verdict), r.expected_failure))
    key = Key(*worst.key.item, input_set=WHOLE_ITEM, assembler=worst.key.assembler)
    ran = [r for r in results if r.outputs_digest]
    known = next((r.fingerprint for r in results if r.fingerprint), None)
    bodies = sorted({r.body for r in results if r.body})
    by = {r.ptxas for r in results if r.ptxas}
    ptxas = by.pop() if len(by) == 1 else ""
    rows: dict[str, list[Result]] = defaultdict(list)
    for r in ran:
        # Sets that are swept piece by piece have no digest of their inputs: their name, seed and size decide these.
        inputs = r.inputs_digest or [r.key.input_set, r.seed, r.total]
        rows[_digest([inputs, r.key.context, r.key.fusion])[:6]].append(r)
    total, unchecked, judged = _counts(rows.values())
    whole = Result(
        key,
        worst.verdict,
        ptxas=ptxas,
        total=total,
        unchecked=unchecked,
        judged=judged,
        seed=int(_digest(sorted({r.seed for r in ran}))[:8], 16) if ran else 0,
        expected_failure=worst.expected_failure,
        evidence=weakest(results),
        words="" if worst.outcome == "pass" else worst.words,
        diagnosis=worst.diagnosis,
        resources=_most([r.resources for r in results]),
        instructions=_most([{"all": sum(r.instructions.values())} for r in results if r.instructions]),
        fingerprint=_short(known) if known else {},
        body=_digest(bodies) if bodies and key.backend == "assembler" else "",
        reused=next((r.reused for r in results if r.reused), ""),
        dependencies=next((around(r) for r in results if r.dependencies), {}),
    )
    yield whole
    for name, members in sorted(rows.items()):
        bits = sorted({_digest([(b.first, b.count, b.digest) for b in r.outputs_digest]) for r in members})
        yield replace(_row(key, whole, name, _digest(bits)[:8]), ptxas=ptxas)


JUDGING = ("inputs", "meets", "policy", "reference", "targets")
"""The parts of a definition that decide how results are judged, and on which inputs."""


def _short(definition: Mapping[str, str]) -> dict[str, str]:
    """A definition as one digest, with short ones of the parts that decide how results are judged."""
    # What cannot be compared with another process equals nothing, as in the digest of the whole.
    parts = {n: (_digest(d) if " " in d else d)[:_PART] for n in JUDGING if (d := definition.get(n))}
    return {"definition": _digest(sorted(definition.items())), **parts}


_PART = 8  # digits


def _counts(rows: Iterable[Sequence[Result]]) -> tuple[int, int, dict[str, Share]]:
    """The codes compared, those unchecked, and the judged shares, over all inputs that ran.

    rows: for each set of inputs the results of all setups, of which the one counts that checked least. So the counts do
    not depend on how setups are distributed over targets.
    """
    total, unchecked = 0, 0
    judged: dict[str, Share] = {}
    for members in rows:
        total += min(r.total for r in members)
        unchecked += max(r.unchecked for r in members)
        for name in sorted({n for r in members for n in r.judged}):
            least = min((r.judged.get(name, Share()) for r in members), key=lambda s: (s.ordinary_judged, s.judged))
            judged[name] = judged.get(name, Share()) + least
    return total, unchecked, judged


def decided(run: RunRecords, baseline: RunRecords, policy: Policy) -> Decision:
    """The gate's decision on a whole run against a baseline of digests.

    Where the baseline has the older form, the counts that it lacks are not compared, and a remark says so.
    """
    older = [r for r in baseline.results if _is_older(r)]
    items, variants = {r.key for r in older}, {(r.key.case, r.key.variant) for r in older}

    def alike(records: RunRecords) -> RunRecords:
        """In the older form where the baseline has it. A definition belongs to all items of a variant."""
        results = [_without_counts(r) if r.key in items else r for r in records.results]
        last = {(r.key.case, r.key.variant): r for r in sorted(results, key=lambda r: r.key) if r.fingerprint}
        one = {name: {"definition": last[name].fingerprint["definition"]} for name in variants & last.keys()}
        return replace(
            records,
            results=[
                replace(r, fingerprint=one[name])
                if r.fingerprint and (name := (r.key.case, r.key.variant)) in one
                else r
                for r in results
            ],
        )

    found = gate(alike(replace(condensed(run), path=None)), alike(baseline), policy)
    found = replace(found, findings=(*found.findings, *without_digests(run)))
    by_evidence = {str(e): n for e, n in evidence_of_passes(run.results).items()}
    found = replace(found, passes=passes(run.results), totals={"baseline": len(baseline.results)} | by_evidence)
    if not older:
        return found
    text = (
        f"{len(items)} items of the baseline have no counts of judged and unchecked codes, and no digests of policies "
        "and domains: that a policy promises less than before is not noticed; make the baseline again with --accept"
    )
    return replace(found, findings=(*found.findings, Objection(ACCEPTED, RUN, text)))


def _is_older(r: Result) -> bool:
    return r.key.input_set == WHOLE_ITEM and bool(r.fingerprint) and r.fingerprint.keys() == {"definition"}


def _without_counts(r: Result) -> Result:
    return replace(r, total=0, unchecked=0, judged={}, seed=0)


def _row(item: Key, of: Result, inputs: str, bits: str) -> Result:
    return Result(
        replace(item, input_set=inputs), of.verdict, expected_failure=of.expected_failure, evidence=of.evidence,
        diagnosis=of.diagnosis, inputs_digest=inputs, outputs_digest=(Block(0, 1, bits),),
    )  # fmt: skip


def _most(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The greatest of each count. Others, such as shared memory, are omitted: the digest of the PTX covers them."""
    found: dict[str, int] = {}
    for count in counts:
        for name, value in count.items():
            if name in ("registers", "spill_stores", "spill_loads", "all"):
                found[name] = max(found.get(name, 0), value)
    return {n: v for n, v in found.items() if v}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


# ---- Files ---------------------------------------------------------------------------------------------------


def write(run: RunRecords, folder: Path, *, keep: RunRecords | None = None) -> list[Path]:
    """Write a condensed run as the baseline in `folder`. Returns the files written.

    keep: an existing baseline, whose items stay if the run lacks them or could not run them. Other files in the folder
    are removed.
    """
    items = {item: rs for item, rs in _by_item(run.results).items() if rs[0].verdict != "not run"}
    items = {**(_by_item(keep.results) if keep is not None else {}), **items}
    files: dict[str, list[Item]] = defaultdict(list)
    for item in sorted(items):
        files[item[0].partition(".")[0]].append(item)
    folder.mkdir(parents=True, exist_ok=True)
    by = sorted({*known(run), *(known(keep) if keep is not None else ())})
    head = replace(run.run, environment={**run.run.environment, HELD: by}) if by else run.run
    written = []
    for stem, members in files.items():
        path = folder / f"{file_name(stem)}.jsonl"
        path.write_bytes(b"".join(_lines(head, {i: items[i] for i in members})))
        written.append(path)
    return listed(folder, written)


Item = tuple[str, str, str, str, str]
"""An item of a run (case, variant, target, backend), and the assembler chosen for its results."""


def _by_item(results: Iterable[Result]) -> dict[Item, list[Result]]:
    found: dict[Item, list[Result]] = defaultdict(list)
    for r in results:
        found[*r.key.item, r.key.assembler].append(r)
    return found


def _lines(run: Run, items: Mapping[Item, list[Result]]) -> Iterator[bytes]:
    """The lines of one file: a head, a line for each variant, backend and assembler, and an end with their number."""
    seal = Seal(chained=False)
    versions = {n: run.environment[n] for n in ("triton", "approximate", HELD) if n in run.environment}
    head = {"record": "digests", "schema": SCHEMA, "effort": run.effort, "seed": run.seed, "versions": versions}
    yield seal.close(_text(head))
    groups: dict[tuple[str, str, str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    definitions: dict[tuple[str, str, str, str], Mapping[str, str]] = {}
    for (case, variant, _, backend, by), results in items.items():
        definitions[case, variant, backend, by] = results[0].fingerprint or definitions.get(
            (case, variant, backend, by), {}
        )
    for (case, variant, target, backend, by), results in items.items():
        cell = _cell(results)
        if results[0].fingerprint not in ({}, definitions[case, variant, backend, by]):  # it has other asm there
            cell["own"] = dict(results[0].fingerprint)
        groups[case, variant, backend, by][target] = cell
    for (case, variant, backend, by), cells in sorted(groups.items()):
        shared: dict[str, list[str]] = defaultdict(list)
        for target, cell in cells.items():
            shared[json.dumps(cell)].append(target)
        targets = {" ".join(names): json.loads(cell) for cell, names in shared.items()}
        line: dict[str, Any] = {"case": case, "variant": variant, "backend": backend}
        line |= {"assembler": by} if by else {}
        definition = dict(definitions[case, variant, backend, by])
        line |= {"definition": definition.pop("definition", "")}
        line |= {"parts": definition} if definition else {}
        yield seal.close(_text({**line, "targets": targets}))
    yield seal.close(_text({"record": "end", "variants": len(groups)}))


def _text(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _cell(results: Sequence[Result]) -> dict[str, Any]:
    """The fields of one target in a line."""
    whole, *rows = results
    fields: dict[str, Any] = {
        "verdict": whole.verdict,
        "expected": whole.expected_failure,
        "evidence": whole.evidence if whole.evidence != "none" else "",
        "diagnosis": whole.diagnosis,
        "ptx": whole.body,
        AROUND: whole.dependencies.get(AROUND, ""),
        "total": whole.total,
        "unchecked": whole.unchecked,
        "seeds": whole.seed,
        "judged": {name: _of_share(share) for name, share in sorted(whole.judged.items())},
        "resources": dict(whole.resources),
        "instructions": sum(whole.instructions.values()),
        "bits": " ".join(f"{r.inputs_digest}:{r.outputs_digest[0].digest}" for r in rows),
    }
    return {n: v for n, v in fields.items() if v}


def _definition_of(line: Mapping[str, Any]) -> dict[str, str]:
    return {"definition": line["definition"], **line.get("parts", {})} if line["definition"] else {}


def _of_share(share: Share) -> list[int]:
    """A share's counts; only the two totals where everything is judged."""
    counts = [share.codes, share.ordinary, share.judged, share.ordinary_judged]
    return counts[:2] if counts[:2] == counts[2:] else counts


def _share(counts: Sequence[int]) -> Share:
    codes, ordinary, judged, ordinary_judged = (*counts, *counts) if len(counts) == 2 else counts
    if not all(type(n) is int and n >= 0 for n in counts):
        raise ValueError(f"judged: {counts!a}; expected numbers of codes")
    return Share(codes, judged, ordinary, ordinary_judged)


def is_digests(folder: Path) -> bool:
    """Whether a folder holds a baseline of digests."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as file:
            return file.read(len(_HEAD)) == _HEAD
    return False


def load(folder: Path) -> RunRecords:
    """Read a baseline of digests as results. Raises BaselineError if there is none, or a file of it is faulty."""
    found: RunRecords | None = None
    for path in sorted(folder.glob("*.jsonl")):
        head, results = _read(path)
        refuse_strangers(path, {r.key.case.partition(".")[0] for r in results})
        if found is None:
            found = RunRecords(head, path=folder)
        elif head.effort != found.run.effort:
            raise BaselineError(
                f"{path}: made at effort {head.effort}, other files at {found.run.effort}; make the baseline again"
            )
        found.results += results
    if found is None:
        raise BaselineError(f"{folder}: no baseline here; make one: ptxdiff gate RUN --baseline {folder} --accept")
    refuse_deleted(folder)
    return found


def _read(path: Path) -> tuple[Run, list[Result]]:
    seal = Seal(chained=False)
    results: list[Result] = []
    head: Run | None = None
    count, ended = 0, False
    names: set[tuple[str, ...]] = set()
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            fields = json.loads(seal.open(line))
            if number == 1:
                if fields["record"] != "digests" or fields["schema"] != SCHEMA:
                    raise ValueError(f"schema {fields.get('schema')}; this version reads {SCHEMA}")
                head = Run("baseline", "", fields["effort"], fields.get("seed", 0), fields["versions"], chained=False)
            elif fields.get("record") == "end":
                if fields["variants"] != count or number != len(lines) - 1:
                    raise ValueError("lines were lost or added")
                ended = True
            else:
                count += 1
                results += _expanded(fields)
                name = tuple(fields.get(n, "") for n in ("case", "variant", "backend", "assembler"))
                if name in names:
                    raise ValueError(f"a second line of {fields['case']}::{fields['variant']} ({fields['backend']})")
                names.add(name)
        except (SealError, ValueError, KeyError, TypeError, AttributeError) as e:
            raise BaselineError(f"{path}:{number}: {e}; {_REPAIR}") from None
    if head is None or not ended or lines[-1]:
        raise BaselineError(f"{path}: the end is missing; {_REPAIR}")
    return head, results


_REPAIR = "restore the file from git, or make the baseline again with --accept --replace --digests"


def _expanded(line: Mapping[str, Any]) -> Iterator[Result]:
    """The results of one line. Raises ValueError for an unknown verdict or evidence."""
    for names, cell in line["targets"].items():
        if cell["verdict"] not in VERDICTS or cell.get("evidence", "none") not in EVIDENCE:
            raise ValueError(f"unknown verdict or evidence: {cell['verdict']!a}, {cell.get('evidence')!a}")
        for target in names.split(" "):
            by = line.get("assembler", "")
            key = Key(line["case"], line["variant"], target, line["backend"], input_set=WHOLE_ITEM, assembler=by)
            whole = Result(
                key,
                cell["verdict"],
                expected_failure=cell.get("expected", False),
                evidence=cell.get("evidence", "none"),
                diagnosis=cell.get("diagnosis", ""),
                resources=cell.get("resources", {}),
                instructions={"all": cell["instructions"]} if "instructions" in cell else {},
                fingerprint=cell.get("own") or _definition_of(line),
                body=cell.get("ptx", ""),
                dependencies={AROUND: cell[AROUND]} if AROUND in cell else {},
                total=cell.get("total", 0),
                unchecked=cell.get("unchecked", 0),
                seed=cell.get("seeds", 0),
                judged={name: _share(counts) for name, counts in cell.get("judged", {}).items()},
            )
            yield whole
            for pair in cell.get("bits", "").split():
                inputs, _, bits = pair.partition(":")
                yield _row(key, whole, inputs, bits)
