"""A wheel in an environment of its own, beside a project whose packages have the names of our folders."""

import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]

CASE = '''"""A case."""
from ptxdiff import Case, asm, exact
from ptxdiff.references.formats import U32


def reference(x):
    return x


case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=reference, source="none",
    variants={"mov": asm("mov.b32 $0, $1;")},
)
'''

COPY = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 source, .param .u64 destination) {
  .reg .u32 %r<7>; .reg .u64 %rd<6>; .shared .align 4 .b8 held[128];
  ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [destination];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3; mul.wide.u32 %rd3, %r1, 4;
  add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
  ld.global.u32 %r4, [%rd1]; shl.b32 %r5, %r3, 2; mov.u32 %r6, held; add.u32 %r5, %r5, %r6;
  st.shared.u32 [%r5], %r4; bar.sync 0; ld.shared.u32 %r4, [%r5]; st.global.u32 [%rd2], %r4; ret;
}
"""

PRODUCT = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry product(.param .u64 destination) {
  .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .u64 %rd<3>;
  mov.b32 %r1, 0; mov.f32 %f1, 0f00000000;
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f5,%f6,%f7,%f8}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, {%f1,%f1,%f1,%f1};
  ld.param.u64 %rd1, [destination]; st.global.f32 [%rd1], %f5; ret;
}
"""

THEIRS = ("harness", "references", "reports", "tests")
"""Packages of the project, with the names of our folders."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Our wheel, built from a copy of the sources, because setuptools writes into the source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    tracked = [
        "harness",
        "references",
        "reports",
        "cases",
        "ptxdiff",
        "pyproject.toml",
        "setup.py",
        "README.md",
        "LICENSE",
    ]
    copied = [str(ROOT / name) for name in tracked]
    subprocess.run(["cp", "-r", "--no-dereference", *copied, str(source)], check=True, timeout=100)
    build = "from setuptools import build_meta; print(build_meta.build_wheel(__import__('sys').argv[1]))"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=source, check=True, capture_output=True, timeout=200)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """An interpreter with the wheel and what this environment has beside ptxdiff."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=100)
    [packages] = (folder / "lib").glob("python*/site-packages")
    beside = folder / "beside"
    beside.mkdir()
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if "ptxdiff" not in installed.name and installed.suffix != ".pth":
            (beside / installed.name).symlink_to(installed)
    (packages / "beside.pth").write_text(f"{beside}\n")
    pip(folder / "bin" / "python", "install", "--no-deps", "--no-index", "--no-compile", str(wheel))
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """An interpreter with the wheel and what the base install requires, and nothing else."""
    return installed_with("", wheel, tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def with_triton(wheel, tmp_path_factory):
    """An interpreter with the wheel and what `ptxdiff[triton]` requires, and nothing else."""
    return installed_with("triton", wheel, tmp_path_factory.mktemp("triton"))


def installed_with(extra, wheel, folder):
    """An interpreter with the wheel and what an extra requires, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=100)
    [packages] = (folder / "lib").glob("python*/site-packages")
    beside = folder / "beside"
    beside.mkdir()
    pip(folder / "bin" / "python", "install", "--no-deps", "--no-index", "--no-compile", str(wheel))
    [installed] = packages.glob("ptxdiff-*.dist-info")
    ours = importlib.metadata.Distribution.at(installed).requires or ()
    todo, known = [(text, extra) for text in ours], set()
    while todo:
        text, wanted = todo.pop()
        requirement = Requirement(text)
        name = requirement.name.lower().replace("_", "-")
        if requirement.marker and not requirement.marker.evaluate({"extra": wanted}):
            continue
        if name == "ptxdiff":
            todo += [(text, e) for text in ours for e in requirement.extras]
        elif name not in known:
            known.add(name)
            distribution = importlib.metadata.distribution(name)
            todo += [(text, "") for text in distribution.requires or ()]
            for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
                (beside / top).symlink_to(distribution.locate_file(top))
    (packages / "beside.pth").write_text(f"{beside}\n")
    return folder / "bin" / "python"


def pip(python, *words):
    command = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True, capture_output=True, timeout=200)


@pytest.fixture
def project(tmp_path):
    """A project with packages called `harness`, `references`, `reports`, `cases` and `tests`, and a script."""
    for name in THEIRS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWNER = 'the user has a package {name}'\n")
        (tmp_path / name / "mine.py").write_text("MINE = 1\n")
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "__init__.py").write_text("")
    (tmp_path / "cases" / "mov.py").write_text(CASE)
    imports = "".join(f"import {name}\nfrom {name}.mine import MINE\n" for name in THEIRS)
    (tmp_path / "tests" / "test_mine.py").write_text(
        f"{imports}\n\ndef test_each_package_is_the_users():\n"
        f"    for package in ({', '.join(THEIRS)}):\n        assert package.OWNER.endswith(package.__name__)\n"
    )
    (tmp_path / "script.py").write_text(
        f"{imports}import numpy as np\nfrom ptxdiff import emulate\n"
        "[y] = emulate('add.u32 $0, $1, $2;', '=r,r,r', [np.uint32([1]), np.uint32([2])], 'uint32') ,\n"
        "print(harness.OWNER, np.asarray(y).ravel()[0])\n"
    )
    return tmp_path


def run(python, folder, *words):
    """Run a command of the environment in a folder, as its user would."""
    environment = {n: v for n, v in os.environ.items() if n not in ("PYTHONPATH", "PYTEST_ADDOPTS")}
    return subprocess.run(
        [str(python), *words], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def test_a_wheel_holds_one_package_and_the_examples(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {n.partition("/")[0].partition("-")[0] for n in names} == {"ptxdiff"}
    files = (p.relative_to(ROOT / "cases") for kind in ("*.py", "*.ptx") for p in (ROOT / "cases").rglob(kind))
    assert {f"ptxdiff/cli/examples/{p}" for p in files} <= names
    for folder in ("harness", "references", "reports"):
        inside = "ptxdiff" if folder == "harness" else f"ptxdiff/{folder}"
        modules = {f"{inside}/{p.relative_to(ROOT / folder)}" for p in (ROOT / folder).rglob("*.py")}
        assert modules <= names
    assert {"ptxdiff/py.typed", "ptxdiff/conformance/ledger.jsonl"} <= names
    assert any(n.startswith("ptxdiff/reports/templates/") for n in names)
    assert any(n.startswith("ptxdiff/lint/pages/") for n in names)


@pytest.mark.slow
def test_a_project_with_packages_of_the_same_names_keeps_its_tests_and_ours_run(python, project):
    done = run(python, project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", "cases",
               "--ptx-backend=emulator",
               "--ptx-target=sm_90a")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.slow
def test_the_command_runs_the_projects_cases(python, project):
    program = python.with_name("ptxdiff")
    done = subprocess.run(
        [program, "run", "cases", "--backend", "emulator", "--target", "sm_90a"], cwd=project, capture_output=True,
        text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.slow
def test_a_script_in_the_projects_root_gets_both(python, project):
    done = run(python, project, "script.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the user has a package harness 3\n"


@pytest.mark.slow
def test_examples_come_with_the_wheel(python, tmp_path):
    for name, example in (("mine", "rcp"), ("quantise", "nvfp4_quantize")):
        done = run(python, tmp_path, "-m", "ptxdiff", "new", name, "--from", example)
        assert done.returncode == 0, done.stderr
    listed = run(python, tmp_path, "-m", "ptxdiff", "list")
    assert listed.returncode == 0, listed.stderr
    assert "quantise" in listed.stdout
    assert (tmp_path / "cases" / "mine.py").read_text() == (ROOT / "cases" / "rcp.py").read_text()


@pytest.mark.slow
def test_uninstalling_leaves_nothing(wheel, python, tmp_path):
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=100)
    own = folder / "bin" / "python"
    before = {p for p in folder.rglob("*") if "__pycache__" not in p.parts}
    pip(own, "install", "--no-deps", "--no-index", "--no-compile", str(wheel))
    assert run(own, tmp_path, "-c", "import ptxdiff; print(ptxdiff.__version__)").returncode == 0
    pip(own, "uninstall", "--yes", "ptxdiff")
    assert {p for p in folder.rglob("*") if "__pycache__" not in p.parts} == before
    assert "No module named 'ptxdiff'" in run(own, tmp_path, "-c", "import ptxdiff").stderr


def test_the_base_install_runs_lint_emulate_and_kernels_in_ptx(bare, project):
    script = run(bare, project, "script.py")
    assert script.stdout == "the user has a package harness 3\n", script.stderr
    assert run(bare, project, "-m", "ptxdiff", "lint", "cases").returncode == 0
    emulated = run(
        bare, project, "-m", "ptxdiff", "emulate", "ex2.approx.f32 $0, $1;", "-i", "float32=3", "-o", "float32"
    )
    assert "8" in emulated.stdout
    (project / "copy.ptx").write_text(COPY)
    (project / "launch.py").write_text(
        "import sys\nfrom pathlib import Path\nimport numpy as np\nfrom ptxdiff import emulate, run_ptx\n"
        "x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)\n"
        "run_ptx(Path('copy.ptx'), 2, 32, x, y)\nassert (x == y).all()\n"
        "many = np.arange(300_000, dtype=np.uint32)\n"
        "assert (emulate('add.u32 $0, $1, 1;', '=r,r', [many], 'uint32') == many + 1).all()\n"
        "assert not {'torch', 'triton', 'hypothesis', 'altair', 'llvmlite', 'numba'} & set(sys.modules)\n"
    )
    launched = run(bare, project, "launch.py")
    assert launched.returncode == 0, launched.stderr
    assert "about 1000 times slower" in launched.stderr
    assert "pip install 'ptxdiff[compiler]'" in launched.stderr


@pytest.mark.slow
def test_a_product_in_the_base_install_is_an_error_with_the_command_that_installs_the_compiler(bare, project):
    (project / "product.ptx").write_text(PRODUCT)
    (project / "launch.py").write_text(
        "from pathlib import Path\nimport numpy as np\nfrom ptxdiff import run_ptx\n"
        "run_ptx(Path('product.ptx'), 1, 32, np.zeros(1, np.float32))\n"
    )
    launched = run(bare, project, "launch.py")
    assert launched.returncode != 0
    assert "NotInstalled: line 8, " in launched.stderr
    assert "running matrix products needs numba and llvmlite: pip install 'ptxdiff[compiler]'" in launched.stderr


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("-m", "ptxdiff", "run", "cases"), "triton"),
        (("-m", "ptxdiff", "show", "mov"), "triton"),
        (("-m", "pytest", "-q", "cases"), "triton"),
        (("-c", "import ptxdiff.strategies"), "strategies"),
        (("-c", "from ptxdiff import emulated; emulated(print)[(1,)]()"), "triton"),
        (("-c", "import numpy; from ptxdiff.references import arithmetic as a; a.torch.zeros(1)"), "triton"),
    ],
)
def test_a_missing_extra_is_an_error_with_the_command_that_installs_it(bare, project, words, extra):
    done = run(bare, project, *words)
    assert done.returncode != 0
    assert f"pip install 'ptxdiff[{extra}]'" in done.stdout + done.stderr


@pytest.mark.slow
def test_cases_run_with_the_extra_triton_alone(with_triton, project):
    """pytest-xdist is no part of it: a run that leaves something to reuse must not need it."""
    words = "-m", "ptxdiff", "run", "cases", "--backend", "emulator", "--target", "sm_90a", "--fresh"
    done = run(with_triton, project, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_folder_of_the_repository_is_no_package_of_its_own(tmp_path):
    done = run(sys.executable, ROOT, "-c", "import " + "harness")
    assert "import ptxdiff instead of harness" in done.stderr


def test_the_package_lists_its_names():
    import ptxdiff

    assert {"Case", "asm", "emulate", "run_ptx", "ulp"} <= set(dir(ptxdiff))
    assert all(getattr(ptxdiff, name) is not None for name in ptxdiff.__all__)


def test_the_page_about_installing_has_every_extra():
    [requires] = [line for line in (ROOT / "docs/how-to/install.md").read_text().split("\n\n") if "| extra |" in line]
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])
    assert {row.split("`")[1] for row in requires.splitlines()[2:]} == extras - {"all", "dev"}
