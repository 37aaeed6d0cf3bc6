"""Call a case's reference on codes and check its results. No reference can change another's inputs."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.model.arguments import Codes, format_of
from ptxdiff.model.case import Case
from ptxdiff.model.match import read_only
from ptxdiff.model.variants import Reference, alternatives
from ptxdiff.references.formats import Format
from ptxdiff.suggestions import explained


class ReferenceFault(RuntimeError):
    """A reference raised, or did not return codes; the message says what was expected."""


def in_words(reference: Reference) -> str:
    """The name of a reference in messages: `reference adds`, or `the reference` if the function is called
    `reference`."""
    name = getattr(reference, "__qualname__", repr(reference))
    return "the reference" if name == "reference" else f"reference {name}"


def _line_of(reference: Reference, error: Exception) -> str:
    """The line of a reference's file at which it raised, or at which it called the function that did."""
    code = getattr(inspect.unwrap(getattr(reference, "func", reference)), "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if code is not None and f.filename == code.co_filename]
    return f" [{own[-1].filename}:{own[-1].lineno}: {own[-1].line}]" if own else ""


def runs_on_host(reference: Reference) -> bool:
    """Whether a reference takes numpy arrays, and so cannot run on a device."""
    return any(getattr(r, "runs_on", "torch") != "torch" for r in alternatives(reference))


def flushes_itself(reference: Reference) -> bool:
    """Whether a reference decides which results `.ftz` flushes: it has a keyword-only parameter `ftz`."""
    try:
        parameter = inspect.signature(reference).parameters.get("ftz")
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    return parameter is not None and parameter.kind is parameter.KEYWORD_ONLY


def _how(values: NDArray[Any], fmt: Format) -> str:
    """How to make codes of the numbers that a reference returned; "" for formats that numpy has not."""
    if values.dtype.kind != "f" or fmt.name not in ("float32", "float16", "float64"):
        return ""
    return f", such as y.astype(np.{fmt.name}).view(np.uint{fmt.code_bits}).astype(np.int64)"


_SHAPES = re.compile(r"could not be broadcast together|must match the size of tensor")


def _advice(error: Exception) -> str:
    """The end of the message of a reference's error, where it misunderstands what it is given; else ""."""
    message = str(error)
    if "read-only" in message:
        return "; a numpy reference's inputs are read-only, so change a copy"
    if _SHAPES.search(message):
        return (
            "; inputs are int64 codes (bit patterns): numbers of float32 are codes.astype(np.uint32).view(np.float32) "
            "in numpy, and to_float64(F32, codes) of ptxdiff.references.formats in torch"
        )
    return ""


def apply_reference(
    case: Case, reference: Reference, codes: Mapping[str, Codes], flushing: bool = False
) -> dict[str, Codes]:
    """Evaluate a reference once: takes codes by input name and returns codes by output name.

    flushing: the reference flushes its results (`flushes_itself`).
    Torch tensors are copies, which the reference may change; numpy arrays are read-only. Its results are copied too, so
    it may return the same buffer every time. Raises ReferenceFault if it raises, or returns another number, shape or
    range of codes than the case declares.
    """
    name = in_words(reference)
    arguments: Sequence[Any]
    if runs_on_host(reference):
        arguments = [read_only(a) for a in codes.values()]
    else:
        import torch

        arguments = [torch.from_numpy(np.array(a, order="C")) for a in codes.values()]
    try:
        answer = reference(*arguments, **({"ftz": "results"} if flushing else {}))
    except Exception as e:
        raise ReferenceFault(f"{name} raised {explained(e)}{_advice(e)}{_line_of(reference, e)}") from e
    answers = answer if isinstance(answer, tuple | list) else (answer,)
    if len(answers) != len(case.outputs):
        raise ReferenceFault(
            f"{name} returned {len(answers)} results for {len(case.outputs)} outputs; "
            f"return one tensor of codes for each of {', '.join(case.outputs)}, in this order"
        )
    return {
        output: _checked(name, output, format_of(argument), result, codes)
        for (output, argument), result in zip(case.outputs.items(), answers, strict=True)
    }


def _first_outside(fmt: Format, array: Codes, codes: Mapping[str, Codes]) -> str:
    """The inputs of the first result that is no code, if each result has its own inputs; and what is likely missing."""
    outside = (array < 0) | (array > fmt.code_mask)
    given = ""
    if all(c.shape == array.shape for c in codes.values()):
        first = int(np.flatnonzero(outside)[0])
        shown = ", ".join(f"{n} = {int(c.reshape(-1)[first]):#x}" for n, c in codes.items())
        given = f"; the first that is none, {int(array.reshape(-1)[first]):#x}, is for {shown}"
    signed = array.min() >= -(1 << (fmt.code_bits - 1)) and array.max() <= fmt.code_mask
    return given + (f"; the bits of signed integers become codes by & {fmt.code_mask:#x}" if signed else "")


def _checked(reference: str, output: str, fmt: Format, result: Any, codes: Mapping[str, Codes]) -> Codes:
    """The result as an array of its own. codes: the inputs, to name the first that gives no code."""
    array = np.asarray(result).copy()
    if array.dtype != np.int64:
        what = type(result).__name__ if array.dtype == object else array.dtype
        raise ReferenceFault(
            f"{reference} returned {what} for {output}; "
            f"return codes ({fmt.name} bit patterns) as int64{_how(array, fmt)}"
        )
    if fmt.code_bits < 64 and array.size and not (array.min() >= 0 and array.max() <= fmt.code_mask):
        raise ReferenceFault(
            f"{reference} returned {int(array.min()):#x} to {int(array.max()):#x} for {output}; "
            f"codes of {fmt.name} are 0 to {fmt.code_mask:#x}{_first_outside(fmt, array, codes)}"
        )
    return array
