"""Asm that looks at a whole pack, where the last pack is partial: refused, unless the case says that it may."""

import pytest

from ptxdiff import Case, Domain, asm
from ptxdiff.backends import create
from ptxdiff.model.identity.definition import definition
from ptxdiff.model.load import LoadedCase
from ptxdiff.mutation.trial import trial_of
from ptxdiff.records import Mutation
from ptxdiff.records.kill_rate import BY_PADDING, kill_rate, totals
from ptxdiff.references.formats import F32, U8
from ptxdiff.running.item import Item, ItemResults
from ptxdiff.running.run import run_item

pytest.importorskip("torch")

SHORTER_WAY = "{ .reg .pred p; setp.eq.u32 p, $1, 0; @p mov.b32 $0, 0; @!p mov.b32 $0, $1; }"
TOO_SHORT = "{ .reg .pred p; setp.lt.u32 p, $1, 0x100; @p mov.b32 $0, 0; @!p mov.b32 $0, $1; }"
PADDING_AS_A_RESULT = "{ .reg .pred p; setp.eq.u32 p, $1, 0; @p mov.b32 $0, 0; @!p shr.u32 $0, $1, 24; }"


ONE = Domain("x is 1", lambda v: v["x"] == 1.0)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")


def results(text, folder, effort="quick", stop=False, **options):
    variant = asm(text, constraints="=&r,r", pack=4, **options)
    case = Case(inputs={"x": U8}, outputs={"y": U8}, reference=lambda x: x, variants={"v": variant}, source="a test")
    item = Item(LoadedCase(case, "copy", "case", folder / "c.py", ""), "v", "sm_90a", "emulator")
    return run_item(item, create("emulator"), effort, stop=stop)


def test_a_right_predicate_over_a_pack_fails_by_padding_alone(tmp_path):
    found = results(SHORTER_WAY, tmp_path)
    failed = [r for r in found.results if r.verdict == "fail"]
    assert failed
    for result in failed:
        assert result.padding_alone
        assert "undefined padding alone" in result.message
        assert "reads_padding=True" in result.message


def test_an_approximate_instruction_under_an_exact_policy_is_no_matter_of_padding(tmp_path):
    case = Case(
        inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: (x * 0) + 0x3F800000, where=ONE,
        variants={"v": asm("rcp.approx.f32 $0, $1;", pack=1)}, source="a test",
    )  # fmt: skip
    item = Item(LoadedCase(case, "one", "case", tmp_path / "c.py", ""), "v", "sm_90a", "emulator")
    failed = [r for r in run_item(item, create("emulator"), "quick").results if r.verdict == "fail"]
    assert failed
    assert not any(r.padding_alone or "undefined padding" in r.message for r in failed)


@pytest.mark.parametrize("effort", ["quick", "full"])
def test_it_passes_where_the_case_says_that_it_may_look(effort, tmp_path):
    found = results(SHORTER_WAY, tmp_path, effort, reads_padding=True)
    assert {r.verdict for r in found.results} == {"pass"}
    assert any(r.key.input_set.endswith("+padded") for r in found.results)


@pytest.mark.parametrize("text", [TOO_SHORT, PADDING_AS_A_RESULT])
@pytest.mark.parametrize("allowed", [True, False])
def test_wrong_code_fails_for_more_than_padding(text, allowed, tmp_path):
    """Whatever the case says about padding."""
    found = results(text, tmp_path, reads_padding=allowed)
    wrong = [r for r in found.results if r.verdict == "fail" and not r.padding_alone]
    assert wrong
    assert any(r.different for r in wrong)


def test_padding_alone_does_not_end_a_run_that_stops_at_the_first_failure(tmp_path):
    """A mutant that fails for that reason is no proof that the inputs show a mistake."""
    found = results(SHORTER_WAY, tmp_path, stop=True)
    assert trial_of(found).fate == "padding"
    assert trial_of(results(TOO_SHORT, tmp_path, stop=True)).fate == "killed"
    assert trial_of(ItemResults([r for r in found.results if r.verdict == "pass"])).fate == "survived"


def test_mutants_that_fail_by_padding_alone_are_counted_apart():
    found = [Mutation("c", "asm", "v", "sm_90a", killed={"operand": 3}, by_padding=2)]
    assert totals(found)[BY_PADDING] == 2
    assert kill_rate(found) == "3 of 3 wrong mutants killed (100.00%)"


def test_the_declaration_is_a_part_of_the_definition():
    variants = {n: asm(SHORTER_WAY, constraints="=&r,r", pack=4, reads_padding=n == "b") for n in "ab"}
    case = Case(inputs={"x": U8}, outputs={"y": U8}, reference=lambda x: x, variants=variants, source="a test")
    one, other = (definition(case, v) for v in variants.values())
    assert one != other
    assert "padding" not in one
