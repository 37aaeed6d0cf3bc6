"""The committed ledger, entries made from measurements, and which changes end an entry's confirmation."""

import ast
import json
from datetime import date

import pytest

from ptxdiff.conformance import bounds, forms, ledger
from ptxdiff.conformance.fetch import Identity
from ptxdiff.conformance.ledger import Campaign, Entry, Ledger, LedgerError, text_of
from ptxdiff.conformance.measure import Tally, WrongInput

IDENTITY = Identity("A GPU", "sm_90a", "1.2", "12.9")
RUN = Campaign("A GPU", "sm_90a", "1.2", "12.9", "2026-01-02")


def ledger_of(*entries):
    return Ledger({"1": RUN}, {e.form: e for e in entries})


def confirmed(form):
    return Entry(form, ledger.CONFIRMED, "1", inputs=5, definition=ledger.digest(form))


def test_the_committed_ledger_is_canonical():
    """Reading and writing it changes nothing: it is valid and sorted, with one line for each form and no empty
    values."""
    text = ledger.PATH.read_text(encoding="utf-8")
    assert ledger.read().text() == text
    lines = [json.loads(line) for line in text.splitlines()[1:]]
    assert [line["form"] for line in lines] == sorted(line["form"] for line in lines)


def test_every_form_of_the_registry_has_an_entry():
    entries = ledger.current()
    assert list(entries) == list(ledger.known())
    for form, entry in entries.items():
        assert entry.status in ledger.STATUSES
        assert entry.why or entry.inputs, f"{form}: neither measured nor a reason"


def test_the_committed_ledger_has_the_current_definitions():
    entries = ledger.read().entries.values()
    assert [e.form for e in entries if e.definition and e.definition != ledger.digest(e.form)] == []


def test_entries_of_the_committed_ledger_say_what_their_status_needs():
    book = ledger.read()
    for entry in book.entries.values():
        measured = entry.status in (ledger.CONFIRMED, ledger.MEASURED, ledger.MISMATCH)
        assert measured == bool(entry.inputs and entry.definition and entry.run in book.runs), entry.form
        assert (entry.status == ledger.MISMATCH) == bool(entry.mismatches and entry.offenders), entry.form
        assert (entry.status == ledger.MEASURED) <= (entry.ulp is not None), entry.form
        assert entry.emulated <= entry.inputs, entry.form
        assert entry.bound == bounds.bound(entry.form), entry.form


def test_what_the_device_lacks_is_specification_only():
    book = ledger.updated(Ledger(), outcome(), date(2026, 1, 2))
    entry = book.entries["cvt.rn.satfinite.e2m1x2.f32"]
    assert entry.status == ledger.SPECIFICATION
    assert "sm_100f" in entry.why
    assert book.entries["ret"].status == ledger.UNCONFIRMED
    assert set(book.entries) == set(ledger.known())


def outcome(**tallies):
    from ptxdiff.conformance.campaign import Measured

    return Measured(IDENTITY, {t[0].form: t for t in tallies.values()})


def test_measurements_become_entries():
    wrong = WrongInput("", ("0x1",), ("0x2",), ("0x3",))
    exact = [Tally("add.u32", "", edges=10, hosted=20, reached=1000)]
    different = [Tally("sub.u32", "", reached=1000, mismatches=7, offenders=[wrong])]
    approximate = [Tally("rcp.approx.f32", "", reached=1 << 32, total=1 << 32, distance=1, worst=wrong)]
    refused = [Tally("clz.b32", "", refused="no such thing")]
    book = ledger.updated(Ledger(), outcome(a=exact, b=different, c=approximate, d=refused), date(2026, 1, 2))
    found = book.entries
    assert (found["add.u32"].status, found["add.u32"].inputs) == (ledger.CONFIRMED, 1010)
    assert (found["add.u32"].emulated, found["add.u32"].exhaustive) == (30, False)
    assert (found["sub.u32"].status, found["sub.u32"].mismatches) == (ledger.MISMATCH, 7)
    assert found["sub.u32"].offenders[0]["got"] == ["0x3"]
    assert (found["rcp.approx.f32"].status, found["rcp.approx.f32"].ulp) == (ledger.MEASURED, 1)
    assert found["rcp.approx.f32"].exhaustive
    assert found["rcp.approx.f32"].bound == "1 ulp"
    assert (found["clz.b32"].status, found["clz.b32"].why) == (ledger.UNCONFIRMED, "no such thing")
    assert book.runs == {"1": RUN}


@pytest.mark.slow
def test_forms_not_measured_again_keep_their_entries():
    first = ledger.updated(Ledger(), outcome(a=[Tally("add.u32", "", reached=10)]), date(2026, 1, 2))
    second = ledger.updated(first, outcome(a=[Tally("sub.u32", "", reached=10)]), date(2026, 1, 3))
    assert second.entries["add.u32"] == first.entries["add.u32"]
    assert second.entries["sub.u32"].run == "2"
    assert set(second.runs) == {"1", "2"}
    third = ledger.updated(second, outcome(a=[Tally("add.u32", "", reached=10)]), date(2026, 1, 3))
    assert set(json.loads(third.text().splitlines()[0])["runs"]) == {"2"}, "a run without entries is removed"


def test_changes_name_the_entries_that_differ():
    before = {f: Entry(f, ledger.CONFIRMED, inputs=1) for f in ("a", "b")}
    after = {"a": Entry("a", ledger.CONFIRMED, inputs=9), "b": Entry("b", ledger.MISMATCH, mismatches=1)}
    assert set(ledger.changes(before, after)) == {"b"}


def test_a_ledger_confirms_forms_only_if_it_confirms_each():
    digest = ledger.digest("sub.rn.f32")
    mismatch = Entry("sub.rn.f32", ledger.MISMATCH, "1", mismatches=1, definition=digest)
    book = ledger_of(confirmed("add.rn.f32"), confirmed("mul.rn.f32"), mismatch)
    assert ledger.confirmed(("add.rn.f32", "mul.rn.f32"), book)
    assert not ledger.confirmed(("add.rn.f32", "sub.rn.f32"), book)
    assert not ledger.confirmed(("add.rn.f32", "fma.rn.f32"), book)
    assert ledger.confirmed(("ld.global.b32", "add.rn.f32", "st.global.b32", "bra", "ret"), book)
    assert not ledger.confirmed(("shfl.sync.bfly.b32",), book)


def test_the_evidence_of_a_pass_is_what_the_committed_ledger_says():
    from ptxdiff.backends.compiled import evidence_of

    specified = "cvt.rn.satfinite.e2m1x2.f32"
    assert ledger.current()[specified].status == ledger.SPECIFICATION
    assert evidence_of(("add.rn.f32", "mul.rn.f32", "ret"), (), "sm_80") == "confirmed"
    assert evidence_of(("add.rn.f32", specified), (), "sm_80") == "specification"


def test_a_changed_definition_is_no_longer_confirmed():
    book = ledger_of(Entry("add.rn.f32", ledger.CONFIRMED, "1", inputs=5, definition="00000000"))
    assert not ledger.confirmed(["add.rn.f32"], book)
    entry = ledger.current(book)["add.rn.f32"]
    assert entry.status == ledger.UNCONFIRMED
    assert "changed" in entry.why


def test_digest_follows_code_and_constants_and_nothing_else():
    assert ledger.digest("add.rn.f32") != ledger.digest("add.rz.f32")
    assert ledger.digest("add.rn.f32") == ledger.digest("add.f32"), "the same code with the same constants"

    def commented():
        def one(a):
            """Twice."""
            return 2 * a  # a comment

        return one

    def bare():
        def one(a):
            return 2 * a

        return one

    def other():
        def one(a):
            return 3 * a

        return one

    made = [make() for make in (commented, bare, other)]
    for function in made:
        function.__qualname__ = "one"
    digests = [ledger.code_digest(function) for function in made]
    assert digests[0] == digests[1] != digests[2]


def test_a_digest_follows_every_function_that_a_definition_calls(monkeypatch):
    function = forms.bounds_of()["add.rn.f32"].form.function
    code, plain, called = ledger.code_digest.__wrapped__, ledger._plain, []
    monkeypatch.setattr(ledger, "_plain", lambda f, text: called.append(f) or plain(f, text))
    before = code(function)
    assert len(called) > 1
    for changed in called[:]:
        monkeypatch.setattr(
            ledger, "_plain", lambda f, text, changed=changed: plain(f, text) + " changed" * (f is changed)
        )
        assert code(function) != before, changed


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"ledger":9,"runs":{}}'], "version 9"),
        (['{"ledger":1,"runs":{}}', "nonsense"], "line 2"),
        (['{"ledger":1,"runs":{}}', '{"form":"a","status":"splendid"}'], "line 2"),
        (['{"ledger":1,"runs":{}}', '{"form":"a","status":"confirmed","run":"7"}'], "unknown status or run"),
        (['{"ledger":1,"runs":{}}', '{"form":"a","status":"confirmed","colour":"red"}'], "colour"),
    ],
)
def test_a_ledger_that_cannot_be_read_says_where(tmp_path, lines, words):
    path = tmp_path / "ledger.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(LedgerError, match=words):
        ledger.read(path)


def test_one_form_is_found_without_naming_all():
    known = ledger.known()
    assert {name: ledger.bound_of(name) for name in known} == dict(known)
    assert ledger.bound_of("add.rn.f128") is None
    assert ledger.bound_of("nothing") is None
    with pytest.raises(KeyError):
        ledger.digest("add.rn.f128")


def test_the_text_of_code_is_the_same_in_every_version_of_python():
    """Python 3.12 chose other quotes for f-strings, so that no form with memory was believed there."""
    code = ast.parse("""text = f"{names['a']}: {size!r:>{width}} isn't {{known}}" """.strip())
    assert text_of(code) == "text = ((names['a'], -1), ': ', (size, 114, ('>', (width, -1))), \" isn't {known}\")"
