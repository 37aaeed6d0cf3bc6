"""`ptxdiff conformance`: its output and its exit status."""

import json
from functools import partial

import pytest

from ptxdiff.cli import main
from ptxdiff.conformance import campaign, ledger
from tests.support.conformance.pretended import Pretended, adds_one_to_nan


@pytest.fixture
def pretending(monkeypatch):
    """Make `--device` measure a few inputs, once for each list of forms, on a stand-in device with a mistake in
    add.rn.f32."""
    run = campaign.run
    device = partial(Pretended, wrong={"add.rn.f32": adds_one_to_nan})
    plan = campaign.Plan(seconds=1.0, inputs=1 << 10, everything=1 << 10, emulated=1 << 8)
    measured = {}

    def quick(spellings, _, **more):
        forms = tuple(spellings)
        if forms not in measured:  # takes two processes
            measured[forms] = run(forms, plan, **{**more, "device": device, "workers": 1})
        return measured[forms]

    monkeypatch.setattr(campaign, "run", quick)


def test_json_has_runs_counts_and_forms(capsys):
    assert main(["conformance", "brev", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {e["form"] for e in found["forms"]} == {"brev.b32", "brev.b64"}
    assert sum(found["counts"].values()) == 2
    for entry in found["forms"]:
        assert entry["status"] in ledger.STATUSES


def test_table_and_summary(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["conformance", "cvt.rn.satfinite.e2m1x2.*"]) == 0
    out = capsys.readouterr().out
    assert "cvt.rn.satfinite.e2m1x2.f32" in out
    assert "specification only" in out
    assert main(["conformance", "--summary", "cvt"]) == 0
    assert "forms:" in capsys.readouterr().out


def test_status_filters(capsys):
    assert main(["conformance", "ret", "exit", "--status", "unconfirmed", "--format", "json"]) == 0
    assert {e["form"] for e in json.loads(capsys.readouterr().out)["forms"]} == {"exit", "ret", "ret.uni"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "no instruction form matches 'nonsense'"),
        (["--status", "splendid"], "no status is called 'splendid'"),
        (["--write"], "--write writes what --device, --errors or --teach found"),
    ],
)
def test_mistakes_on_the_command_line_are_reported(capsys, words, said):
    assert main(["conformance", *words]) == 2
    assert said in capsys.readouterr().err


def test_counts_are_written_as_powers(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["conformance", "--inputs", "many"])
    assert stopped.value.code == 2
    assert "2**20" in capsys.readouterr().err


def test_a_measurement_reports_new_mismatches_and_writes_them(capsys, monkeypatch, tmp_path, pretending):
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "ledger.jsonl"
    words = ["conformance", "add.rn.f32", "brev.b32", "--device", "--ledger", str(path)]
    assert main(words) == 1
    assert "add.rn.f32" in capsys.readouterr().out
    assert not path.exists()
    assert main([*words, "--write"]) == 1
    book = ledger.read(path)
    assert book.entries["add.rn.f32"].status == ledger.MISMATCH
    assert book.entries["brev.b32"].status == ledger.CONFIRMED
    assert main(words) == 0, "a mismatch that the ledger already has does not fail the command"


def test_without_a_device_the_reason_is_given(capsys, monkeypatch):
    from ptxdiff.conformance.fetch import NoDevice

    def nothing(*args, **more):
        raise NoDevice("no NVIDIA driver here")

    monkeypatch.setattr(campaign, "run", nothing)
    assert main(["conformance", "brev", "--device"]) == 2
    assert "no NVIDIA driver here" in capsys.readouterr().err


def test_forms_are_readable_in_80_columns(capsys, monkeypatch):
    """Each form is written whole, on a line with its status; only a form's own name exceeds the width."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["conformance", "rcp", "cvt", "cos"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "rcp.rn.f32  confirmed" in lines
    assert "    all 4,294,967,296 inputs, 0 mismatches (run 1)" in lines
    assert "rcp.approx.ftz.f32  confirmed" in lines
    assert any(line.startswith("    by exponent of the argument, ") for line in lines)
    assert not [line for line in lines if len(line) > 80 and not line.startswith("cvt.")]
    assert "…" not in "".join(lines)
