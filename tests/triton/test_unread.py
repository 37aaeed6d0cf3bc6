"""An nvdisasm that does not know a target: the reason names one that does, and how to give it."""

from __future__ import annotations

import pytest

from ptxdiff.backends import create
from ptxdiff.cli import main
from ptxdiff.triton import targets
from ptxdiff.triton.assemble import read_by
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.unread import named, unread

REASON = "nvdisasm does not know sm_107a; that of CUDA 13.5 does (TRITON_NVDISASM_PATH names it): "
RAW = "nvdisasm fatal   : Value 'SM107a' is not defined for option 'binary'"
CUBIN = "nvdisasm fatal   : Cannot decode architecture 'SM107a'"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes an nvdisasm that ends with an error, or with none, and names it as Triton does."""

    def made(error: str) -> str:
        path = tmp_path / "nvdisasm"
        path.write_text("#!/bin/sh\nexit 0\n" if not error else f'#!/bin/sh\necho "{error}" >&2\nexit 1\n')
        path.chmod(0o755)
        monkeypatch.setenv("TRITON_NVDISASM_PATH", str(path))
        return str(path)

    return made


def test_the_reason_says_which_one_knows_it(program) -> None:
    path = program(RAW)
    assert unread("sm_107a") == f"{REASON}{path}"


def test_another_error_and_another_target_say_nothing_of_it(program) -> None:
    program("nvdisasm fatal   : no memory")
    assert unread("sm_107a") == ""
    program(RAW)
    assert unread("sm_90a") == ""  # it is not asked
    assert named("nvdisasm", "nvdisasm fatal   : Value 'SM107a' is not defined for option 'cuda-function-index'") == ""


def test_one_that_knows_it_reads_it(program) -> None:
    program("")
    assert unread("sm_107a") == ""


def test_a_cubin_that_is_not_read_has_the_same_reason(program) -> None:
    path = program(CUBIN)
    found = read_by(path, ("-c",), b"")
    assert isinstance(found, Refusal)
    assert found.words == f"{REASON}{path}"
    path = program(CUBIN.replace("107a", "199a"))
    found = read_by(path, ("-c",), b"")
    assert isinstance(found, Refusal)
    assert found.words.startswith("nvdisasm does not know sm_199a; a newer one may (TRITON_NVDISASM_PATH names it): ")


def test_machine_code_of_it_is_not_available(program) -> None:
    if not targets.probe()["sm_107a"].available:
        pytest.skip("Triton does not compile for sm_107a here")
    path = program(RAW)
    assert create("sass").unavailable("sm_107a") == f"{REASON}{path}"
    assert create("sass").unavailable("sm_90a") is None


@pytest.mark.parametrize(
    "words",
    [
        ["conformance", "--teach", "sequences", "--target", "sm_107a"],
        ["conformance", "--teach", "programs", "--target", "sm_107a"],
        ["fuzz", "--no-gpu", "--target", "sm_107a", "--programs", "1"],
    ],
)
def test_verbs_that_need_it_end_with_the_reason(words: list[str], program, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = program(RAW)
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(words))
    assert ended.value.code == 2
    assert f"{REASON}{path}" in capsys.readouterr().err


def test_a_target_that_nobody_names_is_left_out(program, capsys, monkeypatch, tmp_path) -> None:
    from ptxdiff.conformance import taught

    path = program(RAW)
    ledger = tmp_path / "moves.jsonl"
    line = '{"target": "sm_107a", "form": "EXIT", "agreed": 9, "differed": 0, "digest": "00000000"}\n'
    ledger.write_text(line)
    monkeypatch.setattr(taught, "MOVES", ledger)
    assert main(["conformance", "--teach", "programs", "--write"]) == 0
    assert f"sm_107a is left out: {REASON}{path}" in capsys.readouterr().out
    assert ledger.read_text() == line
