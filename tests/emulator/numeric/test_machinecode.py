"""Machine code of definitions on disk: another process loads it, but never code that may be wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ptxdiff import diskcache
from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import FORMS, Form, find
from ptxdiff.emulator.numeric import vectorise
from ptxdiff.emulator.numeric.translation import loops, machinecode
from ptxdiff.emulator.numeric.vectorise import ArrayFunction, register_helpers, wrapping
from tests.support.emulator.isa.defined_forms import ends, inputs
from tests.support.sampling import spread

isa.load()
PROGRAM = """
import sys
import numpy as np
from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator import isa
isa.load()
from ptxdiff.emulator.numeric.translation import machinecode
compiled, real = [], machinecode._Processor.compiled
machinecode._Processor.compiled = lambda *given: compiled.append(1) or real(*given)
function = find("xor", ("b32",))[0].array_function()
run = getattr(function, sys.argv[1])
got = run(3, np.array([1, 2, 3], np.uint32), np.array([7, 7, 7], np.uint32))
print(got.tolist(), "compiled" if compiled else "loaded", "numba" in sys.modules)
"""


def process(folder: str, form: str) -> str:
    environment = {**os.environ, "PTXDIFF_CACHE_DIR": folder}
    words = [sys.executable, "-c", PROGRAM, form]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["shared", "compiled"])
def test_a_second_process_loads_the_code_that_the_first_compiled(tmp_path: Path, form: str) -> None:
    """Slow: five processes. None imports numba."""
    folder = tmp_path / "cache"
    assert process(str(folder), form) == "[6, 5, 4] compiled False"
    assert process(str(folder), form) == "[6, 5, 4] loaded False"
    for path in (folder / "compiled").iterdir():
        path.write_bytes(b"garbage")
    assert process(str(folder), form) == "[6, 5, 4] compiled False"
    for path in (folder / "compiled").iterdir():
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
    assert process(str(folder), form) == "[6, 5, 4] compiled False"
    assert process("", form) == "[6, 5, 4] compiled False"


TEXT = loops.shared(find("xor", ("b32",))[0].form.function, 2, 0)


@pytest.fixture
def compilations(monkeypatch, tmp_path):
    """The texts that are compiled, in order; the cache is new and holds the code of TEXT."""
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path))
    machinecode._code(TEXT)
    seen: list[str] = []
    compiled = machinecode._Processor.compiled
    monkeypatch.setattr(machinecode._Processor, "compiled", lambda p, text: seen.append(text) or compiled(p, text))
    assert machinecode._code(TEXT)
    assert not seen
    return seen


def test_another_text_is_compiled(compilations):
    changed = TEXT.replace(" xor ", " or ")
    assert changed != TEXT
    machinecode._code(changed)
    assert compilations == [changed]


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [("OPTIONS", "opt", 1), ("TUNING", "speed_level", 1), ("TUNING", "loop_vectorization", False)],
)
def test_code_of_other_options_is_not_loaded(monkeypatch, compilations, options, name, value):
    assert getattr(machinecode, options)[name] != value
    monkeypatch.setitem(getattr(machinecode, options), name, value)
    machinecode._code(TEXT)
    assert compilations == [TEXT]


@pytest.mark.parametrize("name", ["triple", "cpu", "features"])
def test_code_of_another_processor_is_not_loaded(monkeypatch, compilations, name):
    processor = machinecode._processor()
    monkeypatch.setattr(processor, name, getattr(processor, name) + "x")
    monkeypatch.setattr(machinecode._Processor, "compiled", lambda p, text: compilations.append(text) or b"code")
    assert machinecode._code(TEXT) == b"code"
    assert compilations == [TEXT]


@pytest.mark.parametrize(("module", "name"), [("llvmlite", "__version__"), ("llvm", "llvm_version_info")])
def test_code_of_another_compiler_is_not_loaded(monkeypatch, compilations, module, name):
    monkeypatch.setattr(getattr(machinecode, module), name, "another")
    machinecode._code(TEXT)
    assert compilations == [TEXT]


def test_code_under_another_name_is_not_loaded(compilations, tmp_path):
    (file,) = (tmp_path / "compiled").glob("*.bin")
    machinecode._code(TEXT + "\n; changed")
    (other,) = set((tmp_path / "compiled").glob("*.bin")) - {file}
    other.write_bytes(file.read_bytes())
    machinecode._code(TEXT + "\n; changed")
    assert len(compilations) == 2


def test_functions_of_one_engine_are_not_confused():
    """The three functions have the same operands."""
    a, b = np.array([12, 5], np.uint32), np.array([10, 3], np.uint32)
    for opcode, expected in (("and", [8, 1]), ("or", [14, 7]), ("xor", [6, 6])):
        function = find(opcode, ("b32",))[0].array_function()
        assert function.compiled(2, a, b).tolist() == expected
        assert function.shared(2, a, b).tolist() == expected


def test_threads_run_shared_code_at_once():
    """Each has rows of its own for operands and results, also for more operands than the rows were made for."""
    function = find("xor", ("b32",))[0].array_function()

    def differs(seed: int) -> bool:
        a, b = np.random.default_rng(seed).integers(0, 1 << 32, (2, 40_000), np.uint32)
        if seed % 2:
            vectorise._scratch.grown(1)
        return bool((function.shared(40_000, a, b) != a ^ b).any())

    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(differs, range(100)))


def test_code_that_is_not_in_the_cache_is_compiled_again(compilations):
    diskcache.find_nothing("compiled")
    try:
        machinecode._code(TEXT)
    finally:
        diskcache.find_nothing()
    assert compilations == [TEXT]


def by_numba(function: ArrayFunction, columns: list[np.ndarray]) -> np.ndarray:
    """The results of a definition that numba compiles."""
    numba = register_helpers()
    operands = ", ".join([*(f"values[{k}, i]" for k in range(len(columns))), *map(repr, function.constants)])
    scope = {"function": function.function, "int64": numba.int64}
    exec(
        f"def loop(out, values):\n    for i in range(out.size):\n        out[i] = int64(function({operands}))\n", scope
    )
    with wrapping():
        loop = numba.njit("(int64[::1], int64[:, ::1])", error_model="numpy")(scope["loop"])
    read = zip(columns, function.sources, strict=True)
    signed = [c.view(f"i{c.itemsize}") if s or w == 64 else c for c, (w, s) in read]
    values = np.array(signed, np.int64).reshape(len(columns), -1)
    out = np.empty(values.shape[1], np.int64)
    loop(out, values)
    return (out & 1 if function.width == 1 else out).astype(function.dtype)


def numba_agrees(form: Form, count: int) -> None:
    for bound in ends(form):
        columns = inputs(bound, count // 2, count // 2)
        if columns:
            run = bound.array_function()
            expected = by_numba(run, columns)
            assert (run.shared(count, *columns) == expected).all(), bound.spelling
            assert (run.compiled(count, *columns) == expected).all(), bound.spelling


SAMPLES = [("fma", "f32"), ("cvt", "f16x2"), ("shf", "b32")]


@pytest.mark.slow
@pytest.mark.parametrize(("opcode", "kind"), spread(SAMPLES, 2))
def test_numba_compiles_a_definition_to_the_same_results(opcode, kind):
    """numba also compiles the definitions that a device runs in comparisons (`ptxdiff.conformance.kernels`)."""
    form = next(f for f in FORMS[opcode] if f.function is not None and kind in f.pattern)
    numba_agrees(form, 20_000)


@pytest.mark.slow  # numba compiles 700 definitions, a third of a second each
@pytest.mark.parametrize(
    "form", [f for forms in FORMS.values() for f in forms if f.function is not None], ids=lambda f: f.pattern
)
def test_numba_compiles_each_definition_to_the_same_results(form):
    numba_agrees(form, 20_000)
