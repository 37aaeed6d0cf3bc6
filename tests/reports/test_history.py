"""The history of changes: it has the planted ones with their nights, and no others."""

import dataclasses
import os
from concurrent.futures.process import BrokenProcessPool

import pytest

from ptxdiff.records import RecordError, Writer
from ptxdiff.records.texts import without_appendix
from ptxdiff.reports import history as history_module
from ptxdiff.reports.history import folder, history
from tests.support.reports import synthetic


@pytest.fixture(scope="module")
def base():
    return synthetic.catalogue(8, ("sm_80", "sm_86", "sm_90a", "sm_100a"), per_cell=5)


def test_each_planted_change_is_found_on_its_night_and_nothing_else(base):
    found, newest = history(synthetic.nights(base))
    by_kind = {c.kind: c for c in found.changes}
    assert len(found.changes) == len(by_kind) == 5
    for planted, kind in (
        ("bits", "bits"),
        ("ulp", "ulp"),
        ("speed", "speed"),
        ("spill", "spill"),
        ("target", "vanished"),
    ):
        plan, change = synthetic.PLANTED[planted], by_kind[kind]
        assert change.night == plan["night"]
        assert change.case == plan.get("case", "")
        assert change.targets == (plan["target"],)
    assert by_kind["ulp"].before == "1 ulp"
    assert by_kind["ulp"].after == "2 ulp"
    assert by_kind["speed"].worse
    assert by_kind["spill"].worse
    assert by_kind["vanished"].worse
    assert by_kind["bits"].worse is None
    assert {c.kind for c in found.standing} == set(by_kind)
    assert newest.run.started.startswith("2026-03-30")


def test_a_quiet_history_is_quiet(base):
    found, _ = history(synthetic.nights(base, planted={}))
    assert found.changes == []
    assert found.standing == []


def test_a_run_with_a_narrower_selection_has_no_vanished_items(base):
    def called(run, *words):
        return dataclasses.replace(run, run=dataclasses.replace(run.run, arguments=words))

    def rcp_of(run):
        return dataclasses.replace(run, results=[r for r in run.results if r.key.case == "rcp"])

    first, second, third, fourth = synthetic.nights(base, 4, planted={})
    part = called(rcp_of(second), "cases", "-k", "rcp", "--ptx-records=b.jsonl", "-n", "2")
    whole = called(first, "cases", "--ptx-records=a.jsonl", "-n", "4")
    found, _ = history([whole, part])
    (change,) = found.standing
    assert (change.kind, change.worse, change.after) == ("vanished", None, "not asked for")
    assert "this run was asked for cases -k rcp" in change.detail
    # A later whole run is compared with the last whole run: items that only that one has are vanished.
    found, _ = history([whole, part, called(third, "cases")])
    assert found.standing == []
    found, _ = history(
        [whole, part, called(rcp_of(third), "cases"), called(rcp_of(fourth), "cases", "-n0", "--ptx-limit", "30")]
    )
    assert {(c.kind, c.worse, c.night) for c in found.standing} == {("vanished", True, 2)}


def test_the_first_failing_night_is_named(base):
    nights = list(synthetic.nights(base, 6, planted={}))
    for n in (1, 3, 4, 5):
        nights[n] = dataclasses.replace(nights[n], results=[_fails(r) for r in nights[n].results])
    found, _ = history(nights)
    assert found.since == {("rcp", "asm.rn", "sm_80", "emulator"): 3}
    first, back, again = sorted((c for c in found.changes if c.kind == "verdict"), key=lambda c: c.night)
    assert (first.night, first.ended, first.worse) == (1, 2, True)
    assert (back.night, back.worse) == (2, False)
    assert (again.night, again.ended) == (3, None)


def _fails(r):
    where = (r.key.case, r.key.variant, r.key.target, r.key.backend)
    return synthetic.failing(r) if where == ("rcp", "asm.rn", "sm_80", "emulator") else r


def test_a_target_that_comes_back_closes_its_change(base):
    nights = list(synthetic.nights(base, 5, planted={}))
    nights[2] = dataclasses.replace(nights[2], results=[r for r in nights[2].results if r.key.target != "sm_80"])
    found, _ = history(nights)
    (gone,) = (c for c in found.changes if c.kind == "vanished")
    assert (gone.night, gone.ended) == (2, 3)
    assert found.standing == []


def test_a_run_that_was_cut_short_makes_nothing_vanish(base):
    nights = list(synthetic.nights(base, 3, planted={}))
    nights[2] = dataclasses.replace(nights[2], results=nights[2].results[:50], end=None)
    found, _ = history(nights)
    assert [c for c in found.changes if c.kind == "vanished"] == []
    assert found.nights[2].word == "cut short"


@pytest.mark.parametrize(
    ("keep", "subject"),
    [
        (lambda k: k.case != "rcp", ("rcp", "", ())),
        (lambda k: k.backend != "gpu", ("", "", ("gpu",))),
        (
            lambda k: (k.case, k.variant, k.target) != ("rcp", "triton", "sm_80"),
            ("rcp", "triton", ("assembler", "emulator")),
        ),
    ],
)
def test_a_whole_target_case_or_backend_that_vanishes_is_one_change(base, keep, subject):
    nights = list(synthetic.nights(base, 2, planted={}))
    nights[1] = dataclasses.replace(nights[1], results=[r for r in nights[1].results if keep(r.key)])
    found, _ = history(nights)
    (change,) = (c for c in found.changes if c.kind == "vanished")
    assert (change.case, change.variant, change.backends) == subject


def test_bits_on_other_inputs_are_not_compared(base):
    nights = list(synthetic.nights(base, 2, planted={}))
    nights[1].results[:] = [
        dataclasses.replace(r, inputs_digest="others", outputs_digest=r.outputs_digest[::-1]) for r in nights[1].results
    ]
    assert history(nights)[0].changes == []


def test_runs_given_in_any_order_are_sorted(base):
    nights = list(synthetic.nights(base, 4, planted={}))
    found, newest = history(nights[::-1])
    assert [n.started for n in found.nights] == sorted(n.started for n in found.nights)
    assert newest is nights[-1]


def test_a_changed_environment_is_listed(base):
    nights = list(synthetic.nights(base, 2, planted={}))
    nights[1].run.environment["driver"] = "580.1"
    found, _ = history(nights)
    assert found.environment_changes(1) == ["driver: 570.86.15 → 580.1"]
    assert found.environment_changes(0) == []


def stored(night, path, shared=False):
    writer = Writer(path, shared=shared)
    writer.write(night.run, *night.cases.values(), *night.texts.values(), *night.results, *night.timings)
    if night.end:
        writer.write(night.end)
    writer.close()


def test_a_folder_is_read_in_the_order_of_the_runs_not_of_the_names(base, tmp_path):
    for name, night in zip(("b.jsonl", "a.jsonl.zst"), synthetic.nights(base, 2, planted={}), strict=True):
        stored(night, tmp_path / name)
    first, newest = folder(tmp_path)
    assert [first.started[:10], newest.run.started[:10]] == ["2026-03-01", "2026-03-02"]
    assert newest.results == sorted(base.results, key=lambda r: r.key.item)


class Kept(dict):
    """Facts of nights by their inputs. read: how many were found."""

    read = 0

    def get(self, *parts):
        found = dict.get(self, parts)
        self.read += found is not None
        return found

    def put(self, data, *parts):
        self[parts] = data


@pytest.mark.sample(2)
@pytest.mark.parametrize(("form", "least"), [(".jsonl", 6), (".jsonl.zst", 1)], ids=["plain", "with summaries"])
def test_the_history_of_a_folder_is_that_of_its_runs_kept_or_not(base, tmp_path, form, least):
    """Bits change, change back, and change again; a variant is missing in between; one run has no end."""
    planted = list(synthetic.nights(base, 30))
    runs = [planted[n] for n in (0, 14, 0, 1, 27, 2, 29)]
    runs = [
        dataclasses.replace(r, run=dataclasses.replace(r.run, started=f"2026-04-0{n + 1}T02:00:00Z"))
        for n, r in enumerate(runs)
    ]
    runs[3] = dataclasses.replace(runs[3], results=runs[3].results[:-40], end=None)
    expected, _ = history(runs)
    assert {c.kind for c in expected.changes} >= {"bits", "ulp", "vanished", "new"}
    for n, run in enumerate(runs):
        stored(run, tmp_path / f"{n}{form}", shared=form.endswith("zst"))
    kept = Kept()
    for reads in (0, least):
        before = kept.read
        found, newest = history(folder(tmp_path, kept))
        assert (found.changes, found.since, found.series) == (expected.changes, expected.since, expected.series)
        assert found.nights == expected.nights
        assert len(newest.texts) == len(base.texts)
        assert kept.read - before >= reads
    (tmp_path / f"2{form}").unlink()
    stored(dataclasses.replace(runs[4], run=runs[2].run), tmp_path / f"2{form}", shared=form.endswith("zst"))
    assert history(folder(tmp_path, kept))[0].changes != expected.changes


@pytest.mark.slow
def test_a_history_of_runs_that_ended_reads_lines_where_bits_changed_alone(base, tmp_path, monkeypatch):
    """Of the earlier runs: the newest is always read from its lines."""
    planted = list(synthetic.nights(base))
    for n, night in enumerate(planted):
        stored(night, tmp_path / f"{n:02}.jsonl.zst", shared=True)
    lines_read = []
    monkeypatch.setattr(history_module, "_made", lambda file: lines_read.append(int(file.name[:2])) or MADE(file))
    expected, _ = history(planted)
    found, newest = history(folder(tmp_path))
    assert (found.changes, found.since, found.series) == (expected.changes, expected.since, expected.series)
    assert (found.nights, found.states) == (expected.nights, expected.states)
    assert newest.results == sorted(planted[-1].results, key=lambda r: r.key.item)
    assert sorted(lines_read) == [0, *sorted(c.night for c in expected.changes if c.kind in ("bits", "ulp"))]


@pytest.mark.parametrize("place", [0.2, 0.5, 0.9])
def test_a_run_edited_under_its_summary_is_refused(base, tmp_path, place):
    """One byte of its compressed lines, which nobody would read again if the summary were believed."""
    for n, night in enumerate(synthetic.nights(base, 3, planted={})):
        stored(night, tmp_path / f"{n}.jsonl.zst", shared=True)
    path = tmp_path / "1.jsonl.zst"
    data = bytearray(path.read_bytes())
    data[round(place * len(without_appendix(bytes(data))[0]))] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(RecordError, match="changed after"):
        history(folder(tmp_path))


def test_an_edited_run_of_a_history_is_refused_although_its_facts_are_kept(base, tmp_path):
    kept = Kept()
    for n, night in enumerate(synthetic.nights(base, 3, planted={})):
        stored(night, tmp_path / f"{n}.jsonl")
    history(folder(tmp_path, kept))
    path = tmp_path / "1.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"verdict":"pass"', b'"verdict":"fail"', 1))
    with pytest.raises(RecordError, match="the checksum is wrong"):
        history(folder(tmp_path, kept))


@pytest.fixture
def forked(monkeypatch):
    """Small files too are read in other processes; returns the files that were."""
    files = []
    begun = history_module._begun

    def noted(nights):
        pool = begun(nights)
        files.extend(n.file.name for n in nights if n.coming is not None)
        return pool

    monkeypatch.setattr(history_module, "FORKED_FROM", 0)
    monkeypatch.setattr(history_module, "_begun", noted)
    monkeypatch.setattr(history_module.threading, "active_count", lambda: 1)
    monkeypatch.setattr(history_module.os, "sched_getaffinity", lambda pid: {0, 1})
    return files


def test_a_history_read_in_other_processes_is_the_same(base, tmp_path, forked):
    planted = list(synthetic.nights(base, 6))
    for n, night in enumerate(planted):
        stored(night, tmp_path / f"{n}.jsonl")
    kept = Kept()
    expected, _ = history(planted)
    for store in (None, kept, kept):
        found, _ = history(folder(tmp_path, store))
        assert (found.changes, found.since, found.series) == (expected.changes, expected.since, expected.series)
    assert forked == [f"{n}.jsonl" for n in range(5)] * 2  # the third time, all facts are kept


def test_an_edited_run_is_refused_in_another_process_too(base, tmp_path, forked):
    for n, night in enumerate(synthetic.nights(base, 4, planted={})):
        stored(night, tmp_path / f"{n}.jsonl")
    path = tmp_path / "1.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"verdict":"pass"', b'"verdict":"fail"', 1))
    with pytest.raises(RecordError, match=r"1\.jsonl:\d+: the checksum is wrong"):
        history(folder(tmp_path))
    assert "1.jsonl" in forked


HERE, MADE = os.getpid(), history_module._made


def ended_elsewhere(file):
    if os.getpid() != HERE:
        os._exit(1)
    return MADE(file)


def test_a_run_whose_process_was_ended_is_read_here(base, tmp_path, forked, monkeypatch):
    planted = list(synthetic.nights(base, 4))
    for n, night in enumerate(planted):
        stored(night, tmp_path / f"{n}.jsonl")
    monkeypatch.setattr(history_module, "_made", ended_elsewhere)
    assert history(folder(tmp_path))[0].changes == history(planted)[0].changes
    assert forked


def test_files_are_read_here_if_a_process_was_ended_before_they_were_sent(base, tmp_path, forked, monkeypatch):
    def submit(*given):
        raise BrokenProcessPool

    planted = list(synthetic.nights(base, 4))
    for n, night in enumerate(planted):
        stored(night, tmp_path / f"{n}.jsonl")
    monkeypatch.setattr(history_module.ProcessPoolExecutor, "submit", submit)
    assert history(folder(tmp_path))[0].changes == history(planted)[0].changes


def test_no_run_at_all_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no run"):
        history([])
    with pytest.raises(RecordError, match="no records"):
        list(folder(tmp_path))


def test_a_change_names_the_commits_between_which_its_cause_lies(base):
    found, _ = history(synthetic.nights(base))
    by_kind = {c.kind: c for c in found.changes}
    revisions = [night.revision for night in found.nights]
    for kind, change in by_kind.items():
        span = found.span(change)
        assert (span.good, span.bad) == (found.nights[change.night - 1], found.nights[change.night]), kind
        assert span.commits == f"{revisions[change.night - 1]}..{revisions[change.night]}"
        assert span.address == f"https://example.org/team/kernels/compare/{span.commits.replace('..', '...')}"
        assert (span.same, span.between, span.uncommitted) == (False, 0, False)
    assert span.bad.subject == f"Change {span.bad.revision[:4]}"
    assert span.bad.commit == f"https://example.org/team/kernels/commit/{span.bad.revision}"


def test_runs_that_lacked_the_item_widen_the_range_and_one_commit_is_not_its_own_cause(base):
    nights = list(synthetic.nights(base, 4, planted={}))
    for n in (1, 2):  # the item did not run in these
        nights[n] = dataclasses.replace(
            nights[n],
            results=[r for r in nights[n].results if r.key.case != "rcp"],
            run=dataclasses.replace(nights[n].run, arguments=("-k", "not rcp")),
        )
    nights[3] = dataclasses.replace(nights[3], results=[_fails(r) for r in nights[3].results])
    found, _ = history(nights)
    change = next(c for c in found.changes if c.kind == "verdict")
    span = found.span(change)
    assert (change.last, change.night, span.between) == (0, 3, 2)
    same = synthetic.environment(found.nights[0].revision)
    nights[3] = dataclasses.replace(nights[3], run=dataclasses.replace(nights[3].run, environment=same))
    found, _ = history(nights)
    span = found.span(next(c for c in found.changes if c.kind == "verdict"))
    assert (span.same, span.commits, span.address) == (True, "", "")
    same["git"]["dirty"] = True
    found, _ = history(nights)
    span = found.span(next(c for c in found.changes if c.kind == "verdict"))
    assert (span.same, span.uncommitted) == (False, True)


@pytest.mark.parametrize("web", ["javascript:alert(1)", 'https://a.b/c"onclick=', "http://a.b/c", "https://a.b", 7])
def test_only_an_address_of_a_repository_becomes_a_link(base, web):
    nights = list(synthetic.nights(base, 2, planted={}))
    nights[1].run.environment["git"]["web"] = web
    found, _ = history(nights)
    assert found.nights[1].commit == ""


def test_each_case_has_its_states_over_all_nights(base):
    nights = list(synthetic.nights(base, 5, planted={}))
    nights[3] = dataclasses.replace(nights[3], results=[_fails(r) for r in nights[3].results])
    nights[4] = dataclasses.replace(nights[4], results=[r for r in nights[4].results if r.key.case != "rcp"])
    found, _ = history(nights)
    assert [(s.name, first, last) for s, first, last in found.trend("rcp")] == [
        ("pass", 0, 2), ("fail", 3, 3), ("absent", 4, 4)
    ]  # fmt: skip
    assert [(s.name, first, last) for s, first, last in found.trend("tanh")] == [("pass", 0, 4)]
