"""The options with which Triton calls ptxas, taken from the call that Triton's own stage makes.

Triton's releases differ in them (3.9 passes `--regAllocOptLevel=2`), and they decide the machine code. The harness
passes the same options, so that it tests the code that runs.
"""

from __future__ import annotations

import importlib
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_STAGES = "triton.backends.nvidia.compiler"
_ALONE = ("-v", "--verbose", "-lineinfo", "--generate-line-info", "-g", "--device-debug")
_WITH_VALUE = ("-O", "--opt-level", "--gpu-name", "-arch", "--fmad", "-fmad")


def called_with(
    stage: Callable[[str, dict[str, Any]], Any] | None, ptx: str, metadata: Mapping[str, Any]
) -> tuple[str, ...]:
    """The options that Triton's stage "cubin" passes to ptxas for a kernel, without files. Nothing is assembled.

    Returns () with a warning if the stage does not make exactly one call through `subprocess`.
    """
    calls: list[list[str]] = []

    def run(command: Sequence[str], **_: Any) -> Any:
        calls.append([str(word) for word in command])
        if "-o" in calls[-1]:
            Path(calls[-1][calls[-1].index("-o") + 1]).touch()  # the stage reads this file, and removes it
        return subprocess.CompletedProcess(command, 0, "", "")

    module = importlib.import_module(_STAGES)
    own = vars(module).get("subprocess")
    if stage is not None and own is not None:
        module.subprocess = SimpleNamespace(**{**vars(own), "run": run})  # type: ignore[attr-defined]
        try:
            stage(ptx, dict(metadata))
        except Exception as error:
            warnings.warn(f"Triton's call of ptxas was not seen: {type(error).__name__}: {error}", stacklevel=2)
            return ()
        finally:
            module.subprocess = own  # type: ignore[attr-defined]
    if len(calls) != 1:
        warnings.warn(f"Triton's call of ptxas was not seen: its stage made {len(calls)} calls", stacklevel=2)
        return ()
    return tuple(_without_files(calls[0]))


def _without_files(command: Sequence[str]) -> Iterator[str]:
    words = iter(command[1:])
    for word in words:
        if word == "-o":
            next(words, None)
        elif not word.endswith(".ptx"):
            yield word


def beyond_every_call(called: Sequence[str]) -> tuple[str, ...]:
    """Those of Triton's options that the harness does not set itself (level, target, contraction, reports)."""
    found, words = [], iter(called)
    for word in words:
        if word in _ALONE or word.partition("=")[0] in _WITH_VALUE or word[:2] == "-O":
            if word in _WITH_VALUE:
                next(words, None)
            continue
        found.append(word)
    return tuple(found)
