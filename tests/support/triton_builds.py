"""Environments with their own Triton, made of links to the installed one, so that tests can plant faults in it."""

import subprocess
import sys
import sysconfig
from pathlib import Path

from ptxdiff.triton.builds import triton_folder

FAULT = """
_made = CUDABackend.make_ptx
CUDABackend.make_ptx = lambda self, *given: _made(self, *given).replace("xor.b32", "or.b32")
"""


def environment(folder: Path, version: str, fault: str = "") -> Path:
    """A virtual environment whose Triton reports `version`. fault: Python code appended to its NVIDIA backend's
    compiler."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"])
    copied = ("__init__.py", "backends", "backends/nvidia", "backends/nvidia/compiler.py")
    _linked(triton_folder(), packages / "triton", {Path(c) for c in copied})
    init = packages / "triton" / "__init__.py"
    words = [f"__version__ = '{version}'" if w.startswith("__version__") else w for w in init.read_text().split("\n")]
    init.write_text("\n".join(words))
    compiler(folder).write_text(compiler(folder).read_text() + fault)
    return folder


def compiler(folder: Path) -> Path:
    """The file into which faults are planted."""
    return next(folder.glob("lib/python*/site-packages/triton/backends/nvidia/compiler.py"))


def _linked(source: Path, place: Path, copied: set[Path], inside: Path = Path()) -> None:
    place.mkdir()
    for entry in source.iterdir():
        name = inside / entry.name
        if entry.name == "__pycache__":  # compiled files of linked sources are valid and save each process a second
            (place / entry.name).mkdir()
            for file in entry.iterdir():
                if inside / f"{file.name.split('.')[0]}.py" not in copied:
                    (place / entry.name / file.name).symlink_to(file)
        elif name not in copied:
            (place / entry.name).symlink_to(entry)
        elif entry.is_dir():
            _linked(entry, place / entry.name, copied, name)
        else:
            (place / entry.name).write_bytes(entry.read_bytes())
