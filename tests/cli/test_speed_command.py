"""`ptxdiff speed` and `ptxdiff run --timing`, with a model of a device."""

import dataclasses
import itertools

import numpy as np
import pytest

from ptxdiff.cli import main
from ptxdiff.processes.child import DeviceFault
from ptxdiff.processes.gpus import Gpu
from ptxdiff.records import Key, Timing
from ptxdiff.records.statistics import median
from ptxdiff.timing import CannotTime, Session
from tests.support.case_sources import FLIP
from tests.support.command_line import pytest_arguments
from tests.support.reports.register_timings import loop, untimed

GPU = Gpu("0", "A GPU", "GPU-1", "sm_90a", 1 << 37)


def session(limit, path, attribute, target, assemblers, variants, sizes, budget):
    """Timings of three variants at one size: the second is as fast as the first, the third 10% slower."""
    assert (target, variants, budget) == ("sm_90a", (), 0.5)
    found = []
    variants = [("first", 60e-6), ("like-it", 60e-6), ("torch.compile", 66e-6)]
    for k, ((variant, level), by) in enumerate(itertools.product(variants, assemblers)):
        label = by.label if by else ""
        level *= 1 if by is None else 4 - by.level
        samples = tuple(level * (1 + 0.001 * np.random.default_rng(k).standard_normal(48)))
        known = median(samples)
        key = Key("flip", variant, target, "gpu", shape=str(sizes[0]), assembler=label)
        notes = ("clocks reduced: power cap",)
        found.append(Timing(key, 1 << 25, 8 << 25, samples, known.value, known.low, known.high, 61e-6, 0.002, 5e-7,
                            {"sm_min": 1905}, timer="cupti", notes=notes, ptxas=label))  # fmt: skip
    return Session(tuple(found), ("cvt: unsupported: needs sm_100a",))


def in_registers(loaded, target, variants):
    """Timings of two variants, the second with four times the throughput, and one variant that could not be timed."""
    assert (target, variants) == ("sm_90a", ())
    slow, fast = loop("first", clocks=1024.0), loop("second", clocks=256.0)
    return slow, fast, loop("first", "latency", clocks=40.0), untimed("third")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flip.py").write_text(FLIP)
    monkeypatch.setattr("ptxdiff.processes.gpus.gpus", lambda: (GPU,))
    monkeypatch.setattr("ptxdiff.timing.session.time_on_device", session)
    monkeypatch.setattr("ptxdiff.timing.in_registers.time_in_registers", in_registers)


def test_the_table_has_medians_intervals_the_floor_and_verdicts(here, capsys):
    assert main(["speed", "flip.py", "--size", "2^25", "--seconds", "0.5", "--in-memory"]) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: " ".join(line.split()) for line in out.splitlines() if line.strip()}
    assert "flip, 33554432 elements on sm_90a" in out
    assert "TB/s" in lines["first"]
    assert "101" in lines["first"].partition("G/s")[2]
    assert "same" in lines["like-it"]
    assert "slower +10" in lines["torch.compile"]
    assert lines["copy"].startswith("copy 61.00 µs 4.40 TB/s")
    assert "A/A 0.20%; empty kernel 0.50 µs; 48 samples each by cupti; sm_min 1905 MHz" in out
    assert "note: cvt: unsupported: needs sm_100a" in out
    assert out.count("clocks reduced: power cap") == 1


def test_each_assembler_has_its_own_table(here, capsys):
    """At level 0 all variants take three times as long, but levels are not compared with each other."""
    words = ["speed", "flip.py", "--size", "2^25", "--seconds", "0.5", "--opt", "1", "--opt", "3"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert out.count("flip, 33554432 elements on sm_90a") == 2
    assert out.count(" -O1") == 2  # a title, and the assembler
    assert out.count("slower +10") == 2
    assert "+200" not in out
    assert "in registers" in out  # one of the assemblers is Triton's own
    assert main([*words[:6], "--opt", "0"]) == 0
    assert "in registers" not in capsys.readouterr().out


def test_an_assembler_that_is_none_is_refused(here, capsys):
    assert main(["speed", "flip.py", "--assembler", "no/such/ptxas"]) == 2
    assert "no/such/ptxas" in capsys.readouterr().err
    assert main(["speed", "flip.py", "--in-registers", "--opt", "0"]) == 2
    assert "--in-registers times what Triton assembles" in capsys.readouterr().err


def test_both_are_shown_and_where_the_faster_variant_is_worth_it(here, capsys):
    assert main(["speed", "flip.py", "--seconds", "0.5"]) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "flip, 33554432 elements on sm_90a" not in out
    assert any("elements on sm_90a" in line for line in lines)
    assert "flip, in registers on sm_90a: results a clock and SM" in out
    assert "flip, in registers on sm_90a: clocks an application, in a dependent chain" in out
    assert any(line.startswith("second 16.000") and "faster -75.0%" in line for line in lines)
    assert "second pays over first above 0.25 results for each byte of memory traffic: 2.0 for each element of 8" in out
    assert "note: third, throughput: the loop holds LDG.E" in out


def test_times_in_memory_or_in_registers_can_be_chosen(here, capsys):
    assert main(["speed", "flip.py", "--seconds", "0.5", "--in-memory"]) == 0
    assert "in registers" not in capsys.readouterr().out
    assert main(["speed", "flip.py", "--in-registers"]) == 0
    assert "elements on sm_90a" not in capsys.readouterr().out


def test_a_missing_time_in_registers_changes_the_exit_code(here, capsys, monkeypatch):
    monkeypatch.setattr("ptxdiff.timing.in_registers.time_in_registers", lambda *words: (untimed(),))
    assert main(["speed", "flip.py", "--in-registers"]) == 1
    assert "note: rcp, throughput: the loop holds LDG.E" in capsys.readouterr().out


def test_brackets_in_names_are_no_markup(here, capsys, monkeypatch):
    def bracketed(*words):
        found = session(*words)
        key = dataclasses.replace(found.timings[0].key, variant="[bold]first[/]")
        return Session((dataclasses.replace(found.timings[0], key=key),))

    monkeypatch.setattr("ptxdiff.timing.session.time_on_device", bracketed)
    assert main(["speed", "flip.py", "--seconds", "0.5"]) == 0
    assert "[bold]first[/]" in capsys.readouterr().out


def test_a_variant_that_cannot_be_timed_is_reported_and_changes_the_exit_code(here, capsys, monkeypatch):
    def cannot(*words):
        raise CannotTime("first: error: no target accepts this asm")

    monkeypatch.setattr("ptxdiff.timing.session.time_on_device", cannot)
    assert main(["speed", "flip.py"]) == 1
    assert "flip: first: error: no target accepts this asm" in capsys.readouterr().out


class Hanging:
    """A stand-in for a device on which every kernel hangs."""

    def call(self, function, *arguments, limit, alone):
        assert (function, alone) == ("ptxdiff.timing.session:time_case", True)
        raise DeviceFault(f"no end after {limit:g} s: the kernel hangs")


def test_a_kernel_that_hangs_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flip.py").write_text(FLIP)
    monkeypatch.setattr("ptxdiff.processes.gpus.gpus", lambda: (GPU,))
    monkeypatch.setattr("ptxdiff.timing.session.of_target", lambda target: Hanging())
    assert main(["speed", "flip.py"]) == 1
    assert capsys.readouterr().out == "flip: no end after 600 s: the kernel hangs\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.py"], "no such file or folder: nowhere.py"),
        (["flip.py::other"], "flip.py binds no case called other"),
        (["flip.py", "--size", "big"], "--size big: give small, L2, large, or a number of elements such as 2^28"),
    ],
)
def test_usage(here, capsys, words, message):
    assert main(["speed", *words]) == 2
    assert message in capsys.readouterr().err


def test_without_a_gpu_it_says_so(no_gpu, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flip.py").write_text(FLIP)
    assert main(["speed", "flip.py"]) == 2
    assert "there is no NVIDIA GPU here" in capsys.readouterr().err


def test_run_passes_the_option_on(here):
    assert "--ptx-timing" not in pytest_arguments("flip.py")
    assert "--ptx-timing" in pytest_arguments("flip.py", "--timing")
