"""With pytest-xdist, items that belong together run in one worker, and every item runs once."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from xdist.scheduler import loadscope

from ptxdiff.running.xdist_scheduling import FILES, Grouping

ELEMENTWISE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8

case = Case(
    inputs={"x": U8}, outputs={"y": U8}, reference=lambda x: x ^ 6,
    variants={
        "one": asm("xor.b32 $0, $1, 6;", constraints="=r,r"),
        "other": asm("xor.b32 $0, CONSTANT, $1;", constraints="=r,r"),
    },
)
"""
RIGHT, WRONG = ELEMENTWISE.replace("CONSTANT", "6"), ELEMENTWISE.replace("CONSTANT", "7")


@pytest.fixture
def spread(run_cases, pytester):
    """Run case files on two workers. Returns pytest's result, the workers of each variant, and the results' records."""
    pytester.makeconftest(
        """
        import os

        def pytest_runtest_logstart(nodeid):
            if worker := os.environ.get("PYTEST_XDIST_WORKER"):
                with open("ran.txt", "a") as file:
                    file.write(f"{nodeid.partition('@')[0]} {worker}\\n")
        """
    )

    def run(**files: str):
        record = Path(pytester.path / "run.jsonl")
        done = run_cases(
            "-n", "2", "--dist=loadgroup", "--ptx-target=sm_80", "--ptx-target=sm_90a", f"--ptx-records={record}",
            "cases", **files,
        )  # fmt: skip
        workers = defaultdict(set)
        for line in Path(pytester.path / "ran.txt").read_text().splitlines():
            item, _, worker = line.rpartition(" ")
            workers[item.partition("[")[0]].add(worker)
        results = [json.loads(line) for line in record.read_text().splitlines()]
        return done, workers, [r for r in results if r["record"] == "result"]

    return run


def test_a_variant_goes_to_one_worker_and_a_wrong_one_fails_alone(spread):
    """Each item runs once. If single items were groups, each worker would get every second item of a variant."""
    done, workers, results = spread(right=RIGHT, wrong=WRONG)
    assert sorted(workers) == [f"cases/{file}.py::{v}" for file in ("right", "wrong") for v in ("one", "other")]
    assert all(len(ran_by) == 1 for ran_by in workers.values())
    assert set().union(*workers.values()) == {"gw0", "gw1"}
    assert set(Counter(json.dumps(r["key"], sort_keys=True) for r in results).values()) == {1}
    verdicts = {(r["key"]["case"], r["key"]["variant"], r["key"]["target"]): r["verdict"] for r in results}
    assert len(verdicts) == 8
    assert {key for key, verdict in verdicts.items() if verdict != "pass"} == {
        ("wrong", "other", "sm_80"),
        ("wrong", "other", "sm_90a"),
    }
    assert done.ret == 1


def scheduled(names, workers, monkeypatch):
    """The groups of items, in the order in which workers get them."""
    option = SimpleNamespace(loadscopereorder=True, maxschedchunk=None)
    config = SimpleNamespace(getvalue=lambda name: ["popen"] * workers, option=option)
    monkeypatch.setattr(loadscope, "parse_tx_spec_config", lambda config: ["popen"] * workers)
    made = Grouping(config)
    nodes = [Node() for _ in range(workers)]
    for node in nodes:
        made.add_node(node)
        made.add_node_collection(node, names)
    given = []
    monkeypatch.setattr(made, "_assign_work_unit", lambda node: given.append(made.workqueue.popitem(last=False)))
    made.schedule()
    groups = dict([*given, *made.workqueue.items()])
    assert sorted(n for group in groups.values() for n in group) == sorted(names)
    return [sorted(group) for group in groups.values()]


class Node:
    """A stand-in for a worker of pytest-xdist."""

    gateway = SimpleNamespace(id="gw")
    shutting_down = False

    def shutdown(self):
        """Nothing to end."""


def named(file, variants, mark=""):
    return [f"cases/{file}.py::{v}[{t}-emulator]{mark}" for v in variants for t in ("sm_80", "sm_90a")]


def test_a_group_is_a_file_if_there_are_many(monkeypatch):
    names = [n for number in range(FILES) for n in named(f"case{number}", "ab" if number else "a")]
    groups = scheduled(names, 1, monkeypatch)
    assert groups == [*[sorted(named(f"case{n}", "ab")) for n in range(1, FILES)], named("case0", "a")]
    assert len(scheduled(names, 2, monkeypatch)) == 2 * FILES - 1


@pytest.mark.parametrize("mark", ["", "@case::a"])
def test_a_group_is_a_variant_if_there_are_few_files(mark, monkeypatch):
    """With the name that pytest-xdist adds, or without. Items of a test module are groups alone, and a user's mark
    counts."""
    own = [*named("theirs", "a", "@mine"), *named("theirs", "b", "@mine")]
    names = [*named("case", "a", mark), *named("case", "b", mark.replace("a", "b", 2)), "tests/test_x.py::test_y", *own]
    groups = scheduled(names, 2, monkeypatch)
    assert sorted(own) in groups
    assert ["tests/test_x.py::test_y"] in groups
    assert sorted(named("case", "a", mark)) in groups
