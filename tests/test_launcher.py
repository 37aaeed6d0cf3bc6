"""`ptxdiff.emulated`: launching whole kernels on the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ptxdiff import emulated
from ptxdiff.cli.run import plugin_words
from ptxdiff.emulator import UndefinedBits
from ptxdiff.emulator.errors import MemoryFault
from ptxdiff.launcher import LaunchError
from tests import launch_kernels
from tests.support import small_kernels

TARGETS = ["sm_80", "sm_90a", "sm_100a", "sm_120a"]


@pytest.mark.parametrize("target", TARGETS)
def test_numpy_arrays_are_changed_in_place(target):
    x, y = np.arange(1000, dtype=np.float32), np.zeros(1000, dtype=np.float32)
    emulated(launch_kernels.scale, target=target)[(4,)](x, y, 1000, 0.5, BLOCK=256)
    assert (y == x / 2).all()


def test_torch_tensors_and_a_grid_that_depends_on_arguments():
    x, y = torch.randn(777), torch.empty(777)
    emulated(launch_kernels.scale)[lambda meta: (-(-777 // meta["BLOCK"]),)](x, y, 777, 2.0, BLOCK=128, num_warps=2)
    assert torch.equal(y, x * 2)


def test_a_size_of_one_is_specialised_as_triton_does():
    x, y = torch.randn(1), torch.zeros(1)
    emulated(launch_kernels.scale)[(1,)](x, y, 1, 3.0, BLOCK=32)
    assert torch.equal(y, x * 3)


def test_views_with_strides_and_misaligned_starts():
    base = torch.arange(200, dtype=torch.float32)
    x = base[1:161].view(10, 16)[:, :8]
    y = torch.zeros(10, 8)
    emulated(launch_kernels.strided)[(10,)](x, y, 10, x.stride(0), y.stride(0), COLUMNS=8, num_warps=1)
    assert torch.equal(y, x)


def test_the_same_tensor_may_be_input_and_output():
    x = torch.arange(64, dtype=torch.float32)
    emulated(launch_kernels.scale)[(1,)](x, x, 64, 2.0, BLOCK=64)
    assert torch.equal(x, torch.arange(64, dtype=torch.float32) * 2)


def test_tuples_of_pointers():
    a, b, q = torch.randn(50), torch.randn(50), torch.zeros(50)
    emulated(launch_kernels.pairs)[(1,)]((a, b), q, 50, BLOCK=64)
    assert torch.equal(q, a + b)


def test_every_option_of_tritons_compiler_can_be_given_at_a_launch(monkeypatch):
    from ptxdiff.triton import compile

    given, plain = [], compile.compile_kernel
    monkeypatch.setattr(compile, "compile_kernel", lambda spec, **k: given.append(spec.options) or plain(spec, **k))
    x, y = torch.randn(50), torch.zeros(50)
    launch = emulated(launch_kernels.scale, "sm_100a")[(1,)]
    launch(x, y, 50, 3.0, BLOCK=64, num_stages=2, launch_pdl=True, default_dot_input_precision="ieee")
    assert torch.equal(y, x * 3)
    assert dict(given[0]) == {"num_stages": 2, "launch_pdl": True, "default_dot_input_precision": "ieee"}
    with pytest.raises(LaunchError, match="unexpected keyword argument 'warp_size'"):
        launch(x, y, 50, 3.0, BLOCK=64, warp_size=64)


def test_only_triton_s_own_libdevice_may_be_given_as_a_library(tmp_path):
    """A library that is not linked would change no bit, and its kernel would pass with libdevice's functions."""
    from triton.backends.nvidia import compiler

    own = Path(compiler.__file__).parent / "lib" / "libdevice.10.bc"
    x, y = torch.rand(50), torch.zeros(50)
    launch = emulated(launch_kernels.scale, "sm_100a")[(1,)]
    launch(x, y, 50, 3.0, BLOCK=64, extern_libs={"libdevice": str(own)})
    assert torch.equal(y, x * 3)
    other = tmp_path / "other.bc"
    other.write_bytes(own.read_bytes()[:-4])
    for libraries in ({"libdevice": str(other)}, {"mine": str(own)}):
        with pytest.raises(LaunchError, match=r"extern_libs: .* is not the libdevice of this Triton, which alone is"):
            launch(x, y, 50, 3.0, BLOCK=64, extern_libs=libraries)
    with pytest.raises(LaunchError, match="extern_libs: the library 'libdevice' cannot be read"):
        launch(x, y, 50, 3.0, BLOCK=64, extern_libs={"libdevice": str(tmp_path / "none.bc")})


def test_a_store_past_the_end_names_the_line_of_the_kernel():
    x, y = np.arange(100, dtype=np.int32), np.zeros(100, dtype=np.int32)
    with pytest.raises(MemoryFault, match=r"out of bounds: 4 bytes at offset 400 of y.*launch_kernels\.py:\d+"):
        emulated(launch_kernels.too_far)[(1,)](x, y, 100, BLOCK=128)
    assert not y.any(), "arrays are unchanged after a fault"


def test_an_unwritten_output_is_reported_if_requested():
    y = torch.zeros(64)
    emulated(launch_kernels.half_written)[(1,)](y, 64, BLOCK=64)
    with pytest.raises(UndefinedBits, match="128 bytes of y were never written, first 128"):
        emulated(launch_kernels.half_written)[(1,)](y, 64, BLOCK=64, unwritten=("y",))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.zeros(4), np.zeros(4), 4), "missing a required argument: 'factor'"),
        ((np.zeros(4, complex), np.zeros(4), 4, 1.0), "no pointer to complex128"),
        ((np.zeros(4)[::-1], np.zeros(4), 4, 1.0), "negative strides"),
        ((object(), np.zeros(4), 4, 1.0), "accepts no object"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(LaunchError, match=words):
        emulated(launch_kernels.scale)[(1,)](*arguments, BLOCK=32)


def test_overlapping_arguments_are_refused():
    base = torch.zeros(100)
    with pytest.raises(LaunchError, match="overlaps another argument"):
        emulated(launch_kernels.scale)[(1,)](base[:60], base[30:90], 60, 1.0, BLOCK=64)


def test_a_kernel_that_does_not_compile_says_why():
    with pytest.raises(LaunchError, match="does not compile for sm_100a"):
        emulated(launch_kernels.scale)[(1,)](torch.zeros(4), torch.zeros(4), 4, 1.0, BLOCK=5)


def test_asm_that_writes_its_input_is_reported():
    """LLVM assumes that asm leaves its input unchanged, so that it computes `twice - v` as zero."""
    with pytest.raises(LaunchError, match=r"inline asm, line 2, .*`add.f32 \$1, \$1, \$1;` writes the input \$1"):
        emulated(launch_kernels.doubled_in_its_input)[(1,)](torch.zeros(64), torch.zeros(64), 64, BLOCK=64)


def interpreted(*words: str) -> str:
    """The output of a separate Python process: Triton reads TRITON_INTERPRET when it is imported."""
    root = Path(__file__).parents[1]
    environment = {"TRITON_INTERPRET": "1", "PYTHONPATH": str(root), "PATH": ""}
    triton = os.environ.get("PYTHONPATH", "")
    environment["PYTHONPATH"] += f":{triton}" if triton else ""
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_interpreter_runs_asm_and_shows_shuffled_packs_and_poisoned_padding():
    """Unshuffled, neighbours are exchanged; shuffled, other elements, equal for equal seeds. A single element gets
    padding. Asm without exchanges gives the same with all of it."""
    program = (
        "import torch\nfrom tests import launch_kernels\n"
        "from ptxdiff.triton.interpreter import install\n"
        "x = torch.arange(64, dtype=torch.int16)\n"
        "def results(n=64, **settings):\n"
        "    install(**settings)\n"
        "    y = torch.zeros_like(x)\n"
        "    launch_kernels.swapped_in_asm[(1,)](x, y, n, B=n)\n"
        "    return y\n"
        "assert torch.equal(results(), x ^ 1)\n"
        "assert torch.equal(results(shuffle=1), results(shuffle=1))\n"
        "assert not torch.equal(results(shuffle=1), x ^ 1)\n"
        "assert not torch.equal(results(shuffle=1), results(shuffle=2))\n"
        "assert torch.equal(results(n=1, padding=1), results(n=1, padding=1))\n"
        "assert not torch.equal(results(n=1, padding=1), results(n=1, padding=2))\n"
        "install(shuffle=1, padding=2)\n"
        "x, y = torch.randn(50), torch.zeros(50)\n"
        "launch_kernels.doubled_in_asm[(1,)](x, y, 50, BLOCK=64)\n"
        "assert torch.equal(y, x * 2)\n"
    )
    interpreted("-c", program)


@pytest.mark.slow
def test_the_plugin_gives_the_interpreter_inline_asm(tmp_path):
    file = tmp_path / "test_kernel.py"
    file.write_text(
        "import torch\nfrom tests import launch_kernels\n"
        "def test_doubling():\n"
        "    x, y = torch.randn(50), torch.zeros(50)\n"
        "    launch_kernels.doubled_in_asm[(1,)](x, y, 50, BLOCK=64)\n"
        "    assert torch.equal(y, x * 2)\n"
    )
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(file)]
    assert "1 passed" in interpreted(*words, *plugin_words())


def test_approximate_instructions_of_a_kernel_are_hoppers_or_rounded():
    from tests.support.approximate_kernels import launch

    def through(**options):
        return launch("silu by tanh", lambda kernel, grid: emulated(kernel, target="sm_90a", **options)[grid])

    unit, nearest = through(), through(approximate="rounded")
    assert torch.equal(unit, through(approximate="hopper"))
    assert (unit != nearest).sum() > 100
    assert torch.allclose(unit, nearest, atol=1e-2, rtol=1e-2)
    with pytest.raises(LaunchError, match="approximate='exact' is none of 'hopper', 'rounded'"):
        through(approximate="exact")


def test_an_error_of_the_kernel_has_no_frames_of_the_emulator():
    """The traceback has only frames of the test and of the launcher, and the same message."""
    x = np.zeros(4, np.float32)
    with pytest.raises(MemoryFault) as caught:
        emulated(launch_kernels.scale)[(1,)](x, x, 1 << 20, 0.5, BLOCK=256)
    assert [entry.path.name for entry in caught.traceback] == ["test_launcher.py", "launcher.py"]


def test_an_atomic_on_bytes_never_stored_is_reported():
    x, y, old = (np.ones(64, np.int32) for _ in range(3))
    words = "undefined bits reach an atomic on y, where nothing was stored before, in thread 0 of block"
    with pytest.raises(UndefinedBits, match=words):
        emulated(small_kernels.atomic)[(1,)](x, y, old, 64, B=64, OP="add", PLACES=64, SEM="relaxed", unwritten=("y",))
