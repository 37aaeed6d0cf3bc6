"""The lines of `ptxdiff list` are kept between processes, and never shown after anything that decides them changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from ptxdiff.locations import PACKAGE, ROOT
from ptxdiff.model.identity import everything_read

CASE = '''"""A title."""

import os
from pathlib import Path

import shared
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8

from ._beside import WORD

try:
    from ._more import EXTRA
except ImportError:
    EXTRA = "none"
DATA = Path(__file__).parent / "data.txt"
data = DATA.read_text() if DATA.exists() else "gone"
families = [shared.FAMILY, WORD, EXTRA, data, os.environ.get("OF_A_TEST", "unset"), *sorted(os.listdir("lists"))]
case = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=lambda x: x,
    variants={"first": asm("mov.b32 $0, $1;", pack=4)},
    family="-".join(families),
)
'''

BESIDE = "from ._beside import WORD"

FILES = {
    "cases/one.py": CASE,
    "cases/_beside.py": "WORD = 'beside'\n",
    "cases/data.txt": "data",
    "shared.py": "FAMILY = 'shared'\n",
    "plugin.py": "import os\nos.environ['OF_A_TEST'] = 'plugged'\n",
    "conftest.py": "import shared\nshared.FAMILY += 'A'\n",
    "lists/a.txt": "",
}

# Prints whether case files were loaded, behind the list.
LIST = """
import sys
from ptxdiff.cli import main
code = main(sys.argv[1:])
print("loaded" if any(name.startswith("ptxdiff_folder_") for name in sys.modules) else "kept")
sys.exit(code)
"""


class Folder:
    """A user's folder, and what `ptxdiff list` prints in it."""

    def __init__(self, path):
        self.path = path
        self.cache = path.with_name(f"{path.name}-cache")
        self.environment = {
            **os.environ,
            "PTXDIFF_CACHE_DIR": str(self.cache),
            "PYTHONDONTWRITEBYTECODE": "1",  # Python takes old byte code for a source of the same size and time
            "PYTHONPATH": str(ROOT),
        }
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name, text):
        """Write a file in place, with the time of its last change as it was."""
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        times = (file.stat().st_atime_ns, file.stat().st_mtime_ns) if file.exists() else (10**18, 10**18)
        file.write_text(text)
        os.utime(file, ns=times)

    def replace(self, name, old, new):
        """Replace a text in a file by one of the same length."""
        assert len(old) == len(new)
        text = (self.path / name).read_text()
        assert text.count(old) == 1
        self.write(name, text.replace(old, new))

    def listed(self, *words):
        """The output, and whether case files were loaded."""
        time.sleep(0.05)  # a file as new as the process is no base for what is kept
        done = subprocess.run(
            [sys.executable, "-c", LIST, "list", *words],
            cwd=self.path, env=self.environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        *lines, how = done.stdout.splitlines()
        return "\n".join(lines), how


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory):
    """One folder for all changes: each test changes something, and lists it again."""
    folder = Folder(tmp_path_factory.mktemp("listed"))
    folder.before = folder.listed()[0]
    return folder


CHANGES = {
    "case file": (lambda f: f.replace("cases/one.py", '"first"', '"other"'), "    other"),
    "title": (lambda f: f.replace("cases/one.py", "A title", "A TITLE"), "A TITLE"),
    "module beside it": (lambda f: f.replace("cases/_beside.py", "beside", "BESIDE"), "BESIDE"),
    "module on the path": (lambda f: f.replace("shared.py", "shared", "SHARED"), "SHARED"),
    "conftest.py": (lambda f: f.replace("conftest.py", "'A'", "'B'"), "B-"),
    "data file": (lambda f: f.replace("cases/data.txt", "data", "DATA"), "-DATA-"),
    "data file deleted": (lambda f: (f.path / "cases" / "data.txt").unlink(), "-gone-"),
    "listed folder": (lambda f: f.write("lists/new.txt", ""), "new.txt"),
    "new module": (lambda f: f.write("cases/_more.py", "EXTRA = 'found'\n"), "-found-"),
    "environment": (lambda f: f.environment.update(OF_A_TEST="given"), "-given-"),
    "new case file": (lambda f: f.write("cases/two.py", CASE), "2 cases"),
    "case file deleted": (lambda f: (f.path / "cases" / "two.py").unlink(), "1 case,"),
    "new folder of case files": (lambda f: f.write("cases/more/three.py", CASE.replace(BESIDE, "WORD = ''")), "three"),
    "settings": (lambda f: f.write("pytest.ini", "[pytest]\naddopts = -p plugin\n"), "-plugged-"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_shows_in_the_next_list(shared_folder, change):
    """Without it the list is kept: shown for every third change, because each list is a process."""
    if list(CHANGES).index(change) % 3 == 0:
        assert shared_folder.listed() == (shared_folder.before, "kept")
    act, words = CHANGES[change]
    assert words not in shared_folder.before
    act(shared_folder)
    shared_folder.before, how = shared_folder.listed()
    assert words in shared_folder.before
    assert how == "loaded"


def test_each_command_has_its_own_list(folder):
    whole = folder.listed()[0]
    assert folder.listed("--using", "mov") == (whole, "loaded")
    assert folder.listed("--using", "mov") == (whole, "kept")
    folder.replace("cases/one.py", "mov.b32 $0, $1;", "not.b32 $0, $1;")
    assert "first" in folder.listed("--using", "not")[0]


NOT_KEPT = {
    "prints": "print('said by the case file')",
    "asks a clock": "import time; NOW = time.time()",
    "asks for random bytes": "NUMBER = os.urandom(1)",
    "starts a process": "os.system('true')",
    "reads what is so at the moment": "LOAD = Path('/proc/loadavg').read_text()",
    "writes a module that it imports": "Path('made.py').write_text('X = 1'); import made",
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("line", NOT_KEPT.values(), ids=list(NOT_KEPT))
def test_what_can_differ_in_the_next_process_is_not_kept(folder, line):
    folder.write("cases/one.py", CASE.replace("DATA =", f"{line}\nDATA =", 1))
    assert "first" in folder.listed()[0]
    assert not (folder.cache / "listings").exists()


def test_a_file_written_after_the_process_began_may_have_run_with_its_former_text(folder):
    later = "(Path(__file__).parent / '_beside.py').write_text(\"WORD = 'later'\\n\")"
    folder.write("cases/one.py", CASE.replace("DATA =", f"{later}\nDATA =", 1))
    assert "-beside-" in folder.listed()[0]
    assert "-later-" in folder.listed()[0]


@pytest.mark.slow
def test_old_byte_code_of_a_module_is_part_of_what_ran(folder):
    """Python runs it for a source of the same size and time, until somebody deletes it."""
    del folder.environment["PYTHONDONTWRITEBYTECODE"]
    folder.environment["PYTHONPYCACHEPREFIX"] = str(folder.cache / "bytecode")
    folder.listed()
    folder.replace("shared.py", "shared", "SHARED")
    assert folder.listed()[1] == "loaded"
    for file in (folder.cache / "bytecode").rglob("shared.*.pyc"):
        file.unlink()
    assert "SHARED" in folder.listed()[0]


def test_another_text_of_ptxdiff_or_another_installed_module_is_a_change(folder):
    for _ in range(5):  # other tests may write byte code of a module meanwhile, which is a change
        folder.listed()
        newest = max((folder.cache / "listings").glob("*.bin"), key=lambda path: path.stat().st_mtime_ns)
        read = json.loads(newest.read_bytes()[32:])["read"]  # behind a digest, which may have any byte
        if everything_read.is_as_before({**read, "case files": {}, "names": {}}):
            break
    assert str(PACKAGE / "model" / "describe.py") in read["contents"]
    numpy = next(path for path in read["stamps"] if path.endswith("numpy/__init__.py"))
    read["case files"], read["names"] = {}, {}  # which depend on the current folder
    assert everything_read.is_as_before(read)
    for part, path in (("contents", str(PACKAGE / "model" / "describe.py")), ("stamps", numpy)):
        assert not everything_read.is_as_before({**read, part: {**read[part], path: "another"}})


def test_a_broken_file_is_reported_each_time(folder):
    folder.write("cases/broken.py", "import ptxdiff\n1 / 0\n")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "ptxdiff", "list"], cwd=folder.path, env=folder.environment, capture_output=True
        )
        assert (done.returncode, b"ZeroDivisionError" in done.stderr) == (2, True)
        time.sleep(0.05)
