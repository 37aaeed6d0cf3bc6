"""Sweeps in shards: what dies, hangs or is stopped costs its own shard, and the rest is done the second time."""

import json
import sys

import pytest

from harness.cli import main
from harness.sweep.shards import Journal, JournalError, ShardResult, Task, part_of, sweep

TASK = Task("case.py", "case", "v", "gpu", "sm_90a", 1, 20, 16)

WORKER = """
import json, os, sys, time
for line in sys.stdin:
    shard = int(line)
    if shard == 3: os.abort()
    if shard == 5: time.sleep(60)
    if shard == 7: print("not json", flush=True)
    answer = {"shard": shard, "verdict": "pass", "total": 65536, "words": os.environ["CUDA_VISIBLE_DEVICES"]}
    print(json.dumps(answer), flush=True)
"""


def swept(tmp_path, wanted, worker=WORKER, **options):
    script = tmp_path / "worker.py"
    script.write_text(worker)
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, TASK, resume=path.exists())
    told = []
    command = (sys.executable, str(script))
    options = {"places": ("0", "1"), "timeout": 2.0} | options
    sweep(TASK, journal, wanted, on_result=told.append, command=command, **options)
    return journal, told


def test_a_worker_that_aborts_hangs_or_babbles_costs_its_shard_only(tmp_path):
    journal, _ = swept(tmp_path, range(10))
    verdicts = {s: r.verdict for s, r in sorted(journal.done.items())}
    assert verdicts == {s: "error" if s in (3, 5, 7) else "pass" for s in range(10)}
    assert "status -6" in journal.done[3].words
    assert "no answer in 2 s" in journal.done[5].words
    assert {r.words for r in journal.done.values() if r.verdict == "pass"} <= {"0", "1"}  # one GPU a worker


def test_a_second_start_does_what_is_missing_and_what_failed(tmp_path):
    swept(tmp_path, range(4))
    path = tmp_path / "journal.jsonl"
    lines = path.read_text().splitlines()
    done = {r["shard"] for r in map(json.loads, lines[1:-1]) if r["verdict"] == "pass"}
    path.write_text(path.read_text()[:-20])  # killed in the middle of a line: shards end in any order
    journal, told = swept(tmp_path, range(10), WORKER.replace("shard ==", "shard == -"))
    assert sorted(journal.done) == list(range(10))
    assert {r.verdict for r in journal.done.values()} == {"pass"}
    assert {r.shard for r in told} == set(range(10)) - done


def test_a_journal_of_another_sweep_is_refused(tmp_path):
    path = tmp_path / "j.jsonl"
    Journal(path, TASK, resume=False).write(ShardResult(1, "pass"))
    with pytest.raises(JournalError, match="--resume goes on"):
        Journal(path, TASK, resume=False)
    changed = Task("case.py", "case", "v", "gpu", "sm_90a", 1, 20, 16, {"reference": "other"})
    with pytest.raises(JournalError, match="another sweep"):
        Journal(path, changed, resume=True)
    with pytest.raises(JournalError, match="no journal"):
        Journal(tmp_path / "none.jsonl", TASK, resume=True)


def test_parts_share_the_shards():
    assert sorted([*part_of(10, "1/3"), *part_of(10, "2/3"), *part_of(10, "3/3")]) == list(range(10))
    with pytest.raises(ValueError, match="k/n"):
        part_of(10, "4/3")


CASE = '''
"""Negation."""
from harness import Case, asm
from references.formats import E4M3, F16

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


def test_the_command_sweeps_on_the_cpu_and_resumes(tmp_path, capsys):
    file = tmp_path / "negation.py"
    file.write_text(CASE)
    journal = tmp_path / "j.jsonl"
    words = ["--backend", "emulator", "--journal", str(journal), "--shard-bits", "16"]
    assert main(["sweep", f"{file}::right", *words, "--limit", "2"]) == 0
    assert main(["sweep", f"{file}::right", *words, "--limit", "1", "--resume"]) == 0
    assert "3 of 256 shards of 2^16 inputs: 3 pass" in capsys.readouterr().out
    lines = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert [line["shard"] for line in lines] == [0, 1, 2]
    assert (
        main(
            ["sweep", f"{file}::case::wrong", *words[:2], "--journal", str(tmp_path / "w"), *words[4:], "--limit", "1"]
        )
        == 1
    )
    assert "codes differ" in capsys.readouterr().out
    assert main(["sweep", f"{file}::absent", *words]) == 2
    assert "there are case::right, case::wrong" in capsys.readouterr().err
