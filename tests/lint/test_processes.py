"""Files linted by several processes: the same report, in the same order, whatever becomes of a process."""

from concurrent.futures import Future
from dataclasses import asdict

import pytest

from ptxdiff.lint import files
from ptxdiff.lint.files import lint_paths
from ptxdiff.processes.pool import CallEnd
from ptxdiff.processes.worker import Reply

WRONG = 'y = tl.inline_asm_elementwise("neg.f32 $0 $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)\n'


@pytest.fixture
def folder(tmp_path):
    for n in range(6):
        (tmp_path / f"file{n}.py").write_text("# a line\n" * n + WRONG * (n + 1))
    (tmp_path / "broken.py").write_text(f"def (:\n{WRONG}")
    (tmp_path / "silenced.py").write_text(WRONG.rstrip() + "  # ptxdiff: ignore[syntax]\n")
    (tmp_path / "host.h").write_text('asm("cpuid");')
    (tmp_path / "plain.py").write_text("x = 1\n")
    return tmp_path


def places(report):
    return [(f.rule, f.path, f.line, [o.line for o in f.others], f.end_column) for f in report.findings]


class Calls:
    """A pool that calls in this process, and answers in the order of submission or not at all."""

    def __init__(self, size):
        self.size = size

    def submit(self, function, file, timeout):
        assert function == "ptxdiff.lint.files:lint_file"
        answered: Future[CallEnd] = Future()
        answered.set_result(self.end(file))
        return answered

    def end(self, file):
        return CallEnd(Reply(value=files.lint_file(file)))

    def close(self):
        self.closed = True


def test_many_processes_give_the_report_of_one(folder, monkeypatch):
    alone = lint_paths([folder], processes=1)
    monkeypatch.setattr("ptxdiff.processes.pool.Pool", Calls)
    together = lint_paths([folder], processes=4)
    assert asdict(together) == asdict(alone)
    assert [f.path.rsplit("/", 1)[1] for f in alone.findings][:2] == ["broken.py", "file0.py"]
    assert (alone.silenced, len(alone.skipped), alone.searched) == (1, 1, 10)


@pytest.mark.parametrize(
    "end", [CallEnd(None, "", "was killed"), CallEnd(Reply(raised="MemoryError")), CallEnd(Reply())]
)
def test_a_process_that_fails_leaves_no_file_out(folder, monkeypatch, end):
    alone = lint_paths([folder], processes=1)
    monkeypatch.setattr("ptxdiff.processes.pool.Pool", Calls)
    monkeypatch.setattr(Calls, "end", lambda self, file: end)
    assert places(lint_paths([folder], processes=4)) == places(alone)


def test_little_asm_is_linted_here(folder, monkeypatch):
    def refused(size):
        raise AssertionError("a process was started")

    monkeypatch.setattr("ptxdiff.processes.pool.Pool", refused)
    assert len(lint_paths([folder]).findings) == 7


@pytest.mark.slow
def test_with_real_processes(folder):
    """Slow: two processes load the emulator."""
    assert places(lint_paths([folder], processes=2)) == places(lint_paths([folder], processes=1))
