"""A kernel given as PTX from any compiler: nvcc, CuTe DSL, tilelang, numba-cuda, Inductor or Triton."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxdiff.model.variants import CaseError, LaunchedVariant
from ptxdiff.suggestions import known_keywords

WARP = 32


@dataclass(frozen=True, kw_only=True)
class PtxVariant(LaunchedVariant):
    """A kernel of a PTX module and its launch.

    text: the module. entry: the kernel's name; "" for the only one. block: threads along x, y and z. shared: bytes of
    dynamic shared memory. parameters: the argument for each parameter of the kernel, in order: the name of an input, an
    output, a size or a value of `meta`, or a number, or bytes for a structure.
    """

    text: str
    entry: str = ""
    block: tuple[int, int, int]
    shared: int = 0
    parameters: tuple[str | int | float | bytes, ...]


@dataclass(frozen=True, kw_only=True)
class ComparedPtx(PtxVariant):
    """One of several kernels that must run on the same inputs and sizes.

    numbers: those in the code of all of them. together: all of them, whose grids decide the largest size.
    """

    numbers: tuple[int | float, ...]
    together: tuple[PtxVariant, ...]


@known_keywords(PtxVariant)
def ptx(
    text_or_path: str | Path,
    *,
    grid: Callable[[Mapping[str, Any]], Any] | Sequence[int | str] | int | str,
    block: Sequence[int] | int,
    parameters: Sequence[str | int | float | bytes],
    entry: str = "",
    shared: int = 0,
    meta: Mapping[str, Any] | None = None,
    **policies: Any,
) -> PtxVariant:
    """A variant that is a kernel in PTX.

    text_or_path: the text of a module, or the path of a file that holds it; a relative path is relative to the file
    that calls this. entry: the kernel's name, if the module has several. grid: blocks along x, y and z, integers or
    expressions such as "ceil(n/256)", or a function of all sizes and values of `meta` to these (elementwise cases have
    the size n).
    block: threads along x, y and z. shared: bytes of dynamic shared memory.
    parameters: for each parameter of the kernel, in order: the name of an input or output (its address; the value of a
    scalar), of a size or of a value in `meta`, or a number, or bytes for a structure.
    Further keywords are the fields of `Variant`. Raises CaseError for a file that cannot be read, and for invalid
    sizes.
    """
    threads = _sizes("block", block)
    if math.prod(threads) % WARP:
        raise CaseError(f"block={block!r} has {math.prod(threads)} threads; only whole warps of {WARP} can be run")
    if isinstance(parameters, str):
        raise CaseError(f"parameters={parameters!r}: write a list, parameters=[{parameters!r}]")
    return PtxVariant(
        text=_text(text_or_path, _caller()),
        entry=entry,
        grid=grid if isinstance(grid, str | int) or callable(grid) else tuple(grid),
        block=threads,
        shared=shared,
        parameters=tuple(parameters),
        meta=dict(meta or {}),
        num_warps=math.prod(threads) // WARP,
        **policies,
    )


_HARNESS = Path(__file__).resolve().parents[1]


def _caller() -> Path:
    """The folder of the calling file: that of the first frame outside the harness."""
    frame = sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).resolve().is_relative_to(_HARNESS):
        frame = frame.f_back
    return Path(frame.f_code.co_filename).resolve().parent


def _sizes(word: str, given: Any) -> tuple[int, int, int]:
    """One to three sizes, extended with ones to three."""
    sizes = tuple(given) if isinstance(given, Sequence) else (given,)
    if not 1 <= len(sizes) <= 3 or any(isinstance(s, bool) or not isinstance(s, int) or s < 0 for s in sizes):
        raise CaseError(f"{word}={given!r}: give one to three whole numbers")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _text(given: str | Path, folder: Path) -> str:
    if isinstance(given, str) and (".version" in given or "\n" in given):
        return given
    path = folder / given
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(f"ptx({str(given)!r}): {path} cannot be read: {error}") from None
