"""Sweeps in shards: a process that dies, hangs or is stopped loses only its own shard, and a second run completes the
others."""

import contextlib
import functools
import json
import os
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ptxdiff.cli import main
from ptxdiff.processes.child import Device
from ptxdiff.processes.gpus import Gpu, lock_alone
from ptxdiff.processes.worker import resolve
from ptxdiff.sweep import shards
from ptxdiff.sweep.shards import Journal, JournalError, ShardResult, Task, part_of, sweep
from tests.support.sealed import sealed, unsealed

TASK = Task("case.py", "case", "v", "gpu", "sm_90a", 1, 20, 16)

GPUS = tuple(Gpu(name, "a GPU", f"GPU-{name}-test", "sm_90a", 0) for name in "01")


@pytest.fixture
def on_stand_in(monkeypatch, tmp_path):
    """Stand-ins for GPUs, without a CUDA context, with locks of their own."""
    monkeypatch.setattr(shards, "Device", functools.partial(Device, begin="ptxdiff.processes.child:ready"))
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "backends")
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


class Here:
    """In place of a watched process: calls run in this one, which has torch already."""

    def call(self, function, *arguments, limit):
        return resolve(function)(*arguments)

    def close(self):
        """Nothing to end."""

    stop = close


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(shards, "process_for", lambda place: Here())


def swept(tmp_path, wanted, work="answer", places=GPUS, timeout=2.0):
    path = tmp_path / "journal.jsonl"
    found = []
    with contextlib.closing(Journal(path, TASK, resume=path.exists())) as journal:
        sweep(TASK, journal, wanted, places=places, on_result=found.append, timeout=timeout, work=f"shard_tasks:{work}")
    return journal, found


@pytest.mark.sample(2)
@pytest.mark.parametrize("places", [GPUS, (None,)], ids=["gpu", "cpu"])
def test_a_process_that_aborts_hangs_or_raises_costs_its_shard_only(tmp_path, on_stand_in, places):
    journal, _ = swept(tmp_path, range(10), places=places)
    verdicts = {s: r.verdict for s, r in sorted(journal.done.items())}
    assert verdicts == {s: "error" if s in (3, 5, 7) else "pass" for s in range(10)}
    assert "aborted (SIGABRT)" in journal.done[3].words
    assert "no end after 2 s: the kernel hangs, or needs a greater --limit" in journal.done[5].words
    assert journal.done[7].words == "no such luck"
    if places == GPUS:
        seen = {r.words for r in journal.done.values() if r.verdict == "pass"}
        assert seen <= {"0", "1"}  # one GPU for each process


def test_a_second_start_runs_the_missing_and_the_failed_shards(tmp_path, on_stand_in):
    swept(tmp_path, range(4))
    path = tmp_path / "journal.jsonl"
    lines = path.read_text().splitlines()
    done = {r["shard"] for r in map(json.loads, lines[1:-1]) if r["verdict"] == "pass"}
    path.write_text(path.read_text()[:-20])  # killed in the middle of a line: shards end in any order
    journal, found = swept(tmp_path, range(10), "always")
    assert sorted(journal.done) == list(range(10))
    assert {r.verdict for r in journal.done.values()} == {"pass"}
    assert {r.shard for r in found} == set(range(10)) - done


def test_a_sweep_and_a_timing_on_one_gpu_wait_for_each_other(tmp_path, on_stand_in):
    """Both take the lock of the GPU, as all other work on it does."""
    with lock_alone(GPUS[0].uuid):
        running = threading.Thread(target=swept, args=(tmp_path, range(3), "always", GPUS[:1]))
        running.start()
        running.join(timeout=2.5)
        assert running.is_alive()
        assert len((tmp_path / "journal.jsonl").read_text().splitlines()) == 1  # its head
    running.join(timeout=60)
    assert len((tmp_path / "journal.jsonl").read_text().splitlines()) == 4


ADDITION = '''
"""Sums of bytes."""
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8

def total(x, y):
    return (x + y) & 255

case = Case(
    inputs={"x": U8, "y": U8}, outputs={"z": U8}, reference=total,
    variants={"right": asm("add.u32 $0, $1, $2;", "=r,r,r", pack=1), "other": asm("mov.b32 $0, $1;", "=r,r,r", pack=1)},
)
'''


@pytest.mark.slow
def test_the_command_sweeps_on_a_gpu_in_the_process_that_owns_it(tmp_path, on_stand_in, monkeypatch, capsys):
    """The stand-in adds the inputs and ignores the asm."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    monkeypatch.setattr("ptxdiff.processes.gpus.gpus", lambda: GPUS)
    monkeypatch.setattr(shards, "Device", functools.partial(Device, begin="device_stand_in:begin"))
    file = tmp_path / "sums.py"
    file.write_text(ADDITION)
    assert main(["sweep", f"{file}::right", "--journal", str(tmp_path / "j"), "--limit", "200"]) == 0
    assert "1 of 1 shards of 2^16 inputs: 1 pass" in capsys.readouterr().out
    assert "torch" not in sys.modules or not sys.modules["torch"].cuda.is_initialized()
    line = json.loads((tmp_path / "j").read_text().splitlines()[1])
    assert (line["verdict"], line["total"], line["different"]) == ("pass", 1 << 16, 0)


def test_a_second_sweep_into_the_same_journal_is_refused(tmp_path):
    with (
        contextlib.closing(Journal(tmp_path / "j", TASK, resume=False)),
        pytest.raises(JournalError, match=rf"j is being written by process {os.getpid()} on "),
    ):
        Journal(tmp_path / "j", TASK, resume=True)
    Journal(tmp_path / "j", TASK, resume=True).close()


def test_a_journal_of_another_sweep_is_refused(tmp_path):
    path = tmp_path / "j.jsonl"
    with contextlib.closing(Journal(path, TASK, resume=False)) as journal:
        journal.write(ShardResult(1, "pass"))
    with pytest.raises(JournalError, match="--resume goes on"):
        Journal(path, TASK, resume=False)
    changed = Task("case.py", "case", "v", "gpu", "sm_90a", 1, 20, 16, {"reference": "other"})
    with pytest.raises(JournalError, match="another sweep"):
        Journal(path, changed, resume=True)
    with pytest.raises(JournalError, match="no journal"):
        Journal(tmp_path / "none.jsonl", TASK, resume=True)


def test_a_journal_of_another_version_of_the_harness_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "j.jsonl"
    with contextlib.closing(Journal(path, TASK, resume=False)) as journal:
        journal.write(ShardResult(1, "pass"))
    monkeypatch.setattr(shards, "harness", lambda: "another")
    with pytest.raises(JournalError, match="another sweep"):
        Journal(path, TASK, resume=True)


def test_a_flipped_bit_in_a_journal_makes_no_pass(tmp_path):
    """The shard is refused or run again: no line with a flipped bit counts as a result."""
    path = tmp_path / "j.jsonl"
    written = {1: ("fail", 3), 2: ("pass", 0)}
    with contextlib.closing(Journal(path, TASK, resume=False)) as journal:
        for shard, (verdict, different) in written.items():
            journal.write(ShardResult(shard, verdict, total=1 << TASK.shard_bits, different=different))
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 7):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            journal = Journal(path, TASK, resume=True)
        except JournalError:
            continue
        journal.close()
        assert {s: (r.verdict, r.different) for s, r in journal.done.items()}.items() <= written.items(), bit


def test_parts_share_the_shards():
    assert sorted([*part_of(10, "1/3"), *part_of(10, "2/3"), *part_of(10, "3/3")]) == list(range(10))
    with pytest.raises(ValueError, match="k/n"):
        part_of(10, "4/3")


CASE = '''
"""Negation."""
from ptxdiff import Case, asm
from ptxdiff.references.formats import E4M3, F16

def reference(a, b):
    return a ^ 0x8000

case = Case(
    inputs={"a": F16, "b": E4M3}, outputs={"y": F16}, reference=reference, nan="payload",
    variants={
        "right": asm("xor.b32 $0, $1, 0x80008000;", "=r,r,r", pack=2),
        "wrong": asm("xor.b32 $0, $1, 0x80018000;", "=r,r,r", pack=2),
    },
)
'''


def test_the_command_sweeps_on_the_cpu_in_a_process_of_its_own(tmp_path, capsys):
    file = tmp_path / "negation.py"
    file.write_text(CASE)
    words = ["--backend", "emulator", "--journal", str(tmp_path / "j.jsonl"), "--shard-bits", "16", "--shards", "1"]
    assert main(["sweep", f"{file}::wrong", *words]) == 1
    assert "codes differ" in capsys.readouterr().out


def test_the_command_resumes(tmp_path, in_this_process, capsys):
    file = tmp_path / "negation.py"
    file.write_text(CASE)
    journal = tmp_path / "j.jsonl"
    words = ["--backend", "emulator", "--journal", str(journal), "--shard-bits", "16"]
    assert main(["sweep", f"{file}::right", *words, "--shards", "2"]) == 0
    assert main(["sweep", f"{file}::right", *words, "--shards", "1", "--resume"]) == 0
    assert "3 of 256 shards of 2^16 inputs: 3 pass" in capsys.readouterr().out
    lines = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert [line["shard"] for line in lines] == [0, 1, 2]
    wrong = [*words[:2], "--journal", str(tmp_path / "w"), *words[4:], "--shards", "1"]
    assert main(["sweep", f"{file}::case::wrong", *wrong]) == 1
    assert "codes differ" in capsys.readouterr().out
    assert main(["sweep", f"{file}::absent", *words]) == 2
    assert "there are case::right, case::wrong" in capsys.readouterr().err


def test_too_many_shards_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ptxdiff.cli.sweep.MOST", 200)
    file = tmp_path / "negation.py"
    file.write_text(CASE)
    words = ["sweep", f"{file}::right", "--backend", "emulator", "--journal", str(tmp_path / "j"), "--shard-bits", "16"]
    assert main(words) == 2
    assert "more than 200 shards to run; give greater --shard-bits" in capsys.readouterr().err


def test_a_sweep_whose_policy_judges_almost_no_codes_does_not_pass(tmp_path, in_this_process, capsys):
    """Every shard passes, because its policy lets nothing fail. The command reports this and exits with 1."""
    file = tmp_path / "negation.py"
    text = CASE.replace("Case, asm", "Case, asm, exact, magnitude")
    file.write_text(text.replace('nan="payload"', 'nan="payload", match=exact(on=magnitude("a", 3.0e-8, 4.0e-8))'))
    words = ["--backend", "emulator", "--journal", str(tmp_path / "j.jsonl"), "--shard-bits", "16", "--shards", "1"]
    assert main(["sweep", f"{file}::wrong", *words]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "match= of y promises next to nothing:" in output
    assert "fewer than 1 in 1000; widen it" in output


READING = """
from pathlib import Path
from ptxdiff import Case, asm
from ptxdiff.references.formats import U16

def moved(a):
    return (a + int((Path(__file__).parent / "k.txt").read_text())) & 0xFFFF

case = Case(
    inputs={"a": U16}, outputs={"y": U16}, reference=moved,
    variants={"v": asm("{ .reg .b32 t; cvt.u32.u16 t, $1; add.u32 t, t, 0; cvt.u16.u32 $0, t; }", constraints="=h,h")},
)
"""


def test_shards_are_not_carried_over_after_a_change_of_a_file_that_the_reference_opens(
    tmp_path, in_this_process, capsys
):
    """As with a resumed run: the journal holds digests of what the case's code has opened."""
    (tmp_path / "reading.py").write_text(READING)
    (tmp_path / "k.txt").write_text("0")
    words = ["sweep", f"{tmp_path / 'reading.py'}::v", "--backend", "emulator", "--journal", str(tmp_path / "j.jsonl")]
    assert main(words) == 0
    assert main([*words, "--resume"]) == 0
    (tmp_path / "k.txt").write_text("1")
    assert main([*words, "--resume"]) == 2
    assert "k.txt, which the case's code opened for shard 0, was changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"different": 7}, "the verdict of shard 1 is pass, but 7 codes differ"),
        ({"total": 0}, "judged 0 codes of 2^16 inputs"),
        ({"verdict": "passed"}, "unknown verdict"),
        ({"total": "65536"}, "counts that are none"),
        ({"approved": True}, "no result of a shard"),
        (None, "j.jsonl:2: Expecting"),
    ],
)
def test_a_shard_that_contradicts_itself_is_refused(tmp_path, edit, words):
    path = tmp_path / "j.jsonl"
    with contextlib.closing(Journal(path, TASK, resume=False)) as journal:
        journal.write(ShardResult(1, "pass", total=1 << TASK.shard_bits))
    Journal(path, TASK, resume=True).close()
    head, shard = unsealed(path.read_bytes())
    edited = [1] if edit is None else {**json.loads(shard), **edit}
    path.write_bytes(sealed([head, json.dumps(edited).encode()]))
    with pytest.raises(JournalError, match=re.escape(words)):
        Journal(path, TASK, resume=True)


def _judged(n):
    return {"y": {"codes": n, "judged": n, "ordinary": n, "ordinary_judged": n}}


def _exchanged(lines, name):
    lines[1][name], lines[2][name] = lines[2][name], lines[1][name]


def _renamed(lines):
    """The result of one shard stands for another's, too."""
    lines[2] = {**lines[1], "shard": lines[2]["shard"]}


EDITED = "edited, or is of another sweep"
# What is done to the objects of a journal with three shards, of which the second failed, and words of the refusal.
EDITS = {
    "a digest of bits": (lambda o: o[1].update(digest="0" * 16), EDITED),
    "digests of two shards": (lambda o: _exchanged(o, "digest"), EDITED),
    "numbers of two shards": (lambda o: _exchanged(o, "shard"), EDITED),
    "a shard under another number": (_renamed, EDITED),
    "a failure that became a pass": (lambda o: o[2].update(verdict="pass", different=0, classes={}), EDITED),
    "a failure with fewer codes": (lambda o: o[2].update(different=1), EDITED),
    "a failure without its offenders": (lambda o: o[2].update(offenders=[]), EDITED),
    "classes": (lambda o: o[2].update(classes={"NaN": 3}), EDITED),
    "judged shares": (lambda o: o[1].update(judged=_judged(1 << 16)), EDITED),
    "a total": (lambda o: o[1].update(total=1 << 17), EDITED),
    "inputs that were given": (lambda o: o[1].update(given="0"), EDITED),
    "a file that was opened": (lambda o: o[1].update(opened={}), EDITED),
    "a node": (lambda o: o[1].update(node="two"), EDITED),
    "seconds": (lambda o: o[1].update(seconds=0.0), EDITED),
    "words": (lambda o: o[1].update(words="fine"), EDITED),
    "a replay": (lambda o: o[2].update(replay=""), EDITED),
    "no digest of the line": (lambda o: o[1].pop("made"), EDITED),
    "another sweep's head": (lambda o: o[0]["sweep"].update(target="sm_100a"), "belongs to another sweep"),
    "another definition": (lambda o: o[0]["sweep"].update(fingerprint={"a": "0"}), "belongs to another sweep"),
    "another harness": (lambda o: o[0].update(harness="0"), "belongs to another sweep"),
    "no head": (lambda o: o.pop(0), "belongs to another sweep"),
    "two journals": (lambda o: o.extend(list(o)), "no result of a shard"),
    "a shard twice": (lambda o: o.append(o[1]), "has two results"),
    "a shard that the sweep does not have": (lambda o: o[1].update(shard=99), "there is no shard 99"),
}  # fmt: skip


def a_journal(path, task=TASK):
    with contextlib.closing(Journal(path, task, resume=False)) as journal:
        opened = {str(path.parent / "none.txt"): ""}
        facts = {"total": 1 << TASK.shard_bits, "given": "g", "opened": opened, "node": "one"}
        journal.write(ShardResult(1, "pass", digest="1", judged=_judged(9), seconds=2.5, **facts))
        failing = {"different": 5, "classes": {"NaN": 5}, "offenders": ["x"], "replay": "x"}
        journal.write(ShardResult(2, "fail", digest="2", **failing, **facts))
        journal.write(ShardResult(3, "pass", digest="3", **facts))


def rewritten(path, edit):
    """Edit a journal's objects, and give its lines right checksums."""
    objects = [json.loads(line) for line in unsealed(path.read_bytes())]
    edit(objects)
    path.write_bytes(sealed([json.dumps(o).encode() for o in objects]))


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_journal_is_refused_even_if_its_checksums_are_right(tmp_path, monkeypatch, name):
    monkeypatch.setattr(shards, "changed_files", lambda *_: [])
    a_journal(tmp_path / "j.jsonl")
    edit, words = EDITS[name]
    rewritten(tmp_path / "j.jsonl", edit)
    with pytest.raises(JournalError, match=words):
        Journal(tmp_path / "j.jsonl", TASK, resume=True)


def test_a_line_of_another_sweep_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "changed_files", lambda *_: [])
    a_journal(tmp_path / "j.jsonl")
    a_journal(tmp_path / "other.jsonl", replace(TASK, target="sm_100a"))
    line = json.loads(unsealed((tmp_path / "other.jsonl").read_bytes())[2])
    rewritten(tmp_path / "j.jsonl", lambda o: o.__setitem__(2, line))
    with pytest.raises(JournalError, match=EDITED):
        Journal(tmp_path / "j.jsonl", TASK, resume=True)


def test_shards_that_are_gone_run_again_and_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "changed_files", lambda *_: [])
    a_journal(tmp_path / "j.jsonl")
    rewritten(tmp_path / "j.jsonl", lambda o: o.__delitem__(slice(1, 3)))
    with contextlib.closing(Journal(tmp_path / "j.jsonl", TASK, resume=True)) as journal:
        assert journal.missing(range(4)) == [0, 1, 2]
