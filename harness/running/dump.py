"""The arrays of a failure in a file for numpy: inputs, outputs, expected outputs, and masks of the wrong ones."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.judging.judge import Judgement
from ptxdiff.records import Key
from ptxdiff.references.formats import pack

LONGEST_NAME = 200
"""Characters of a file's name. File systems allow 255 bytes."""


def file_name(key: Key) -> str:
    """The name of a result's file: the words of its key, and a digest, because some characters are replaced."""
    key_parts = (
        key.case, key.variant, key.target, key.backend, f"pack{key.pack}", key.shape, f"align{key.alignment}",
        f"warps{key.num_warps}", key.context, "fusion" * key.fusion, key.input_set,
    )  # fmt: skip
    text = "-".join(re.sub(r"[^\w.+=,]+", "_", w, flags=re.ASCII) for w in key_parts if w).lstrip(".")
    return f"{text[:LONGEST_NAME]}-{hashlib.sha256(str(key).encode()).hexdigest()[:8]}.npz"


def write_dump(
    folder: Path, key: Key, inputs: Mapping[str, Any], outputs: Mapping[str, Any], judgement: Judgement
) -> list[str]:
    """Write a failure's arrays, as storage units. Returns lines of Python that load them, or why they were not written.

    The arrays are `inputs/x`, `outputs/y`, `expected/y`, and `mask/y`, which is true where a unit of y has a wrong
    code. A format that numpy lacks is written as unsigned integers.
    """
    arrays = {f"inputs/{n}": _native(u) for n, u in inputs.items()}
    arrays |= {f"outputs/{n}": _native(u) for n, u in outputs.items()}
    for name, compared in judgement.compared.items():
        expected = pack(compared.fmt, compared.expected.reshape(compared.shape))
        wrong = compared.failing.reshape(*compared.units, compared.fmt.codes_per_unit)
        arrays[f"expected/{name}"] = _native(expected.view(compared.fmt.numpy_dtype()))
        arrays[f"mask/{name}"] = np.asarray(wrong.any(-1))
        arrays.setdefault(f"outputs/{name}", _native(pack(compared.fmt, compared.got.reshape(compared.shape))))
    path = folder / file_name(key)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        part.replace(path)
    except OSError as e:
        part.unlink(missing_ok=True)
        return [f"# --ptx-dump could not write {path}: {e.strerror}"]
    wrong_output = next((n for n, c in judgement.compared.items() if c.failing.any()), None)
    if wrong_output is None:
        shown = "{name: d[name].shape for name in d}"
    else:
        shown = ", ".join(f'd["{part}/{wrong_output}"][d["mask/{wrong_output}"]]' for part in ("outputs", "expected"))
    return ["import numpy as np", f"d = np.load({str(path)!r})", shown]


def _native(units: Any) -> NDArray[Any]:
    """The array in a dtype of numpy itself: one of any other package would load as raw bytes."""
    array = np.ascontiguousarray(units).reshape(np.shape(units))
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
