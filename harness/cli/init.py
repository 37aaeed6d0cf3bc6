"""`ptxdiff init`: what a repository with cases needs beside them: a CI workflow, pre-commit hooks, ignored folders."""

from __future__ import annotations

import argparse
from pathlib import Path

from ptxdiff import options
from ptxdiff.cli import UsageError, say

REQUIREMENT = "ptxdiff[triton,report,parallel]"

_WORKFLOW = """# Runs the cases of a pull request on the CPU: the emulator and the assembler need no GPU.
name: ptxdiff
on: [pull_request]
permissions:
  contents: read
concurrency:
  group: ptxdiff-${{{{ github.ref }}}}
  cancel-in-progress: true
jobs:
  ptxdiff:
    runs-on: ubuntu-latest
    timeout-minutes: 60
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - name: Install
        run: python -m pip install {requirement}
      - uses: actions/cache@v4 # compiled parts of the emulator, and results of what has not changed
        with:
          path: ~/.cache/ptxdiff
          key: ptxdiff-${{{{ runner.os }}}}-${{{{ github.run_id }}}}
          restore-keys: ptxdiff-${{{{ runner.os }}}}-
      - name: Lint
        run: ptxdiff lint {cases} --format github
      - name: Run every case
        if: ${{{{ !cancelled() }}}}
        run: >-
          ptxdiff run {cases} --backend emulator --backend assembler
          --records build/ptxdiff/run.jsonl --report build/ptxdiff/report.html --jobs auto
      - name: Compare with the accepted results
        # Exit codes: 0 accepted, 1 correctness, 2 usage, 3 speed or resources. --allow-model: bits of approximate
        # instructions come from a model here; only a GPU can confirm them.
        if: ${{{{ !cancelled() }}}}
        run: |
          if compgen -G "{baseline}/*.jsonl" > /dev/null; then
            ptxdiff gate build/ptxdiff/run.jsonl --baseline {baseline} --allow-model
          else
            echo "::notice title=ptxdiff gate::no baseline: ptxdiff gate RUN --baseline {baseline} --accept --digests"
          fi
      - name: Summary and annotations
        if: ${{{{ !cancelled() }}}}
        run: |
          ptxdiff report build/ptxdiff/run.jsonl --format github-summary >> "$GITHUB_STEP_SUMMARY"
          ptxdiff report build/ptxdiff/run.jsonl --format github-annotations
      - uses: actions/upload-artifact@v4
        if: ${{{{ !cancelled() }}}}
        with:
          name: ptxdiff-report
          path: build/ptxdiff/
"""

_HOOKS = """# pre-commit install
repos:
  - repo: local
    hooks:
      - id: ptxdiff-lint
        name: ptxdiff lint
        entry: ptxdiff lint --force-exclude
        language: python
        additional_dependencies: ["ptxdiff"]
        types_or: [python, c, c++, cuda]
        require_serial: true
"""

_IGNORED = ("build/", ".pytest_cache/", "__pycache__/")


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("folder", nargs="?", default=".", help="the root of the repository (default: here)")
    options.add(parser, "cases")
    baseline = options.add(
        parser, "baseline", "the folder of accepted results in the repository (default: baseline)",
        default="baseline", metavar="DIR",
    )  # fmt: skip
    options.formerly(parser, "--accepted", baseline)
    parser.add_argument(
        "--requirement", default=REQUIREMENT, metavar="TEXT",
        help="what CI installs: a requirement of pip, such as a version or a URL (default: %(default)s)",
    )  # fmt: skip
    parser.epilog = "Files that exist are left as they are; lines that .gitignore lacks are added to it."


def main(args: argparse.Namespace) -> int:
    """Write the files, and say what was written and what to do next."""
    import shlex

    folder = Path(args.folder)
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give the root of the repository")
    names = {name: shlex.quote(getattr(args, name)) for name in ("requirement", "cases")}
    workflow = _WORKFLOW.format(**names, baseline=args.baseline)
    for name, text in ((".github/workflows/ptxdiff.yml", workflow), (".pre-commit-config.yaml", _HOOKS)):
        path = folder / name
        if path.exists():
            say(
                f"{name}: kept" if path.read_text(encoding="utf-8") == text else f"{name}: exists, and is left as it is"
            )
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        say(f"{name}: written")
    _ignore(folder / ".gitignore")
    if not any((folder / args.cases).glob("*.py")):
        say(f"there are no cases in {args.cases} yet: ptxdiff new NAME --cases {args.cases}")
    return 0


def _ignore(path: Path) -> None:
    """Add to .gitignore the lines that it lacks."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    held = {line.strip().strip("/") for line in text.splitlines()}
    missing = [line for line in _IGNORED if line.strip("/") not in held]
    if missing:
        path.write_text(text + "\n" * (not text.endswith("\n") and bool(text)) + "\n".join(missing) + "\n", "utf-8")
    say(f".gitignore: {'added ' + ', '.join(missing) if missing else 'kept'}")
