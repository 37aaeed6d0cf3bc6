"""Which files the user's code opens, and what is left out because other parts of an identity cover it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ptxdiff.model.identity import opened
from ptxdiff.model.identity.modules import execute_file
from ptxdiff.model.identity.opened import ABSENT, ASKED, digest_of, opened_by
from ptxdiff.model.identity.source import real_path

CODE = """
import json, os, subprocess
from pathlib import Path
HERE = Path(__file__).parent

def reads():
    return (HERE / "data.txt").read_text()

def asks_for_what_is_not_there():
    try:
        return (HERE / "absent.txt").read_text()
    except OSError:
        return ""

def lists():
    return sorted(os.listdir(HERE / "folder"))

def writes_first():
    (HERE / "made.txt").write_text("made")
    return (HERE / "made.txt").read_text()

def appends():
    with open(HERE / "data.txt", "a") as file:
        file.write("more")

def imports_a_package():
    import ptxdiff.lint.block
    return Path(json.__file__).read_text() and Path("/dev/null").read_text()

def asks_the_machine():
    return Path("/proc/self/environ").read_bytes()

def asks_the_process():
    before = os.umask(0o22)
    os.umask(before)
    return before, os.getpid()

def lets_python_ask_the_process():
    import uuid
    return uuid.uuid4(), uuid.uuid1()

def asks_about():
    return os.path.exists(HERE / "flag"), os.path.getsize(HERE / "data.txt"), (HERE / "folder").is_dir()

def reads_in(path):
    return Path(path).read_text()

def follows():
    return os.readlink(HERE / "link")

def opens_a_database():
    import sqlite3
    sqlite3.connect(HERE / "first.db").close()
    sqlite3.connect(f"file:{HERE}/second.db?mode=ro", uri=True).close()

def reads_by_the_c_library(name):
    import ctypes
    return getattr(ctypes.CDLL(None), name)
def starts_a_process():
    return subprocess.run(["true"])
"""


@pytest.fixture
def user(tmp_path):
    """A module of the user's; and a function that tells what its code has opened, by name."""
    (tmp_path / "data.txt").write_text("1")
    (tmp_path / "folder").mkdir()
    (tmp_path / "_user.py").write_text(CODE)
    module = execute_file(tmp_path / "_user.py", "_user")

    def opened():
        found = opened_by([str(tmp_path / "_user.py")], without=[str(tmp_path / "_user.py")])
        return {os.path.basename(p): digest for p, digest in found.files.items()}, found.unknown

    return module, opened, tmp_path


def test_a_file_that_is_read_has_a_digest_until_it_changes(user):
    module, opened, folder = user
    assert opened() == ({}, ())
    module.reads()
    files, unknown = opened()
    assert (list(files), unknown) == (["data.txt"], ())
    (folder / "data.txt").write_text("22")
    files, unknown = opened()
    assert not files
    assert "which has changed since then" in unknown[0]


def test_what_code_asks_about_a_file_counts_although_it_is_not_opened(user):
    """`os.path.exists` and its like are no events of an audit hook."""
    module, opened, folder = user
    (folder / "link").symlink_to("here")
    assert module.asks_about() == (False, 1, True)
    module.follows()
    before, unknown = opened()
    assert (unknown, sorted(before)) == ((), [f"{name}{ASKED}" for name in ("data.txt", "flag", "folder", "link")])
    assert before[f"flag{ASKED}"] == ABSENT
    assert "1 bytes" in before[f"data.txt{ASKED}"]
    for change, name in (
        (lambda: (folder / "flag").write_text(""), "flag"),
        (lambda: (folder / "data.txt").write_text("22"), "data.txt"),
        (lambda: (folder / "data.txt").chmod(0o777), "data.txt"),
        (lambda: ((folder / "link").unlink(), (folder / "link").symlink_to("there")), "link"),
    ):
        was = digest_of(f"{folder / name}{ASKED}")
        change()
        assert digest_of(f"{folder / name}{ASKED}") != was, name
    files, unknown = opened()  # all but the folder are other ones than when they were asked about
    assert (list(files), len(unknown)) == ([f"folder{ASKED}"], 3)


def test_a_wrapped_function_of_os_supports_what_it_did(user):
    assert os.stat in os.supports_follow_symlinks
    assert os.stat in os.supports_dir_fd
    assert os.access in os.supports_effective_ids
    with open(user[2] / "data.txt") as file:
        assert os.stat(file.fileno()).st_size == 1


def test_a_database_counts_by_its_file_however_it_is_named(user):
    module, opened, folder = user
    for name in ("first.db", "second.db"):
        (folder / name).write_bytes(b"")
    module.opens_a_database()
    assert {"first.db", "second.db"} <= set(opened()[0])


def test_what_is_not_there_and_what_a_folder_holds_count(user):
    module, opened, folder = user
    module.asks_for_what_is_not_there()
    module.lists()
    files, _ = opened()
    assert files["absent.txt"] == ABSENT
    assert files["folder"].startswith("folder ")
    (folder / "absent.txt").write_text("")
    assert "absent.txt" in str(opened()[1])


def test_a_file_that_the_code_wrote_itself_is_no_input(user):
    module, opened, _ = user
    module.writes_first()
    assert opened() == ({}, ())


def test_a_file_that_is_changed_by_the_code_is_unknown(user):
    module, opened, _ = user
    module.appends()
    assert "data.txt" in opened()[1][0]


def test_files_of_python_of_packages_and_of_the_machine_are_left_out(user):
    module, opened, _ = user
    module.imports_a_package()
    assert opened() == ({}, ())


@pytest.mark.parametrize("variable", ["PTXDIFF_CACHE_DIR", "XDG_CACHE_HOME"])
def test_files_of_the_cache_folder_of_that_moment_are_left_out(user, monkeypatch, variable):
    """The process may choose another folder after it was asked about the same file."""
    module, opened, folder = user
    monkeypatch.delenv("PTXDIFF_CACHE_DIR", raising=False)
    name = "folder" if variable == "PTXDIFF_CACHE_DIR" else "ptxdiff"
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "kept").write_text("1")
    there = str(folder / "folder" if variable == "PTXDIFF_CACHE_DIR" else folder)
    for chosen, noted in ((there, False), (str(folder / "elsewhere"), True)):
        monkeypatch.setenv(variable, chosen)
        module.reads_in(folder / name / "kept")
        assert ("kept" in opened()[0]) is noted


def test_what_the_machine_says_at_that_moment_is_unknown(user):
    module, opened, _ = user
    module.asks_the_machine()
    assert opened() == ({}, ("it reads /proc/self/environ, which says what is so at that moment",))


def test_what_the_process_has_is_unknown(user):
    module, opened, _ = user
    module.lets_python_ask_the_process()
    assert not opened()[1]
    module.asks_the_process()
    words = "which says what is so of the process or the machine"
    assert opened()[1] == (f"it calls os.umask, {words}", f"it calls os.getpid, {words}")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("torch.from_file('x', size=1)", "from_file"),
        ("torch.jit.load('x')", "jit.load"),
        ("safetensors.torch.load_file('x')", "load_file"),
        ("numpy.fromfile('x')", ""),
        ("load_files('x')", ""),
    ],
)
def test_functions_whose_compiled_code_opens_files_are_unknown(text, word, tmp_path):
    (tmp_path / "_native.py").write_text(f"def f():\n    return {text}\n")
    unknown = opened_by([str(tmp_path / "_native.py")]).unknown
    assert unknown == ((f"it calls {word}, by which compiled code opens files that nothing notes",) if word else ())


def test_a_process_that_is_started_is_unknown(user):
    module, opened, _ = user
    module.starts_a_process()
    assert opened()[1] == ("it starts a process",)


@pytest.mark.parametrize(("name", "unknown"), [("open", ("it calls C's open",)), ("strlen", ())])
def test_a_reader_of_the_c_library_is_unknown(user, name, unknown):
    """`ctypes.CDLL(None).open(...)` is no event of the audit hook; that `open` is looked up is one."""
    module, opened, _ = user
    module.reads_by_the_c_library(name)
    assert opened()[1] == unknown


def test_another_file_has_its_own_openings(user, tmp_path):
    module, *_ = user
    (tmp_path / "_other.py").write_text("def f(g):\n    return 1\n")
    other = execute_file(tmp_path / "_other.py", "_other")
    other.f(module.reads())
    assert opened_by([str(tmp_path / "_other.py")]).files == {}
    assert Path(tmp_path / "data.txt").exists()


def test_pytest_elsewhere_gets_no_hook(tmp_path):
    """The hook cannot be removed, so projects without cases must not get it."""
    (tmp_path / "test_plain.py").write_text(
        "import sys\ndef test_plain():\n    assert 'ptxdiff.model.identity.opened' not in sys.modules\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout


NOTED = """
import sys
from pathlib import Path
from ptxdiff.model.identity import digest_with_code
from ptxdiff.model.identity.modules import execute_file
from ptxdiff.model.identity.opened import opened_by

file = Path(sys.argv[1])
codes = [digest_with_code(execute_file(file, f"_{watched}", watched=watched).asks, exact=True) for watched in WATCHED]
print(len(set(codes)), sorted(Path(p.rstrip("?")).name for p in opened_by([str(file)]).files if p != str(file)))
print(codes[-1])
"""


def test_an_unwatched_file_notes_nothing_and_has_the_digests_of_a_watched_one(tmp_path):
    """A compiler's process reports no notes, so it needs no hook; a kernel's code has one digest in both processes."""
    (tmp_path / "_user.py").write_text(
        "from os import stat\nfrom pathlib import Path\nHERE = Path(__file__).parent\n"
        "(HERE / 'data.txt').read_text()\nstat(HERE / 'asked.txt')\ndef asks():\n    return stat(HERE)\n"
    )
    for name in ("data.txt", "asked.txt"):
        (tmp_path / name).write_text("")

    def told(watched: str) -> list[str]:
        words = [sys.executable, "-c", NOTED.replace("WATCHED", watched), str(tmp_path / "_user.py")]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()

    unwatched, both = told("[False]"), told("[False, True]")
    assert unwatched[0] == "1 []"
    assert both[0] == "1 ['asked.txt', 'data.txt']"
    assert unwatched[1] == both[1] == told("[True]")[1]


NOTED_WITHIN = """
import sys
from pathlib import Path
from ptxdiff.model.identity.modules import execute_file
from ptxdiff.model.identity.opened import noting, notes, opened_by, take_over

file = Path(sys.argv[1])
names = lambda: sorted(Path(p).name for p in opened_by([str(file)]).files)
module = execute_file(file, "_user", watched=False)
module.reads("before.txt")
with noting():
    module.reads("within.txt")
module.reads("after.txt")
print(*names())
execute_file(file, "_again")
module.reads("watched.txt")
with noting():
    pass
module.reads("later.txt")
print(*names())
"""


def test_a_process_that_notes_within_blocks_alone_does_so_until_it_executes_a_watched_file(tmp_path):
    (tmp_path / "_user.py").write_text(
        "from pathlib import Path\ndef reads(name):\n    (Path(__file__).parent / name).read_text()\n"
    )
    for name in ("before", "within", "after", "watched", "later"):
        (tmp_path / f"{name}.txt").write_text("")
    words = [sys.executable, "-c", NOTED_WITHIN, str(tmp_path / "_user.py")]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert told == ["within.txt", "later.txt watched.txt within.txt"]


def test_notes_of_another_process_count_as_this_processs_own(user, tmp_path):
    module = user[0]
    module.reads()
    data, other = str(tmp_path / "data.txt"), str(tmp_path / "other.txt")
    (tmp_path / "other.txt").write_text("")
    changed = opened._Noted({data: (0, 0, 0), other: opened._stamp(other)}, effects={"it starts a process": None})
    opened.take_over(opened.ProcessNotes({module.__file__: changed}, ()))
    found = opened_by([module.__file__])
    assert other in found.files
    assert data not in found.files
    assert len(found.unknown) == 2


def test_an_event_after_the_modules_are_gone_is_ignored():
    """At Python's end the hook's own module is empty before those imported earlier; each `id` is an event."""
    late = (
        "import os\n"
        "from ptxdiff.model.identity import opened\n"
        "opened.watch()\n"
        "class Late:\n"
        "    def __del__(self, ask=id, write=os.write, module=opened):\n"
        "        ask(self)\n"
        "        write(1, b'empty' if module._EVENTS is None else b'whole')\n"
        "os.late = Late()\n"
    )
    done = subprocess.run([sys.executable, "-c", late], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("empty", "")


def test_a_real_path_is_that_of_python(tmp_path: Path) -> None:
    """Its folders are looked at once for all files in them."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file.py").write_text("")
    (tmp_path / "link.py").symlink_to("folder/file.py")
    (tmp_path / "linked").symlink_to("folder")
    (tmp_path / "folder" / "out").symlink_to("/")
    for name in (
        "folder/file.py", "link.py", "linked/file.py", "linked/absent.py", "linked/../link.py", "linked", "linked/",
        "linked/.", "linked/..", "folder/out/..", "folder/out", "absent/x/../y", "",
    ):  # fmt: skip
        path = f"{tmp_path}/{name}"
        assert real_path(path) == os.path.realpath(path)
