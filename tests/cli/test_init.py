"""`ptxdiff init`, and the action: their commands run here as GitHub runs them, in a project that has only cases."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ptxdiff.cli import VERBS, main
from tests.support.case_sources import FLIP, RIGHT

yaml = pytest.importorskip("yaml", reason="PyYAML comes with Ray, the extra `cluster`")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository that holds one case file, and nothing else."""
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "flip.py").write_text(RIGHT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Job:
    """Runs the shell steps of a job in a folder, with GitHub's rules for failed steps and expressions."""

    def __init__(self, folder: Path, values: dict[str, str]) -> None:
        self.folder, self.values = folder, values
        self.output: dict[str, str] = {}
        self.failed: list[str] = []
        self.summary = folder / "summary.md"
        self.summary.touch()

    def run(self, steps: list[dict[str, Any]], leave_out: tuple[str, ...] = ("Install",)) -> None:
        """Run the steps. After a failure only those that ask for it run."""
        for step in steps:
            name = step.get("name", step.get("uses"))
            condition = str(step.get("if", "success()"))
            if "run" not in step or name in leave_out or (self.failed and "!cancelled()" not in condition):
                continue
            if not self._holds(condition):
                continue
            given = {k: self.filled(v) for k, v in step.get("env", {}).items()}
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
            env |= {"PATH": path, "GITHUB_STEP_SUMMARY": str(self.summary), "PTXDIFF_ASM_ALONE": "1", **given}
            env["PYTEST_XDIST_AUTO_NUM_WORKERS"] = "0"  # a worker would import torch once more
            shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", self.filled(step["run"])]
            done = subprocess.run(shell, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
            self.output[name] = done.stdout + done.stderr
            self.failed += [name] * (done.returncode != 0)

    def _holds(self, condition: str) -> bool:
        parts = condition.removeprefix("${{").removesuffix("}}").split("&&")
        for part in (p.strip() for p in parts):
            if found := re.fullmatch(r"([\w.]+) (==|!=) '(.*)'", part):
                if (self.values[found[1]] == found[3]) != (found[2] == "=="):
                    return False
            elif part not in ("!cancelled()", "success()"):
                raise AssertionError(f"not read: {part}")
        return True

    def filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda m: self.values[m[1]], text)


def steps_of(path: Path) -> list[dict[str, Any]]:
    made = yaml.safe_load(path.read_text())
    return made["runs"]["steps"] if "runs" in made else next(iter(made["jobs"].values()))["steps"]


def test_init_writes_a_workflow_hooks_and_ignored_folders(project, capsys):
    assert main(["init"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        ".github/workflows/ptxdiff.yml: written",
        ".pre-commit-config.yaml: written",
        ".gitignore: added build/, .pytest_cache/, __pycache__/",
    ]
    hooks = yaml.safe_load((project / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["entry"] for hook in hooks] == ["ptxdiff lint --force-exclude"]
    assert main(["init"]) == 0
    assert capsys.readouterr().out.count("kept") == 3


def test_init_leaves_existing_files_and_adds_to_gitignore(project, capsys):
    (project / ".gitignore").write_text("mine\n/build")
    (project / ".pre-commit-config.yaml").write_text("repos: []\n")
    assert main(["init", "--cases", "kernels/asm cases", "--requirement", "ptxdiff[triton] @ file:///x"]) == 0
    said = capsys.readouterr().out
    assert "exists, and is left as it is" in said
    assert "there are no cases in kernels/asm cases yet" in said
    assert (project / ".gitignore").read_text() == "mine\n/build\n.pytest_cache/\n__pycache__/\n"
    assert (project / ".pre-commit-config.yaml").read_text() == "repos: []\n"
    text = "\n".join(s.get("run", "") for s in steps_of(project / ".github/workflows/ptxdiff.yml"))
    assert "pip install 'ptxdiff[triton] @ file:///x'" in text
    assert "ptxdiff run 'kernels/asm cases' --backend" in text


def test_init_refuses_a_folder_that_is_not_there(capsys):
    assert main(["init", "/nowhere/at/all"]) == 2
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.slow
def test_the_commands_of_the_workflow_run(project):
    """First without a baseline, then with one and a mistake that they must find."""
    assert main(["init"]) == 0
    steps = steps_of(project / ".github/workflows/ptxdiff.yml")
    job = Job(project, {})
    job.run(steps)
    assert job.failed == [], job.output
    assert "::notice title=ptxdiff gate::no baseline" in job.output["Compare with the accepted results"]
    assert "## ✅ Passed" in job.summary.read_text()
    assert (project / "build/ptxdiff/report.html").stat().st_size > 100_000

    assert main(["gate", "build/ptxdiff/run.jsonl", "--baseline", "baseline", "--accept", "--digests"]) == 0
    job.run(steps)
    assert job.failed == [], job.output
    assert "accepted" in job.output["Compare with the accepted results"]

    (project / "cases" / "flip.py").write_text(RIGHT.replace("0x01010101", "0x01010181"))
    job.summary.write_text("")
    job.run(steps)
    assert job.failed == ["Run every case", "Compare with the accepted results"]
    assert "## ❌ Failed" in job.summary.read_text()
    assert "::error file=cases/flip.py,line=" in job.output["Summary and annotations"]


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [False, True])
def test_the_commands_of_the_action_run(project, wrong, tmp_path_factory):
    if wrong:
        (project / "cases" / "flip.py").write_text(FLIP)
    made = yaml.safe_load((ROOT / "action.yml").read_text())
    assert set(made["inputs"]) == {"cases", "targets", "backend", "baseline", "comment"}
    values = {f"inputs.{name}": facts["default"] for name, facts in made["inputs"].items()}
    values |= {"inputs.targets": "sm_90a sm_80", "inputs.comment": "true", "inputs.backend": "emulator"}
    values |= {"github.event_name": "pull_request", "github.token": "t", "github.event.pull_request.number": "7"}
    programs = tmp_path_factory.mktemp("programs")
    (programs / "gh").write_text('#!/bin/sh\necho "gh $@"; cat "$7"\n')
    (programs / "gh").chmod(0o755)
    job = Job(project, values)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", str(programs), prepend=os.pathsep)
        job.run(steps_of(ROOT / "action.yml"))
    assert job.failed == (["Run"] if wrong else []), job.output
    word = "## ❌ Failed" if wrong else "## ✅ Passed"
    assert word in job.summary.read_text()
    assert "gh pr comment 7 --edit-last --create-if-none" in job.output["Comment"]
    assert word in job.output["Comment"]
    assert "on 2 targets" in job.summary.read_text() or wrong
    assert "Gate" not in job.output  # no baseline is named


def test_the_action_gates(project):
    made = yaml.safe_load((ROOT / "action.yml").read_text())
    values = {f"inputs.{name}": facts["default"] for name, facts in made["inputs"].items()}
    job = Job(project, values | {"inputs.baseline": "baseline", "github.event_name": "push"})
    job.run([s for s in steps_of(ROOT / "action.yml") if s.get("name") in ("Gate", "Comment")])
    assert job.failed == ["Gate"]
    assert "run.jsonl: No such file" in job.output["Gate"]
    assert "Comment" not in job.output


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda p: p.stem)
def test_every_workflow_is_yaml_with_verbs_that_there_are(path):
    made = yaml.safe_load(path.read_text())
    commands = [step["run"] for job in made["jobs"].values() for step in job["steps"] if "run" in step]
    assert made["jobs"]
    assert {v for text in commands for v in re.findall(r"^\s*ptxdiff (\w+)", text, re.MULTILINE)} <= VERBS.keys()


def test_a_nightly_run_uploads_its_newest_records_alone():
    for name in ("nightly", "cluster-nightly"):
        steps = steps_of(ROOT / f".github/workflows/{name}.yml")
        uploads = [step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", "")]
        assert uploads
        assert not [path for path in uploads if "ptxdiff-history" in path]
