"""Records and baselines that somebody edited, with right checksums: nothing passes without an objection or a remark.

Each attack edits the JSON of a run that is accepted as it is, or of its baseline. It is refused when it is read, refused
by the gate, or named in a remark. A run that was not edited is accepted without a word.
"""

# ruff: noqa: E501 (tables of one line an entry)

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ptxdiff.gating import baseline, digests
from ptxdiff.gating.baseline import BaselineError
from ptxdiff.gating.gate import ACCEPTED, CORRECTNESS, Decision, Policy, gate, unacceptable
from ptxdiff.records import (
    SKIPPED,
    End,
    Key,
    RecordError,
    Result,
    Run,
    RunRecords,
    Share,
    Writer,
    of_run,
    read,
    read_lines,
    received,
    sent,
    text_hash,
)
from tests.support.reports import synthetic
from tests.support.reports.synthetic import with_results
from tests.support.sealed import sealed, unsealed

MODELS = Policy(allow_model=True)
SUBJECT = ("rcp", "asm.approx", "sm_100a", "emulator")
"""The item whose records are edited. Of its codes a part lies outside the domain, and some of these differ."""


@pytest.fixture(scope="module")
def base() -> RunRecords:
    run = synthetic.catalogue(2, targets=("sm_90a", "sm_100a"), per_cell=9, texts=False)
    run.timings.clear()
    policy = {"policy": "0123456789abcdef", "inputs": "fedcba9876543210"}

    def judged(r):
        if not r.total:
            return r
        some = r.key.variant == "asm.approx"
        share = Share(4096, 3000, 4000, 2900) if some else Share(4096, 4096, 4000, 4000)
        return dataclasses.replace(
            r, judged={"y": share}, unchecked=50 * some, fingerprint={**r.fingerprint, **policy}, seed=7
        )

    run = with_results(run, judged)
    environment = {**run.run.environment, "approximate": "hopper", "harness": "0" * 32}
    items = sorted({r.key.item for r in run.results})
    planned = tuple(f"{case}::{variant}[{target}-{backend}]" for case, variant, target, backend in items)
    return dataclasses.replace(run, run=dataclasses.replace(run.run, environment=environment, planned=planned))


@pytest.fixture(scope="module")
def lines(base, tmp_path_factory) -> list[bytes]:
    """The lines of the run, without checksums."""
    path = tmp_path_factory.mktemp("base") / "run.jsonl"
    writer = Writer(path)
    writer.write(base.run, *base.cases.values(), *base.results, base.end)
    writer.close()
    return unsealed(path.read_bytes())


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> list[bytes]:
    """The lines of a run with texts, whose results have the digests that a run gives them, without checksums."""
    run = synthetic.catalogue(2, targets=("sm_90a", "sm_100a"), per_cell=4)
    path = tmp_path_factory.mktemp("made") / "run.jsonl"
    writer = Writer(path)
    head = dataclasses.replace(run.run, environment={**run.run.environment, "harness": "0" * 32})
    writer.write(head, *run.cases.values(), *run.texts.values(), *map(sent, run.results), run.end)
    writer.close()
    return unsealed(path.read_bytes())


@pytest.fixture(scope="module")
def folders(base, tmp_path_factory) -> dict[str, Path]:
    found = {form: tmp_path_factory.mktemp(form) for form in ("full", "digests")}
    baseline.write(base, found["full"])
    digests.write(digests.condensed(base), found["digests"])
    return found


def decided(run: RunRecords, form: str, folder: Path) -> Decision:
    if form == "digests":
        return digests.decided(run, digests.load(folder), MODELS)
    return gate(run, baseline.load(folder), MODELS)


def is_subjects(obj: dict[str, Any]) -> bool:
    key = obj.get("key", {})
    return tuple(key.get(n, "") for n in ("case", "variant", "target", "backend")) == SUBJECT


def of_results(**members: Any):
    """Set members of each result of the subject; a function gets the former value, None removes the member."""

    def edit(objects: list[dict[str, Any]]) -> None:
        for obj in filter(is_subjects, objects):
            for name, value in members.items():
                made = value(obj.get(name)) if callable(value) else value
                obj.pop(name, None)
                if made is not None:
                    obj[name] = made

    return edit


def of_key(**members: Any):
    def edit(objects: list[dict[str, Any]]) -> None:
        for obj in filter(is_subjects, objects):
            obj["key"] = {**obj["key"], **members}

    return edit


def of_head(**members: Any):
    return lambda objects: objects[0].update(members)


def of_environment(**members: Any):
    return lambda objects: objects[0]["environment"].update(members)


def share(codes=4096, judged=3000, ordinary=4000, ordinary_judged=2900):
    return {"y": {"codes": codes, "judged": judged, "ordinary": ordinary, "ordinary_judged": ordinary_judged}}


def without_item(objects: list[dict[str, Any]]) -> None:
    objects[:] = [o for o in objects if not is_subjects(o)]
    recounted(objects)


def without_one(objects: list[dict[str, Any]]) -> None:
    objects.remove(next(o for o in objects if is_subjects(o)))
    recounted(objects)


def of_two_definitions(objects: list[dict[str, Any]]) -> None:
    """The first result of the subject gets the definition of another run's."""
    one = next(o for o in objects if is_subjects(o) and o.get("fingerprint"))
    one["fingerprint"] = {**one["fingerprint"], "policy": "f" * 16}


def without_plan_of_item(objects: list[dict[str, Any]]) -> None:
    case, variant, target, backend = SUBJECT
    objects[0]["planned"].remove(f"{case}::{variant}[{target}-{backend}]")


def recounted(objects: list[dict[str, Any]]) -> None:
    """Correct the counts of the last line, as somebody who hides an edit does."""
    results = [o for o in objects if o["record"] == "result"]
    objects[-1]["verdicts"] = Counter(
        "expected failure" if o.get("expected_failure") else o["verdict"] for o in results
    )


def as_of_a_gpu(objects: list[dict[str, Any]]) -> None:
    """All results of the emulator get another backend, on a machine without a GPU."""
    objects[:] = [o for o in objects if o.get("key", {}).get("backend") != "gpu"]
    objects[0]["environment"]["gpus"] = []
    for obj in objects:
        if obj.get("key", {}).get("backend") == "emulator":
            obj["key"]["backend"], obj["evidence"] = "gpu", "hardware"
    recounted(objects)


def twice(objects: list[dict[str, Any]]) -> None:
    objects.insert(-1, next(o for o in objects if is_subjects(o)))
    recounted(objects)


BITS = {"outputs_digest": lambda blocks: [{**b, "digest": "0" * 32} for b in blocks]}
SHRUNK = {"judged": share(judged=600, ordinary_judged=500), "unchecked": 900, **BITS}

READ = "when it is read"
"""An attack that no command gets to see."""

ATTACKS = {
    # edit, what happens: READ, or a pattern of the gate's words; those that begin with ! only in a remark
    "a pass whose codes differ": (of_results(different=1), READ),
    "a pass with a finding": (of_results(findings=["a guard zone was hit"]), READ),
    "an expected failure that passes": (of_results(expected_failure=True), READ),
    "fewer codes than the shares have": (of_results(total=4000), READ),
    "more codes than the shares have": (of_results(total=8192), READ),
    "no codes": (of_results(total=None), READ),
    "more unchecked than not judged": (of_results(unchecked=1097), READ),
    "more unchecked than there are": (of_results(unchecked=5000), READ),
    "more judged than there are": (of_results(judged=share(judged=5000)), READ),
    "more ordinary ones judged than there are": (of_results(judged=share(ordinary_judged=4001)), READ),
    "more ordinary ones than codes": (of_results(judged=share(ordinary=4097)), READ),
    "distances of more codes": (of_results(ulps={"0": 4096, "1": 1}), READ),
    "evidence of hardware that did not run": (of_results(evidence="hardware"), READ),
    "an unknown evidence": (of_results(evidence="certain"), READ),
    "an unknown verdict": (of_results(verdict="passed"), READ),
    "an unknown member": (of_results(approved=True), READ),
    "a result twice": (twice, READ),
    "a failure that was renamed a pass in the counts": (lambda o: o[-1].update(verdicts={"pass": 1}), READ),
    "no end": (lambda o: o.pop(), "cut short"),
    "an effort": (of_head(effort="exhaustive"), "!effort quick in the baseline, exhaustive here"),
    "a seed of the run": (of_head(seed=5), "!seed 0 in the baseline, 5 here"),
    "the choice of approximate bits": (of_environment(approximate="rounded"), "!hopper in the baseline, rounded here"),
    "a choice of approximate bits that is gone": (lambda o: o[0]["environment"].pop("approximate"), "!hopper in the baseline, None here"),
    "seeds of results": (of_results(seed=8), "!seed of the inputs: "),
    "fewer unchecked": (of_results(unchecked=10), "!codes that differ unchecked: 1.221% → 0.244%"),
    "none unchecked": (of_results(unchecked=None), "!codes that differ unchecked: 1.221% → 0.000%"),
    "more unchecked": (of_results(unchecked=1000), "codes that differ unchecked: 1.221% → 24.414%"),
    "fewer codes, and shares that fit": (of_results(total=2048, judged=share(2048, 1500, 2000, 1450), ulps={"0": 2048}), "codes compared: |compared codes"),
    "a smaller share": (of_results(judged=share(ordinary_judged=2000)), "ordinary codes of y that are not judged"),
    "no share": (of_results(judged=None), "ordinary codes of y that are not judged"),
    "a smaller domain, with a factor of two outside": (of_results(**SHRUNK, fingerprint=lambda f: {**f, "policy": "0" * 16}), "ordinary codes of y that are not judged"),
    "other bits": (of_results(**BITS), "output bits changed"),
    "no bits": (of_results(outputs_digest=None), "no output bits in the run|in the baseline but not in the run"),
    "bits of other inputs": (of_results(inputs_digest="f" * 32), "!other inputs than|in the baseline but not in the run"),
    "no digest of inputs": (of_results(inputs_digest=None), "no digest of the inputs|in the baseline but not in the run"),
    "no definition": (of_results(fingerprint=None), "no definition in the run"),
    "a failure": (of_results(verdict="fail"), "fail on sm_100a"),
    "an error": (of_results(verdict="error"), "error on sm_100a"),
    "a pass that is not run": (of_results(verdict="not run", evidence="none"), "!not run here"),
    "a pass that is unsupported": (of_results(verdict="unsupported"), "pass → unsupported"),
    "results of an item of two definitions": (of_two_definitions, READ),
    "an item without results": (lambda o: o[0]["planned"].append("rcp::better[sm_100a-emulator]"), r"1 items were planned and have no result, first rcp::better\[sm_100a-emulator\]"),
    "an item that was not planned": (without_plan_of_item, r"1 items have results and were not planned, first rcp::asm.approx\[sm_100a-emulator\]"),
    "an environment that is gone": (lambda o: [o[0]["environment"].pop(n) for n in ("harness", "triton")], "!its environment does not say (harness, )?triton"),
    "an item that is gone": (without_item, "in the baseline but not in the run"),
    "another target": (of_key(target="sm_103a"), "in the baseline but not in the run"),
    "another variant": (of_key(variant="asm.better"), "in the baseline but not in the run"),
    "another backend": (of_key(backend="assembler"), READ),
    "a weaker evidence": (of_results(evidence="none"), "!evidence model → none|passes on a model alone"),
    "results of the emulator as a GPU's": (as_of_a_gpu, "environment lists no GPU"),
    "a date in the future": (of_head(started="2999-01-01T00:00:00Z"), "dated in the future"),
    "no date": (of_head(started="yesterday"), "date cannot be read"),
    "declared failures": (of_results(verdict="fail", expected_failure=True, diagnosis="other bits, as the case declares"), "no baseline has accepted these bits"),
}  # fmt: skip


@pytest.mark.parametrize("form", ["full", "digests"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_edited_run_is_refused_or_remarked_on(lines, folders, tmp_path, attack, form):
    edit, expected = ATTACKS[attack]
    objects = [json.loads(line) for line in lines]
    edit(objects)
    if expected != READ and "no end" not in attack:
        recounted(objects)
    path = tmp_path / "run.jsonl"
    path.write_bytes(sealed([json.dumps(o, separators=(",", ":")).encode() for o in objects]))
    if expected == READ:
        with pytest.raises(RecordError):
            read(path)
        return
    decision = decided(read(path), form, folders[form])
    pattern = re.compile(expected.removeprefix("!"))
    named = [f for f in decision.findings if pattern.search(f.text)]
    assert named, [f.text for f in decision.findings]
    if not expected.startswith("!"):
        assert decision.code == CORRECTNESS


@pytest.mark.parametrize("form", ["full", "digests"])
def test_the_run_itself_is_accepted_without_a_word(base, lines, folders, tmp_path, form):
    path = tmp_path / "run.jsonl"
    writer = Writer(path)
    writer.write(base.run, *base.cases.values(), *map(sent, base.results), base.end)
    writer.close()
    decision = decided(read(path), form, folders[form])
    assert decision.code == ACCEPTED
    assert not [f.text for f in decision.findings if "on a model alone" not in f.text]


def test_a_run_whose_results_have_no_digests_is_accepted_with_a_remark(lines, folders, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(sealed(lines))
    run = read(path)
    decision = decided(run, "full", folders["full"])
    assert decision.code == ACCEPTED
    assert any(
        f.text.startswith(f"{len(run.results)} results have no digest of what the run made") for f in decision.findings
    )


# ---- edits of single records, with right checksums ------------------------------------------------------------


def kind(objects: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [o for o in objects if o["record"] == name]


def exchanged(name: str, *path: str):
    """Exchange a member of the first two records of a kind that differ in it."""

    def edit(objects: list[dict[str, Any]]) -> None:
        def inner(o: dict[str, Any]) -> dict[str, Any]:
            for part in path[:-1]:
                o = o.get(part) or {}
            return o

        having = [inner(o) for o in kind(objects, name) if path[-1] in inner(o)]
        one = having[0]
        other = next(o for o in having if o[path[-1]] != one[path[-1]])
        one[path[-1]], other[path[-1]] = other[path[-1]], one[path[-1]]

    return edit


def first(name: str, **members: Any):
    """Set members of the first record of a kind, of results of the first that passed after a run; None removes one."""

    def edit(objects: list[dict[str, Any]]) -> None:
        one = next(o for o in kind(objects, name) if name != "result" or (o["verdict"] == "pass" and "total" in o))
        for member, value in members.items():
            one[member] = value(one[member]) if callable(value) else value
            if value is None:
                del one[member]

    return edit


def environment(**members: Any):
    return lambda o: o[0]["environment"].update(members)


def moved_from_another_target(objects: list[dict[str, Any]]) -> None:
    """The result of one target stands for that of another, with all its digests."""
    one, other = (next(o for o in kind(objects, "result") if o["key"]["target"] == t) for t in ("sm_90a", "sm_100a"))
    key = other["key"]
    other.clear()
    other.update({**one, "key": key})


def removed(name: str):
    return lambda objects: objects.remove(kind(objects, name)[0])


def bare(objects: list[dict[str, Any]]) -> None:
    """One result loses its digest, and so does the end."""
    one = kind(objects, "result")[0]
    del one["made"], objects[-1]["digests"]


def text_and_hash(objects: list[dict[str, Any]]) -> None:
    one = kind(objects, "text")[0]
    one["text"] += " "
    one["hash"] = text_hash(one["text"])


RESULT, END = r":\d+: result of .*: it was edited after the run made it", r":\d+: the digest of "
EDITS = {
    "an identity that is gone": (first("result", identity="", evidence="none"), RESULT),
    "an evidence": (first("result", evidence=lambda e: "model" if e != "model" else "confirmed"), RESULT),
    "no evidence": (first("result", evidence=None), RESULT),
    "asm of another result": (exchanged("result", "asm"), RESULT),
    "PTX of another result": (exchanged("result", "ptx"), RESULT),
    "machine code of another result": (exchanged("result", "sass"), RESULT),
    "bits of another result": (exchanged("result", "outputs_digest"), RESULT),
    "a definition of another result": (first("result", fingerprint=lambda f: dict.fromkeys(f, "0" * 16)), RESULT),
    "keys of two results": (exchanged("result", "key"), RESULT),
    "a result of another target": (moved_from_another_target, RESULT),
    "a seed": (first("result", seed=8), RESULT),
    "more codes": (first("result", total=lambda n: n + 1), RESULT),
    "fewer seconds": (first("result", seconds=0.0), RESULT),
    "resources": (first("result", resources={"registers": 8}), RESULT),
    "a note": (first("result", notes=["looked at"]), RESULT),
    "a replay": (first("result", replay="pack=1"), RESULT),
    "a device": (first("result", device="GPU-1"), RESULT),
    "a node": (first("result", node="one/1a2b"), RESULT),
    "an assembler": (first("result", ptxas="ptxas 13.4 -O3"), RESULT),
    "a digest": (first("result", made="0" * 12), RESULT),
    "digests of two results": (exchanged("result", "made"), RESULT),
    "a digest that is gone": (first("result", made=None), END + "the result lines"),
    "a digest and the end's that are gone": (bare, "no digests, although"),
    "another run's id": (first("result", reused="20260101T000000Z"), END + "the result lines"),
    "another harness": (environment(harness="1" * 32), END + "the head"),
    "another version": (environment(ptxdiff="9.9"), END + "the head"),
    "another Triton": (environment(triton="9.9"), END + "the head"),
    "another machine": (environment(platform="another"), END + "the head"),
    "a new member of the environment": (environment(approximate="rounded"), END + "the head"),
    "other arguments": (lambda o: o[0].update(arguments=["cases"]), END + "the head"),
    "another date": (lambda o: o[0].update(started="2020-01-01T00:00:00Z"), END + "the head"),
    "another id": (lambda o: o[0].update(run_id="20200101T000000Z"), END + "the head"),
    "another effort": (lambda o: o[0].update(effort="exhaustive"), END + "the head"),
    "a case's bound": (lambda o: next(iter(kind(o, "case")[0]["variants"].values())).update(match="absolute(9)"), END + "the case lines"),
    "a case's reference": (first("case", reference="another"), END + "the case lines"),
    "references of two cases": (exchanged("case", "title"), END + "the case lines"),
    "a case that is gone": (removed("case"), END + "the case lines"),
    "a text": (first("text", text="ret;"), "its hash .* is not that of its text"),
    "texts that are exchanged": (exchanged("text", "text"), "its hash .* is not that of its text"),
    "a text with its hash": (text_and_hash, END + "the text lines"),
    "a text that is gone": (removed("text"), END + "the text lines"),
    "a text of another kind": (first("text", kind=lambda k: "sass" if k == "ptx" else "ptx"), END + "the text lines"),
    "a result that is gone, with its count": (removed("result"), END + "the result lines"),
    "a result that is there twice, under another shape": (lambda o: o.insert(-1, {**(r := kind(o, "result")[0]), "key": {**r["key"], "shape": "77"}}), RESULT),
    "the end's digests": (lambda o: o[-1]["digests"].update(result="0" * 16), END + "the result lines"),
    "no digest of the head": (lambda o: o[-1]["digests"].pop("run"), END + "the head"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_record_is_refused_with_its_line_even_if_its_checksums_are_right(made, tmp_path, name):
    """As of a program that reads records, changes one, and writes them again."""
    edit, expected = EDITS[name]
    objects = [json.loads(line) for line in made]
    edit(objects)
    recounted(objects)
    path = tmp_path / "run.jsonl"
    path.write_bytes(sealed([json.dumps(o, separators=(",", ":"), ensure_ascii=False).encode() for o in objects]))
    with pytest.raises(RecordError, match=expected):
        read(path)


def test_a_program_that_changes_a_record_and_writes_the_run_again_is_known(made, tmp_path):
    path, again = tmp_path / "run.jsonl", tmp_path / "again.jsonl.zst"
    path.write_bytes(sealed(made))
    for change in (lambda r: dataclasses.replace(r, words="", identity="1") if isinstance(r, Result) else r,
                   lambda r: dataclasses.replace(r, environment={}) if isinstance(r, Run) else r):  # fmt: skip
        writer = Writer(again)
        writer.write(*map(change, read_lines(path)))
        writer.close()
        with pytest.raises(RecordError, match=r"was edited|the digest of the head"):
            read(again)


def test_a_run_that_is_written_again_unchanged_is_the_same(made, tmp_path):
    """As `ptxdiff records --export` writes it: reused results keep the digests with which they were made."""
    path, again = tmp_path / "run.jsonl", tmp_path / "again.jsonl"
    one, other = kind([json.loads(line) for line in made], "result")[:2]
    reused = received(of_run(json.dumps(one, separators=(",", ":"), ensure_ascii=False).encode(), 'a "run" \\'))
    fresh = received(json.dumps(other, separators=(",", ":"), ensure_ascii=False).encode())
    writer = Writer(path)
    writer.write(
        next(iter(read_lines(_written(made, tmp_path)))),
        reused,
        fresh,
        End("", 0.0, Counter([fresh.record.outcome, reused.record.outcome])),
    )
    writer.close()
    writer = Writer(again)
    writer.write(*read_lines(path))
    writer.close()
    assert [r.made for r in read(again).results] == [one["made"], other["made"]]
    assert read(again).end == read(path).end


def _written(lines: list[bytes], folder: Path) -> Path:
    (folder / "whole.jsonl").write_bytes(sealed(lines))
    return folder / "whole.jsonl"


@pytest.mark.parametrize("form", ["full", "digests"])
def test_a_larger_domain_and_fewer_unchecked_codes_are_accepted(base, folders, form):
    better = Share(4096, 4096, 4000, 4000)
    run = with_results(base, lambda r: dataclasses.replace(r, judged={"y": better}, unchecked=0) if r.total else r)
    assert decided(run, form, folders[form]).code == ACCEPTED


# ---- baselines -----------------------------------------------------------------------------------------------


def of_line(**members: Any):
    """Edit the line of the subject's variant, in a baseline of digests."""

    def edit(objects: list[dict[str, Any]]) -> None:
        for obj in objects:
            if (obj.get("case"), obj.get("variant"), obj.get("backend")) == ("rcp", "asm.approx", "emulator"):
                obj.update(members)

    return edit


def of_cells(**members: Any):
    def edit(objects: list[dict[str, Any]]) -> None:
        for obj in objects:
            for cell in obj.get("targets", {}).values():
                if obj["backend"] == "emulator":
                    cell.update({n: v for n, v in members.items() if v is not None})
                    for name in (n for n, v in members.items() if v is None):
                        cell.pop(name, None)

    return edit


def a_line_twice(objects: list[dict[str, Any]]) -> None:
    objects.insert(1, objects[1])
    objects[-1]["variants"] += 1


def a_line_less(objects: list[dict[str, Any]]) -> None:
    del objects[1]
    objects[-1]["variants"] -= 1


BASELINES = {
    "an unknown verdict": (of_cells(verdict="passed"), READ),
    "an unknown evidence": (of_cells(evidence="certain"), READ),
    "a variant twice": (a_line_twice, READ),
    "a share that is no number": (of_cells(judged={"y": ["4096", "4000"]}), READ),
    "shares of three numbers": (of_cells(judged={"y": [1, 2, 3]}), READ),
    "another schema": (lambda o: o[0].update(schema=2), READ),
    "a variant less": (a_line_less, "!new, so not compared"),
    "another effort": (lambda o: o[0].update(effort="full"), "!effort full in the baseline, quick here"),
    "another seed": (lambda o: o[0].update(seed=3), "!seed 3 in the baseline, 0 here"),
    "another choice of approximate bits": (lambda o: o[0]["versions"].update(approximate="rounded"), "!rounded in the baseline, hopper here"),
    "an accepted failure": (of_cells(verdict="fail"), "!accepted in the baseline although no pass"),
    "other bits": (of_cells(bits="000000:00000000"), "in the baseline but not in the run"),
    "another definition": (of_line(definition="0" * 12), "!definition changed"),
    "another policy": (of_line(parts={"policy": "0" * 8, "inputs": "fedcba98", "reference": "0" * 8}), "!policy, reference changed"),
    "the older form": (of_line(parts={}), "!items of the baseline have no counts"),
    "more codes": (of_cells(total=99999), "codes compared: 99,999"),
    "fewer codes": (of_cells(total=1), "!codes compared: 1 "),
}  # fmt: skip


@pytest.mark.parametrize("attack", BASELINES)
def test_an_edited_baseline_of_digests_is_refused_or_remarked_on(base, folders, tmp_path, attack):
    edit, expected = BASELINES[attack]
    for path in folders["digests"].glob("*.jsonl"):
        objects = [json.loads(line) for line in unsealed(path.read_bytes())]
        edit(objects)
        data = sealed(
            [json.dumps(o, ensure_ascii=False, separators=(",", ":")).encode() for o in objects], chained=False
        )
        (tmp_path / path.name).write_bytes(data)
    if expected == READ:
        with pytest.raises(BaselineError):
            digests.load(tmp_path)
        return
    decision = decided(base, "digests", tmp_path)
    pattern = re.compile(expected.removeprefix("!"))
    assert any(pattern.search(f.text) for f in decision.findings), [f.text for f in decision.findings]
    if not expected.startswith("!"):
        assert decision.code == CORRECTNESS


@pytest.mark.parametrize("form", ["full", "digests"])
@pytest.mark.parametrize("name", ["aa", "zz"], ids=["read first", "read last"])
def test_a_second_file_of_a_case_is_refused(base, tmp_path, form, name):
    """Beside the file of its name: the gate compared with the one that was read last, whichever was accepted."""
    write, load = (baseline.write, baseline.load) if form == "full" else (digests.write, digests.load)
    path, *_ = write(base if form == "full" else digests.condensed(base), tmp_path)
    load(tmp_path)
    (tmp_path / f"{name}.jsonl").write_bytes(path.read_bytes())
    with pytest.raises(BaselineError, match=rf"{name}\.jsonl: results of .* belong into {path.name}"):
        load(tmp_path)


def test_a_run_older_than_the_baseline_gets_a_remark(base, folders):
    old = dataclasses.replace(base, run=dataclasses.replace(base.run, started="2024-01-01T00:00:00Z"))
    decision = decided(old, "full", folders["full"])
    assert (decision.code, any("before the baseline's run" in f.text for f in decision.findings)) == (ACCEPTED, True)


@pytest.mark.parametrize("form", ["full", "digests"])
def test_a_deleted_file_of_a_baseline_is_an_error(base, tmp_path, form):
    """Its results would be new ones, with which nothing is compared: a remark, and exit code 0."""
    write, load = (baseline.write, baseline.load) if form == "full" else (digests.write, digests.load)
    write(base if form == "full" else digests.condensed(base), tmp_path)
    (tmp_path / "rcp.jsonl").unlink()
    with pytest.raises(BaselineError, match=r"rcp\.jsonl is missing, which .*files\.txt lists; restore it"):
        load(tmp_path)
    names = tmp_path / "files.txt"
    names.write_text(names.read_text().replace("rcp.jsonl\n", ""))
    load(tmp_path)  # its line was removed too, which a review shows
    names.write_text("")
    with pytest.raises(BaselineError, match=r"ex2\.jsonl is not in .*files\.txt"):
        load(tmp_path)
    names.unlink()
    assert any("no files.txt" in f.text for f in decided(base, form, tmp_path).findings)


def test_the_committed_baseline_is_read_and_says_what_it_lacks():
    """It has the older form until somebody accepts the catalogue again."""
    folder = Path(__file__).parents[2] / "baseline"
    names = sorted(folder.glob("*.jsonl"))[:2]
    results = [r for path in names for r in digests._read(path)[1]]
    found = RunRecords(digests._read(names[0])[0], results=results)
    texts = [f.text for f in digests.decided(found, found, MODELS).findings]
    older = any(r.fingerprint.keys() == {"definition"} for r in results)
    assert older == any("make the baseline again with --accept" in text for text in texts)


@pytest.mark.parametrize("form", ["full", "digests"])
def test_reused_results_are_refused_where_fresh_ones_are_asked_for(base, folders, form):
    run = with_results(base, lambda r: dataclasses.replace(r, reused="20260101T000000Z") if r.total else r)
    load = baseline.load if form == "full" else digests.load
    policy = Policy(allow_model=True, fresh=True)
    decide = gate if form == "full" else digests.decided
    decision = decide(run, load(folders[form]), policy)
    assert decision.code == CORRECTNESS
    assert any("were reused from" in f.text for f in decision.findings)
    assert decide(base, load(folders[form]), policy).code == ACCEPTED


# ---- records that are no run of whole items ------------------------------------------------------------------


def test_a_baseline_is_no_run(base, folders):
    """It agrees with itself whatever the code does: somebody swapped the two names."""
    accepted = baseline.load(folders["full"])
    decision = gate(accepted, accepted, MODELS)
    assert decision.code == CORRECTNESS
    assert [f.text for f in decision.findings if "this is a baseline" in f.text]
    assert "this is a baseline" in unacceptable(accepted)


@pytest.mark.parametrize("form", ["full", "digests"])
def test_a_replay_is_no_run(base, folders, form):
    replay = dataclasses.replace(base.run, arguments=("cases", "--ptx-replay=pack=1,place=0,x=00"))
    run = dataclasses.replace(base, run=replay)
    decision = decided(run, form, folders[form])
    assert decision.code == CORRECTNESS
    assert [f.text for f in decision.findings if "repeats one failure" in f.text]
    assert "repeats one failure" in unacceptable(run)
    assert not unacceptable(base)


def test_a_run_that_lacks_planned_items_becomes_no_baseline(base):
    """A new case has no baseline that would miss its results."""
    run = dataclasses.replace(base, results=[r for r in base.results if tuple(r.key.item) != SUBJECT])
    assert "1 items were planned and have no result" in unacceptable(run)


@pytest.mark.parametrize("form", ["full", "digests"])
@pytest.mark.parametrize("context", ["straight", "shared"])
def test_a_failure_that_a_case_declares_anew_is_refused(base, folders, form, context):
    """In results that the baseline has, or only in new ones: of another context, for example."""
    first = next(r for r in base.results if tuple(r.key.item) == SUBJECT and r.verdict == "pass")
    key = dataclasses.replace(first.key, context=context)
    failure = dataclasses.replace(
        first, key=key, verdict="fail", expected_failure=True, evidence="none", diagnosis="missing early clobber",
        outputs_digest=tuple(dataclasses.replace(b, digest="0" * 32) for b in first.outputs_digest),
    )  # fmt: skip
    run = with_results(base, lambda r: None if r.key == key else r)
    run = dataclasses.replace(run, results=[*run.results, failure])
    decision = decided(run, form, folders[form])
    named = [
        f.text
        for f in decision.findings
        if f.code and ("missing early clobber" in f.text or "expected failure" in f.text)
    ]
    assert decision.code == CORRECTNESS
    assert named
    accepted = digests.condensed(run) if form == "digests" else run
    again = digests.decided(run, accepted, MODELS) if form == "digests" else gate(run, accepted, MODELS)
    assert again.code == ACCEPTED


def test_other_inputs_that_the_case_declares_are_refused_until_they_are_accepted(base):
    """A narrower domain, with wrong bits outside of it: nothing is compared there."""

    def narrowed(r):
        if tuple(r.key.item) != SUBJECT or not r.inputs_digest:
            return r
        return dataclasses.replace(r, inputs_digest="f" * 32, fingerprint={**r.fingerprint, "inputs": "0" * 16})

    accepted = baseline.accepted(base)
    decision = gate(with_results(base, narrowed), accepted, MODELS)
    assert decision.code == CORRECTNESS
    assert [f.subject for f in decision.findings if "its case declares other inputs" in f.text] == ["rcp::asm.approx"]
    again = with_results(base, narrowed)
    assert gate(again, baseline.accepted(again), MODELS).code == ACCEPTED


@pytest.mark.parametrize("form", ["full", "digests"])
def test_an_item_that_pytest_skipped_is_named(base, folders, form):
    """Of a case that the baseline lacks: there nothing else would say that it was not tested."""
    first = next(r for r in base.results if tuple(r.key.item) == SUBJECT)
    key = Key("new_case", "asm.new", first.key.target, first.key.backend)
    skip = Result(key, "not run", words=f"{SKIPPED}Skipped: not today")
    planned = (*base.run.planned, f"new_case::asm.new[{key.target}-{key.backend}]")
    run = dataclasses.replace(base.run, planned=planned)
    decision = decided(dataclasses.replace(base, run=run, results=[*base.results, skip]), form, folders[form])
    assert [f.text for f in decision.findings if f.subject == "new_case::asm.new" and "Skipped: not today" in f.text]
    assert decision.code == ACCEPTED
