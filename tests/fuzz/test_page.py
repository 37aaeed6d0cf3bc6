"""The page on a campaign's findings: PTX, machine code of both levels, values, and findings grouped by skeleton."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ptxdiff.fuzz import files
from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.campaign import finding_of
from ptxdiff.fuzz.files import facts
from ptxdiff.fuzz.refusals import RefusalGroup, write_groups
from ptxdiff.reports.findings import page
from ptxdiff.triton.builds import NoTriton
from ptxdiff.triton.targets import assembler as bundled

FAULTS = json.loads(Path(__file__).with_name("ptxas_faults.json").read_text())
TARGET = "sm_90a"


def findings():
    made = [finding_of({"kind": "wrong", "size": 2, "seed": "s", **fault}) for fault in FAULTS[:2]]
    return [
        *made,
        replace(made[0], kind="crashed", words="ended by <b>signal</b> 11", given=(), expected=(), inputs=()),
    ]


@pytest.mark.slow
def test_the_page_shows_programs_values_and_machine_code(tmp_path):
    try:
        assemblers = [assembler(bundled(TARGET).path, level) for level in (0, 3)]
    except NoTriton as error:
        pytest.skip(str(error))
    files.write(tmp_path, findings(), assemblers, TARGET)
    found = facts(tmp_path)
    skeletons = {f.skeleton for f in findings()}
    assert {g["skeleton"] for g in found["groups"]} == skeletons
    assert sum(len(g["findings"]) for g in found["groups"]) == 3
    text = page(found)
    for fault in FAULTS[:2]:
        first = fault["skeleton"].split()[0]
        assert first in text
        differ = next(k for k, (a, b) in enumerate(zip(fault["expected"], fault["given"], strict=True)) if a != b)
        assert f"<td><code>{fault['expected'][differ]:#010x}</code></td>" in text
        assert f"<strong><code>{fault['given'][differ]:#010x}</code></strong>" in text
    for one in assemblers:
        assert files.file_stem(one.label) in text
    assert "STG" in text
    assert "ended by &lt;b&gt;signal" in text
    assert "default-src" in text


def test_without_machine_code_the_page_says_so(tmp_path):
    files.write(tmp_path, findings(), (), TARGET)
    assert "No machine code is shown" in page(facts(tmp_path))


def test_refusals_are_on_the_page(tmp_path):
    group = RefusalGroup(
        "a | b | c", "s/1", "a", "'x' by '<y>'", ("the emulator",), ("ptxas 1",), ("no",), "text;\n", 7
    )
    write_groups(tmp_path, [group])
    text = page(facts(tmp_path))
    for part in ("a | b | c", "&lt;y&gt;", "refusal-01-a", "1 groups of refusals", "ptxas 1"):
        assert part in text
    assert page(facts(tmp_path / "nothing"))
