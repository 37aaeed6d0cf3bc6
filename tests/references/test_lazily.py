"""torch is imported when a reference computes; otherwise `ptxdiff.references.lazily` behaves like torch."""

import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from ptxdiff import references
from ptxdiff.model.identity import digest_with_code
from ptxdiff.references import lazily, rounding

MODULES = sorted(p.stem for p in Path(references.__path__[0]).glob("*.py") if p.stem != "__init__")


@pytest.mark.slow
def test_importing_all_references_imports_no_torch():
    text = "".join(f"import references.{name}\n" for name in MODULES)
    text += "import sys\nassert 'torch' not in sys.modules\n"
    text += "from ptxdiff.references import lazily\nassert lazily.torch.tensor(3).item() == 3\n"
    text += "assert 'torch' in sys.modules\n"
    subprocess.run([sys.executable, "-c", text], check=True, cwd=Path(references.__path__[0]).parent, timeout=120)


def test_its_names_are_torchs():
    assert lazily.torch.where is torch.where
    assert lazily.torch.float32 is torch.float32
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = lazily.torch.no_such_name


@pytest.mark.parametrize("exact", [False, True])
def test_a_digest_of_code_holds_torch_and_its_version(exact, monkeypatch):
    """A function that uses torch through `lazily` has the same digest as with torch itself, also for another
    version."""
    function = rounding.bit_length
    stood = digest_with_code(function, exact=exact)
    real = types.FunctionType(function.__code__, {**function.__globals__, "torch": torch}, function.__name__)
    real.__kwdefaults__, real.__module__, real.__qualname__ = (
        function.__kwdefaults__,
        function.__module__,
        function.__qualname__,
    )
    real.__annotations__ = function.__annotations__
    assert digest_with_code(real, exact=exact) == stood
    assert digest_with_code(lazily.torch, exact=exact) == digest_with_code(torch, exact=exact)
