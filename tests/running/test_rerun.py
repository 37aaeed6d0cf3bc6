"""Targets and variants compared with each other, from a run of a case to the report's text."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ptxdiff import diskcache
from ptxdiff.backends import create
from ptxdiff.jobs import Outcome
from ptxdiff.model import load as loader
from ptxdiff.model.describe import case_info
from ptxdiff.records import Block, Disagreement, Split, from_json, splits, to_json
from ptxdiff.reports import html
from ptxdiff.reports.history import history
from ptxdiff.reports.summary import terminal
from ptxdiff.running.item import Item
from ptxdiff.running.reuse import Agreement, ptx_lines
from ptxdiff.running.run import run_item
from tests.support.reports import synthetic

CASE = '''
"""A square, and a variant that promises the same."""
from ptxdiff.model.case import Case
from ptxdiff.model.variants import asm
from ptxdiff.model.match import ulp
from ptxdiff.references.formats import F32
from ptxdiff.references import {module}


case = Case(
    inputs={{"a": F32}},
    outputs={{"d": F32}},
    reference={module}.{function},
    variants={{
        "one": asm("{one}"{match}),
        "other": asm("{other}"{match}),
    }},
)
'''


class Shifting:
    """The emulator, with a changed last bit on one target, as an approximate instruction may differ."""

    name = "emulator"

    def __init__(self, target: str) -> None:
        self.target, self.inner = target, create("emulator")

    def unavailable(self, target: str) -> str | None:
        return self.inner.unavailable(target)

    def run(self, job):
        outcome = self.inner.run(job)
        if job.target != self.target or not outcome.outputs:
            return outcome
        name, bits = next(iter(outcome.outputs.items()))
        changed = bits.copy()
        changed.view("uint32").reshape(-1)[7] ^= 1
        return Outcome(**{**vars(outcome), "outputs": {**outcome.outputs, name: changed}})


def run(tmp_path: Path, backend, *targets: str, variants=("one",), **texts: str) -> tuple[list, list[Split]]:
    """The results of a case's items, and their splits with the disagreements."""
    values = {"module": "reciprocal", "function": "correctly_rounded", "match": "", **texts}
    path = tmp_path / "square.py"
    path.write_text(CASE.format(**values))
    (loaded,) = loader.load(path)
    items = [Item(loaded, variant, target, "emulator") for variant in variants for target in targets]
    results = [r for item in items for r in run_item(item, backend, "quick").results]
    agreement = Agreement(tmp_path, [case_info(loaded, path.name)], lambda name: backend, "quick")
    seen = agreement.disagreements(results, splits(results))
    assert agreement.disagreements(results[::-1], splits(results[::-1])) == seen, "in any order of results"
    return results, splits(results, seen)


RCP = {"one": "rcp.rn.f32 $0, $1;", "other": "rcp.rn.f32 $0, $1; mov.b32 $0, $0;"}


@pytest.fixture(autouse=True)
def _asm_alone(monkeypatch):
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")


def test_targets_that_agree_are_not_reported(tmp_path):
    results, found = run(tmp_path, create("emulator"), "sm_80", "sm_90a", "sm_100a", variants=("one", "other"), **RCP)
    assert {r.verdict for r in results} == {"pass"}
    assert found == []


def test_a_difference_that_a_bound_allows_is_a_fact(tmp_path):
    texts = {"one": "rcp.approx.f32 $0, $1;", "other": "rcp.approx.f32 $0, $1;", "match": ", match=ulp(2)"}
    results, _ = run(tmp_path, Shifting("sm_90a"), "sm_80", "sm_90a", "sm_100a", **texts)
    passing = [r for r in results if r.key.target != "sm_90a" or r.verdict == "pass"]
    (split,) = splits(passing)
    assert split.groups == (("sm_100a emulator", "sm_80 emulator"), ("sm_90a emulator",))
    assert "allowed, all pass" in str(split)


def test_the_first_input_with_different_bits_is_named(tmp_path):
    texts = {"one": "rcp.approx.f32 $0, $1;", "other": "rcp.approx.f32 $0, $1;", "match": ", match=ulp(2)"}
    _, (split,) = run(tmp_path, Shifting("sm_90a"), "sm_80", "sm_90a", "sm_100a", **texts)
    first = split.first
    assert first is not None
    assert (first.one.target, first.other.target, first.codes, first.first.index) == ("sm_100a", "sm_90a", 1, 7)
    assert int(first.first.got.bits, 16) ^ int(first.first.expected.bits, 16) == 1
    assert from_json(to_json(first)) == first


def test_under_exact_policies_one_fails_and_the_others_are_named(tmp_path):
    _, (split,) = run(tmp_path, Shifting("sm_90a"), "sm_80", "sm_90a", "sm_100a", **RCP)
    assert split.groups == (("sm_100a emulator", "sm_80 emulator"), ("sm_90a emulator",))
    assert split.failing == ("one sm_90a emulator",)
    assert "first at a=0x" in str(split)


def test_variants_with_equal_policies_are_compared(tmp_path):
    texts = {"one": "rcp.approx.f32 $0, $1;", "other": "rcp.approx.f32 $0, $1; xor.b32 $0, $0, 1;",
             "match": ", match=ulp(2)"}  # fmt: skip
    _, every = run(tmp_path, create("emulator"), "sm_80", variants=("one", "other"), **texts)
    found = [s for s in every if s.what == "one beside other"]
    assert len(found) == 1
    assert found[0].groups == (("sm_80 emulator",),)
    assert found[0].first is not None


def test_variants_with_different_policies_are_not_compared(tmp_path):
    path = tmp_path / "two.py"
    text = CASE.format(module="reciprocal", function="correctly_rounded", match="", **RCP)
    path.write_text(text.replace('mov.b32 $0, $0;"', 'xor.b32 $0, $0, 1;", match=ulp(2)'))
    (loaded,) = loader.load(path)
    items = [Item(loaded, variant, "sm_80", "emulator") for variant in ("one", "other")]
    results = [r for item in items for r in run_item(item, create("emulator"), "quick").results]
    assert splits(results) == []
    promised_alike = [replace(r, fingerprint={**r.fingerprint, "policy": "one"}) for r in results]
    assert {s.what for s in splits(promised_alike)} == {"one beside other"}, "the bits differ"


def test_a_block_of_a_large_set_is_run_again(tmp_path, monkeypatch):
    """A set too large to hold is compared only in a block whose digests differ."""
    monkeypatch.setattr("ptxdiff.running.item_plan.LARGE", 64)
    texts = {"one": "rcp.approx.f32 $0, $1;", "other": "rcp.approx.f32 $0, $1;", "match": ", match=ulp(2)"}
    backend = Shifting("sm_90a")
    results, _ = run(tmp_path, backend, "sm_80", "sm_90a", **texts)
    large = [r for r in results if not r.inputs_digest]
    assert {r.key.target for r in large} == {"sm_80", "sm_90a"}
    (loaded,) = loader.load(tmp_path / "square.py")
    agreement = Agreement(tmp_path, [case_info(loaded, "square.py")], lambda name: backend, "quick")
    (found, *_) = agreement.disagreements(large, splits(large))
    assert found.first.index == 7


def test_a_disagreement_is_reused_only_for_the_same_bits_of_the_same_items(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("ptxdiff.running.reuse._edited_meanwhile", lambda: False)
    texts = {"one": "rcp.approx.f32 $0, $1;", "other": "rcp.approx.f32 $0, $1;", "match": ", match=ulp(2)"}
    backend, ran = Shifting("sm_90a"), []
    results, _ = run(tmp_path, backend, "sm_80", "sm_90a", **texts)
    (loaded,) = loader.load(tmp_path / "square.py")

    class Counting:
        name = "emulator"

        def run(self, job):
            ran.append(job)
            return backend.run(job)

    def look(among, settings):
        info = [case_info(loaded, "square.py")]
        agreement = Agreement(tmp_path, info, lambda name: Counting(), "quick", settings=settings)
        before = len(ran)
        return agreement.disagreements(among, splits(among)), len(ran) - before

    first, jobs = look(results, ())
    assert first
    assert jobs == 2 * len(first)
    assert look(results, ()) == (first, 0)
    assert look(results, None) == (first, jobs), "nothing is reused"
    diskcache.find_nothing("pairs")  # as --ptx-fresh does
    assert look(results, ()) == (first, jobs)
    diskcache.find_nothing()
    assert look(results, ("another limit",)) == (first, jobs)
    bits = [replace(r, outputs_digest=tuple(replace(b, digest=f"{b.digest}{r.key.target}") for b in r.outputs_digest))
            for r in results]  # fmt: skip
    assert look(bits, ())[1] == 2 * len(splits(bits)), "other bits are examined anew"
    monkeypatch.setattr("ptxdiff.running.reuse._surroundings", lambda: "another harness")
    assert look(results, ()) == (first, jobs)


def test_the_lines_of_ptx_that_differ():
    one = ".version 8.8\n.target sm_80\nadd.f32 a, b, c; // x\nret;\n"
    other = ".version 8.9\n.target sm_90\nadd.f32 a, c, b;\nret;\n"
    assert ptx_lines(one, other) == ("-add.f32 a, b, c;", "+add.f32 a, c, b;")
    assert ptx_lines(one, one) == ()


def test_the_page_and_the_terminal_name_them(tmp_path):
    """`<b>` in PTX stays text, because a kernel's text is not trusted."""
    base = synthetic.catalogue(2, per_cell=2)
    seen = replace(base.results[0], inputs_digest="i", outputs_digest=(Block(0, 16, "one"),))
    first = synthetic.offender()
    other = replace(seen, key=replace(seen.key, target="sm_10x"), outputs_digest=(Block(0, 16, "another"),))
    one, two = sorted((seen.key, other.key))
    fact = Disagreement(one, two, 5, first, ("-add.f32 <b>, c;",))
    run = replace(base, results=[seen, *base.results[1:], other], disagreements=[fact])
    (split,) = [s for s in splits(run.results, [fact]) if "sm_10x" in str(s)]
    assert split.groups == ((f"sm_10x {seen.key.backend}",), (f"{seen.key.target} {seen.key.backend}",))
    page = html.write_history(*history([run]), tmp_path / "report.html", cache=diskcache.cache_folder())
    text = page.read_text(encoding="utf-8")
    assert "Targets and variants that give different bits" in text
    assert "-add.f32 &lt;b&gt;, c;" in text
    console = Console(width=300, file=io.StringIO(), record=True)
    console.print(terminal(run))
    assert f"≠ {split}"[:120] in console.export_text()
