"""Results of earlier runs: reused if nothing has changed, and after no change with which wrong code could pass."""

from __future__ import annotations

import colorsys
import json
from contextlib import closing
from dataclasses import replace

import pytest

from ptxdiff.model.load import load
from ptxdiff.processes.pool import Pool
from ptxdiff.running import reuse
from ptxdiff.running import run as running
from ptxdiff.running.item import Item
from ptxdiff.triton.builds import installation
from tests.support.case_sources import RIGHT
from tests.support.running.repeated_runs import CASE, HELPER, runs
from tests.support.sampling import paired

__all__ = ["runs"]


def comparable(found):
    """The results of a run, without the fields in which all runs differ."""
    names = ("key", "verdict", "outputs_digest", "inputs_digest", "message", "asm", "identity", "evidence")
    return [{n: r.get(n) for n in names} for r in found if r["record"] == "result"]


def test_the_second_run_reuses_all_and_names_the_first(runs):
    first, ran, before = runs()
    assert len(ran) == 3
    again, ran, after = runs()
    assert (
        again == first == {("right", "sm_100a"): "pass", ("wrong", "sm_100a"): "fail", ("only new", "sm_100a"): "pass"}
    )
    assert ran == []
    (run,) = {r["run_id"] for r in before if r["record"] == "run"}
    results = [r for r in after if r["record"] == "result"]
    assert {r["reused"] for r in results} == {run}
    assert not any("reused" in r for r in before)
    assert comparable(after) == comparable(before)
    assert {r["hash"] for r in after if r["record"] == "text"} == {r["hash"] for r in before if r["record"] == "text"}


EDITS = {
    "variant": ({"case": CASE.replace('$1, 6;", con', '$1, 7;", con')}, {"right": "fail"}),
    "reference": ({"case": CASE.replace("x ^ mask()", "x ^ mask() ^ 1")}, {"right": "fail", "wrong": "pass"}),
    "helper module": ({"helper": HELPER.replace("6", "7")}, {"right": "fail", "wrong": "pass"}),
    "comment": ({"case": CASE + "\n# A comment.\n"}, {"right": "pass", "wrong": "fail"}),
}


def test_after_an_edit_everything_runs(runs):
    runs()
    for edit, (changed, verdicts) in EDITS.items():
        found, ran, _ = runs(**changed)
        assert len(ran) == 3, edit
        assert {v: found[v, "sm_100a"] for v in verdicts} == verdicts, edit
        assert runs(**changed)[1] == [], edit
    assert runs()[1] == []  # the text written back is the former one


def test_after_an_edit_of_what_an_imported_module_does_everything_runs(runs, monkeypatch):
    """It adds a function to a module of Python, as others register an operator of torch: the case names only that."""
    case = CASE.replace("from {helper} import mask", "import colorsys\nimport {helper}")
    case = case.replace("x ^ mask()", "x ^ colorsys.ptxdiff_mask()")
    helper = "import colorsys\ncolorsys.ptxdiff_mask = lambda: 6\n"
    monkeypatch.setattr(colorsys, "ptxdiff_mask", None, raising=False)
    runs(case=case, helper=helper)
    assert runs(case=case, helper=helper)[1] == []
    found, ran, _ = runs(case=case, helper=helper.replace("6", "7"))
    assert len(ran) == 3
    assert found["right", "sm_100a"] == "fail"


COMPILED = """
from ptxdiff import Case, plain
from ptxdiff.references.formats import U32
from {helper} import flipped

case = Case(
    inputs={{"x": U32}}, outputs={{"y": U32}}, reference=lambda x: x ^ 6, variants={{"triton": plain(flipped)}},
)
"""
FLIPPED = """
from pathlib import Path
import triton
import triton.language as tl

@triton.constexpr_function
def number():
    return NUMBER

@triton.jit
def flipped(x):
    n: tl.constexpr = number()
    return x ^ n
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("number", "imported"),
    paired(["int(DATA.read_text())", "6 if DATA.stat().st_size == 1 else 7"], [False, True], of=2),
)
def test_after_an_edit_of_a_file_that_the_compiler_alone_opens_everything_runs(
    runs, pytester, tmp_path, monkeypatch, number, imported
):
    """The compiler calls such functions in a process of its own, and its PTX is stored under the text of the code."""
    from ptxdiff.triton import compile as compiling

    code = FLIPPED.replace("NUMBER", number.replace("DATA", "(Path(__file__).parent / 'data.txt')"))
    texts = {"case": COMPILED, "helper": code}
    if not imported:
        texts = {"case": code + COMPILED.replace("from {helper} import flipped\n", "")}
    data = (tmp_path if imported else pytester.path / "cases") / "data.txt"
    data.parent.mkdir(exist_ok=True)
    for text, verdict, times in (("6", "pass", 2), ("07", "fail", 1)):
        data.write_text(text)
        compiling.forget()
        with closing(Pool(1)) as pool:
            monkeypatch.setattr(compiling, "shared_pool", lambda *of, pool=pool: pool)
            for again in range(times):
                found, ran, _ = runs(**texts)
                assert (found, len(ran)) == ({("triton", "sm_100a"): verdict}, 1 - again)


def test_a_case_that_two_files_bind_has_a_key_for_each(tmp_path):
    """Each file imports other modules, and what they do is in its own key."""
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    files[0].write_text(RIGHT)
    files[1].write_text("from ptxdiff import Case\n# another text\n")
    (loaded,) = load(files[0])
    both = [replace(loaded, path=f) for f in files]
    keys = [reuse._case(Item(one, "right", "sm_100a", "emulator")) for one in both]
    assert keys[0] != keys[1]


def test_settings_of_what_computes_references_are_part_of_the_key(runs, monkeypatch):
    runs()
    for setting in ("ATEN_CPU_CAPABILITY", "NPY_DISABLE_CPU_FEATURES", "TORCH_LOGS"):
        with monkeypatch.context() as patch:
            patch.setenv(setting, "")
            assert len(runs()[1]) == 3, setting
    assert runs()[1] == []


def test_results_of_asm_alone_are_not_those_of_the_kernel_around_it(runs, monkeypatch):
    """`run_cases` sets the variable; without it the same items would be compiled."""
    runs()
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "0")
    assert len(runs()[1]) == 3


def test_a_target_never_reuses_another_targets_result(runs):
    runs()
    found, ran, _ = runs("--ptx-target=sm_80")
    assert len(ran) == 3
    assert found["only new", "sm_80"] != "pass"


def test_other_options_of_a_run_reuse_nothing(runs):
    _, _, before = runs()
    replay = f"--ptx-replay={next(r['replay'] for r in before if r.get('replay'))}"
    for option in ("--ptx-fresh", "--ptx-effort=exhaustive", "--ptx-limit=50", replay):
        _, ran, _ = runs(option, "-k", "right or wrong")
        assert len(ran) == 2, option
    assert runs()[1] == []


def test_another_harness_or_another_package_reuses_nothing(runs, monkeypatch):
    """For example if two checkouts share a cache folder, an instruction was edited, or numba was installed again."""
    runs()
    for what in ("harness", "_versions"):
        with monkeypatch.context() as patch:
            patch.setattr(reuse, what, lambda: "another")
            assert len(runs()[1]) == 3, what
    assert runs()[1] == []


def test_the_ledger_decides_the_evidence_and_is_in_the_key(runs, monkeypatch, tmp_path):
    from ptxdiff.conformance import ledger

    runs()
    other = tmp_path / "ledger.jsonl"
    other.write_bytes(ledger.PATH.read_bytes() + b"\n")
    monkeypatch.setattr(ledger, "PATH", other)
    assert len(runs()[1]) == 3


MACHINE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import F32

case = Case(
    inputs={{"x": F32}}, outputs={{"y": F32}}, reference=lambda x: x & 0x7FFFFFFF,
    variants={{"abs": asm("abs.f32 $0, $1;", constraints="=r,r", pack=1)}},
)
"""
SASS = ("--ptx-backend=auto", "--ptx-target=sm_90a", "-k", "sass")
"""The smaller plan of `auto`: each kernel that is not kept costs a start of nvdisasm."""


@pytest.fixture
def machine_runs(runs):
    """Run a case as machine code, as in a new process. Returns verdicts, the items that ran, and the records.

    A process reads a ledger once for each path, so a test that edits one gives the edited text another path.
    """
    from ptxdiff.backends import create

    if words := create("sass").unavailable("sm_90a"):
        pytest.skip(words)
    return lambda *arguments: runs(*SASS, *arguments, case=MACHINE)


def test_results_of_machine_code_are_reused(machine_runs):
    first, ran, before = machine_runs()
    again, ran_again, after = machine_runs()
    assert first == again == {("abs", "sm_90a"): "pass"}
    assert (ran, ran_again) == (["abs sm_90a"], [])
    assert comparable(before) == comparable(after)


@pytest.mark.parametrize("ledger", ["PATH", "MOVES"])
def test_machine_code_is_run_again_after_any_change_of_what_is_taught(machine_runs, monkeypatch, tmp_path, ledger):
    """A form that lost its line in between would pass from the cache."""
    from ptxdiff.conformance import taught

    machine_runs()
    emptied = tmp_path / "emptied.jsonl"
    emptied.touch()
    monkeypatch.setattr(taught, ledger, emptied)
    verdicts, ran, found = machine_runs()
    assert ran == ["abs sm_90a"]
    if ledger == "PATH":
        assert verdicts == {("abs", "sm_90a"): "not run"}
        assert any("unsettled" in r.get("words", "") for r in found if r["record"] == "result")


def test_a_key_names_the_ledger_that_the_process_has_read(machine_runs, monkeypatch, tmp_path):
    """It is edited after it decided a result and before the result is stored: the edited text vouches for nothing."""
    from ptxdiff.conformance import taught

    ledger = tmp_path / "taught.jsonl"
    ledger.write_bytes(taught.PATH.read_bytes())
    monkeypatch.setattr(taught, "PATH", ledger)
    run_item = running.run_item

    def edited(*arguments, **more):
        found = run_item(*arguments, **more)
        ledger.write_bytes(b"")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(running, "run_item", edited)
        assert machine_runs()[0] == {("abs", "sm_90a"): "pass"}
    monkeypatch.setattr(taught, "PATH", ledger.rename(tmp_path / "edited.jsonl"))
    assert machine_runs()[0] == {("abs", "sm_90a"): "not run"}


def test_machine_code_of_another_level_or_disassembler_is_run(machine_runs, monkeypatch, tmp_path):
    from ptxdiff.triton.targets import tool

    machine_runs()
    assert machine_runs("--ptx-opt=0")[1] == ["abs sm_90a"]
    assert machine_runs("--ptx-opt=0")[1] == []
    other = tmp_path / "nvdisasm"
    other.write_text(f'#!/bin/sh\nexec {tool("nvdisasm")} "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("TRITON_NVDISASM_PATH", str(other))
    installation.cache_clear()
    assert machine_runs()[1] == ["abs sm_90a"]
    monkeypatch.delenv("TRITON_NVDISASM_PATH")
    installation.cache_clear()


def test_machine_code_of_a_script_is_never_reused(machine_runs, tmp_path):
    """The script may call any ptxas: its digest says nothing of what it calls."""
    from ptxdiff.triton.targets import tool

    script = tmp_path / "ptxas"
    script.write_text(f'#!/bin/sh\nexec {tool("ptxas")} "$@"\n')
    script.chmod(0o755)
    for _ in range(2):
        assert machine_runs(f"--ptx-assembler={script}")[1] == ["abs sm_90a"]


def test_damaged_entries_are_run_again_and_healed(runs, tmp_path):
    first, _, _ = runs()
    entries = sorted((tmp_path / "cache" / "items").iterdir())
    assert len(entries) == 3
    for number, entry in enumerate(entries):
        whole = entry.read_bytes()
        entry.write_bytes((b"", whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]))[number])
    again, ran, _ = runs()
    assert (again, len(ran)) == (first, 3)
    assert runs()[1] == []


def test_an_entry_with_other_contents_counts_as_missing(runs, monkeypatch):
    """The entry is whole and under its name, but has another form, another item, or a verdict that is no result.

    Each run reads three entries, and finds each with another fault.
    """
    import zlib

    runs()
    get = reuse._kept.get
    changes = [
        lambda e: {},
        lambda e: {**e, "records": []},
        lambda e: {**e, "records": [{**r, "verdict": "error"} for r in e["records"]]},
        lambda e: {**e, "records": [{**r, "key": {**r["key"], "target": "sm_80"}} for r in e["records"] if "key" in r]},
        lambda e: {**e, "records": [{**r, "fingerprint": {}} for r in e["records"] if "key" in r]},
        lambda e: {**e, "records": [{**r, "reused": "another run"} for r in e["records"] if "key" in r]},
        lambda e: {**e, "files": {"/a/file": "changed"}},
        lambda e: {"records": e["records"]},
        lambda e: [e],
    ]
    left = list(changes)

    def changed(*parts):
        stored = get(*parts)
        if stored is None:
            return None
        head, *lines = map(json.loads, zlib.decompress(stored).split(b"\n"))
        entry = left.pop()({**head, "records": lines})
        records = entry.pop("records", []) if isinstance(entry, dict) else []
        compact = [json.dumps(r, separators=(",", ":")) for r in records]
        return zlib.compress("\n".join([json.dumps(entry), *compact]).encode())

    monkeypatch.setattr(reuse._kept, "get", changed)
    for after in (6, 3, 0):
        assert len(runs()[1]) == 3
        assert len(left) == after
    monkeypatch.setattr(reuse._kept, "get", get)
    assert runs()[1] == []


def test_items_with_errors_run_again(runs):
    broken = CASE.replace("return x ^ mask()", "raise ValueError('today')")
    first, ran, _ = runs(case=broken)
    assert set(first.values()) == {"error"}
    assert len(runs(case=broken)[1]) == len(ran) == 3


def test_results_of_a_case_that_cannot_be_encoded_are_never_reused(runs):
    opaque = CASE.replace("def flipped", "import threading\nLOCK = threading.Lock()\n\ndef flipped").replace(
        "return x ^", "LOCK.locked()\n    return x ^"
    )
    runs(case=opaque)
    assert len(runs(case=opaque)[1]) == 3


def test_a_process_whose_harness_was_edited_stores_nothing(runs, monkeypatch):
    """It may have imported the old text, and would store its results under a key of the new text."""
    with monkeypatch.context() as patch:
        patch.setattr(reuse, "_began", lambda: 0.0)
        runs()
    _, ran, _ = runs()
    assert len(ran) == 3
    _, ran, _ = runs()
    assert ran == []


def test_the_variable_turns_reuse_off(runs, monkeypatch):
    runs()
    monkeypatch.setenv("PTXDIFF_REUSE", "0")
    assert len(runs()[1]) == 3


def test_a_gate_can_demand_fresh_results(runs, tmp_path):
    from ptxdiff.gating.gate import Policy, gate
    from ptxdiff.records import read

    runs()
    runs()
    first, second = (read(tmp_path / f"{n}.jsonl") for n in range(2))
    words = [f.text for f in gate(second, first, Policy(fresh=True)).findings if "reused" in f.text]
    assert words
    assert words[0].startswith(f"{len(second.results)} results were reused from {first.run.run_id}")
    assert not any("reused" in f.text for f in gate(first, first, Policy(fresh=True)).findings)
    assert not any("reused" in f.text for f in gate(second, first, Policy()).findings)
