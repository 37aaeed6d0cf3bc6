"""ptxas gets exactly Triton's options, so that the tested code is the code that runs; labels name the options."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from ptxdiff.model.compilers import PtxasChoice
from ptxdiff.records import names_assembler
from ptxdiff.triton.assemble import assemble, options_of
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.elementwise import Elementwise, InlineAsm
from ptxdiff.triton.ptxas import assembler_at, beyond_every_call, called_with
from ptxdiff.triton.targets import assembler
from ptxdiff.triton.tools import Tool
from tests.support.tritons import since

triton = pytest.importorskip("triton")

LOGS = """#!/bin/sh
for word; do
    case $word in
        --version) echo "Cuda compilation tools, release 99.9, V99.9.1"; exit ;;
        --none-such) echo "ptxas fatal   : Unknown option '--none-such'"; exit 255 ;;
        --*Level*) [ -e "$0.old" ] && { echo "ptxas fatal   : Unknown option '$word'"; exit 255; } ;;
    esac
    made=$word
done
echo "$@" >> "$0.log"
echo made > "$made"
"""


@pytest.fixture
def logs(tmp_path):
    path = tmp_path / "ptxas"
    path.write_text(LOGS)
    path.chmod(0o755)
    return path


def compiled(target="sm_90a", fusion=False):
    kernel = Elementwise(InlineAsm("rcp.approx.ftz.f32 $0, $1;", "=r,r"), ("fp32",), ("fp32",), (1000,))
    return compile_kernel(kernel.spec(target, enable_fp_fusion=fusion))


TRITONS_OWN = """
import sys
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
for arch in (80, 90):
    for fusion in (False, True):
        backend = make_backend(GPUTarget("cuda", arch, 32))
        stages = {}
        backend.add_stages(stages, backend.parse_options({"enable_fp_fusion": fusion}), None)
        stages["cubin"](".version 8.0", {"name": "k"})
"""


def test_ptxas_is_called_as_triton_calls_it(logs):
    """Triton, in a new process, and the harness both call a ptxas that records its arguments."""
    paths = dict.fromkeys(("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"), str(logs))
    subprocess.run([sys.executable, "-c", TRITONS_OWN], env={**os.environ, **paths}, check=True, capture_output=True)
    log = Path(f"{logs}.log")
    tritons = [sorted(line.split()[:-3]) for line in log.read_text().splitlines()]
    log.unlink()
    for target in ("sm_80", "sm_90a"):
        for fusion in (False, True):
            assemble(dataclasses.replace(compiled(target, fusion), ptxas=Tool(str(logs), "99.9")))
    ours = [sorted(line.split()[:-3]) for line in log.read_text().splitlines()]
    assert len(tritons) == 4
    assert tritons == ours
    assert ["--fmad=false" in words for words in ours] == [True, False] * 2


def test_this_release_has_the_expected_option():
    if not triton.__version__.startswith("3.9"):
        pytest.skip(f"Triton {triton.__version__}: its options are its own")
    assert compiled().ptxas.options == assembler("sm_90a").options == ("--regAllocOptLevel=2",)


def test_a_chosen_assembler_differs_in_its_level_alone(logs):
    found = compiled()
    choice = assembler_at(logs, 0, options=found.ptxas.options)
    own = set(options_of(found))
    chosen = set(options_of(dataclasses.replace(found, ptxas=Tool.of(choice))))
    assert (own - chosen, chosen - own) == (set(), {"-O0"})


@since(3, 9, "it calls ptxas without an option that could be left out")
def test_other_options_are_other_machine_code(logs):
    """Neither the memo of a process nor the cache on disk confuses them."""
    found = dataclasses.replace(compiled(), ptxas=Tool(str(logs), "99.9"))
    without = dataclasses.replace(found, called=tuple(o for o in found.called if "Level" not in o))
    given = dataclasses.replace(found, called=())
    for one in (found, without, given, found, without):
        assemble(one)
    called = [line.split()[:-3] for line in Path(f"{logs}.log").read_text().splitlines()]
    assert called == [list(found.called), list(without.called)]


def test_an_unknown_option_is_omitted_from_call_and_label(logs):
    assert assembler_at(logs, 3, options=["--regAllocOptLevel=2"]).options == ("--regAllocOptLevel=2",)
    assert assembler_at(logs, 3, options=["--none-such"]).label == assembler_at(logs, 3).label
    old = logs.with_name("old_ptxas")
    old.write_text(LOGS)
    old.chmod(0o755)
    Path(f"{old}.old").touch()
    assert assembler_at(old, 3, options=["--regAllocOptLevel=2"]).options == ()


def test_labels_distinguish_options_and_old_names_keep_their_meaning():
    plain = PtxasChoice("/p", "13.4.59", 3, "9c2c084df7eb")
    new = dataclasses.replace(plain, options=("--regAllocOptLevel=2",))
    assert plain.label == "ptxas 13.4.59 -O3 (9c2c084df7eb)"
    assert new.label == "ptxas 13.4.59 -O3 --regAllocOptLevel=2 (9c2c084df7eb)"
    for name in ("13.4", "ptxas 13.4.59 -O3", plain.label, new.label, "13.4 -O3 --regAllocOptLevel=2"):
        assert names_assembler(name, new.label), name
    for name in ("13.4 -O0", "13.4 -O3 --regAllocOptLevel=1", "ptxas 13.4.59 -O3 (000000000000)"):
        assert not names_assembler(name, new.label), name
    assert names_assembler(plain.label, plain.label)
    assert not names_assembler(new.label, plain.label)


def test_options_beyond_those_of_every_call():
    every = ("-lineinfo", "-v", "-O1", "--opt-level", "0", "--fmad=false", "--gpu-name=sm_90a")
    assert beyond_every_call((*every[:3], "--regAllocOptLevel=2", *every[3:], "-warn-spills")) == (
        "--regAllocOptLevel=2", "-warn-spills",
    )  # fmt: skip


def test_a_stage_whose_call_is_not_seen_gives_a_warning():
    """If a release of Triton calls ptxas in another way, the harness would test other code than runs."""
    with pytest.warns(UserWarning, match="was not seen: its stage made 0 calls"):
        assert called_with(lambda ptx, metadata: None, "", {}) == ()

    def broken(ptx, metadata):
        raise RuntimeError("no such thing")

    with pytest.warns(UserWarning, match="was not seen: RuntimeError: no such thing"):
        assert called_with(broken, "", {}) == ()


def test_no_file_stays_and_tritons_functions_are_restored(tmp_path, monkeypatch):
    """The stage writes the PTX to a file, and reads machine code from another."""
    module = types.SimpleNamespace(subprocess=subprocess)
    monkeypatch.setattr("ptxdiff.triton.ptxas.importlib", types.SimpleNamespace(import_module=lambda _: module))

    def stage(ptx, metadata):
        made = tmp_path / "k.cubin"
        module.subprocess.run(["ptxas", "-v", "--new", str(tmp_path / "k.ptx"), "-o", str(made)], check=True)
        assert issubclass(module.subprocess.CalledProcessError, Exception)
        made.read_bytes()
        made.unlink()

    assert called_with(stage, "", {}) == ("-v", "--new")
    assert module.subprocess is subprocess
    assert list(tmp_path.iterdir()) == []
