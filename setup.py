"""Puts the files of `cases/` into the wheel as examples of `ptxdiff new`; all else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
EXAMPLES = [str(p.relative_to(HERE)) for p in sorted((HERE / "cases").rglob("*")) if p.suffix in (".py", ".ptx")]


class WithExamples(build_py):
    """The usual step, and a copy of each case file and of the PTX beside it."""

    def run(self) -> None:
        """Copy the packages, then the examples; an editable installation finds them in `cases/`."""
        super().run()
        for example in [] if self.editable_mode else EXAMPLES:
            target = Path(self.build_lib, "ptxdiff", "cli", "examples", Path(example).relative_to("cases"))
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(example, str(target))

    def get_source_files(self) -> list[str]:
        """What a source distribution has to hold."""
        return [*super().get_source_files(), *EXAMPLES]


setup(cmdclass={"build_py": WithExamples})
