"""The variants of a case (inline PTX, plain Triton, whole kernels), and the fields that each may state.

References get torch tensors, or numpy arrays if marked with `numpy_reference`.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from ptxdiff.model.match import Domain, FtzPolicy, Match, NanPolicy
from ptxdiff.model.targets import TargetSet
from ptxdiff.records import PTXAS, names_assembler
from ptxdiff.suggestions import known_keywords
from ptxdiff.tracebacks import ShortTraceback

Reference = Callable[..., Any]
Context = Literal["straight", "loop", "shared"]
CONTEXTS: tuple[Context, ...] = get_args(Context)
Targets = TargetSet | str | Sequence[str]
MatchPolicy = Match | Mapping[str, Match]
FtzPolicies = FtzPolicy | Mapping[str, FtzPolicy]
F = TypeVar("F", bound=Callable[..., Any])

# Diagnoses of failures, besides the class of difference. `ptxdiff.running.judgements` tests each by reproducing the
# wrong bits.
CLOBBER = "missing early clobber"
REVERSED = "results reversed within registers"
UNDEFINED = "undefined bits stored"
DIAGNOSES = (CLOBBER, REVERSED, UNDEFINED, PTXAS)


COMPILER_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
"""Valid names of a Triton build."""


class CaseError(ShortTraceback, ValueError):
    """A case contradicts itself; the message names the part of the case and what to write instead."""


def numpy_reference(function: F) -> F:
    """Mark a reference that takes and returns numpy int64 arrays; it runs on the host."""
    function.runs_on = "numpy"  # type: ignore[attr-defined]
    return function


def either(*references: Reference) -> Reference:
    """Several specifications; each element must meet one of them.

    Use it for results that the specification does not define, such as whether a multiplication and an addition are
    contracted. Messages show the first one's answer.
    """

    def first(*codes: Any) -> Any:
        return references[0](*codes)

    first.alternatives = references  # type: ignore[attr-defined]
    first.runs_on = getattr(references[0], "runs_on", "torch")  # type: ignore[attr-defined]
    return first


def alternatives(reference: Reference) -> tuple[Reference, ...]:
    """The specifications of a reference: one, or those given to `either`."""
    references: tuple[Reference, ...] = getattr(reference, "alternatives", (reference,))
    return references


@dataclass(frozen=True)
class Meets:
    """For a variant with its own reference: it also meets the case's reference, within `match` on the domain `on`."""

    on: Domain
    match: Match


@dataclass(frozen=True)
class Differs:
    """Declares other bits on a target: the reason, and the reference by which results on that target are judged."""

    why: str
    reference: Reference


@dataclass(frozen=True)
class ExpectedFailure:
    """A known and explained failure that the report should show: the variant must fail, and for the stated reason.

    diagnosis: one of `DIAGNOSES`; the failure counts as expected only when the diagnosis reproduces the wrong bits.
    context: the context or contexts in which it is expected; it must fail in each of them that runs, and pass in all
    others. reason: an explanation for readers of the report.
    """

    diagnosis: str
    context: Context | Sequence[Context] = "straight"
    reason: str = ""

    @property
    def contexts(self) -> tuple[Context, ...]:
        """The contexts in which it is expected."""
        return (self.context,) if isinstance(self.context, str) else tuple(self.context)

    def __post_init__(self) -> None:
        if self.diagnosis not in DIAGNOSES:
            raise CaseError(f"no diagnosis is called {self.diagnosis!r}; known: {', '.join(DIAGNOSES)}")
        for context in self.contexts:
            if context not in CONTEXTS:
                raise CaseError(f"no context is called {context!r}; known: {', '.join(CONTEXTS)}")


Ends = Literal["wrong", "crashed", "hung"]


@dataclass(frozen=True, kw_only=True)
class PtxasFailure(ExpectedFailure):
    """A known fault of ptxas: machine code of the named assemblers fails as stated, and that of all others is right.

    assemblers: a mapping from a name such as "ptxas 12.9 -O3" (that level of every 12.9) to what happens: "wrong"
    (their machine code gives other bits on a GPU), "crashed" or "hung". A run with one of them without this failure is
    itself a failure, because the fault is gone.
    """

    assemblers: Mapping[str, Ends]
    diagnosis: str = PTXAS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.diagnosis != PTXAS or not self.assemblers:
            raise CaseError('PtxasFailure(assemblers={"ptxas 12.9 -O3": "wrong"}): name assemblers, and no diagnosis')
        for name, ends in self.assemblers.items():
            try:
                names_assembler(name, "")
            except ValueError as error:
                raise CaseError(f"PtxasFailure: {error}") from None
            if ends not in get_args(Ends):
                raise CaseError(f"PtxasFailure: {name!r}: {ends!r} is none of {', '.join(get_args(Ends))}")


@dataclass(frozen=True)
class AsmText:
    """The asm of one pack factor as its author wrote it; if `constraints` is None they are derived."""

    text: str
    constraints: str | None = None


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The fields that all variants have; None means the case's value.

    reference: this variant's own specification, if the case's does not describe it; `meets` then states the domain on
    which it must also meet the case's. targets: the targets on which it must work. refused: those on which it must not
    assemble. differs: targets on which it is known to give wrong bits, each with the reason. It still runs there and
    must differ; the result is an expected failure, and a gate refuses bits that no baseline has accepted. With a
    `Differs` instead of the plain reason, the result is judged by the reference in it, and passes or fails. carry: a
    mapping from output to input, for the loop context. fusion: run only with, or only without, Triton's fusion of
    multiplications and additions; None runs both. compiler: the name of the Triton build that compiles it
    (`--ptx-compiler NAME=PATH`); "" means the case's.
    """

    match: MatchPolicy | None = None
    ftz: FtzPolicies | None = None
    nan: NanPolicy | None = None
    reference: Reference | None = None
    meets: Meets | None = None
    targets: Targets | None = None
    refused: Targets | None = None
    differs: Mapping[str, str | Differs] | None = None
    carry: Mapping[str, str] | None = None
    fusion: bool | None = None
    expected_failure: ExpectedFailure | None = None
    note: str = ""
    compiler: str = ""

    @property
    def fusions(self) -> tuple[bool, ...]:
        """The settings of fusion that it runs with."""
        return (False, True) if self.fusion is None else (self.fusion,)

    @property
    def kind(self) -> str:
        """The kind in reports: asm, plain, kernel or ptx."""
        return type(self).__name__.removesuffix("Variant").lower()


@dataclass(frozen=True, kw_only=True)
class AsmVariant(Variant):
    """Inline PTX: one text for each pack factor, or a single instruction from which they are derived.

    convention: how texts and constraints are written: "triton", "llvm" or "cuda", as `ptxdiff.emulate` takes them.
    reads_padding: whether the result of an element may be computed by way of the others in its pack, as where a word of
    zeros takes a shorter way. The last pack may be partial, and the bits that fill it are undefined. So the asm must
    give the same results whatever they are: the emulator then fills them at random instead of refusing such results.
    """

    texts: Mapping[int, AsmText]
    derived_packs: tuple[int, ...] = ()
    convention: str = "triton"
    reads_padding: bool = False


@dataclass(frozen=True, kw_only=True)
class PlainVariant(Variant):
    """A @triton.jit function from element tensors to one tensor or a tuple; it may contain inline asm itself."""

    function: Any
    constants: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LaunchedVariant(Variant):
    """A whole kernel and its launch.

    Its parameters are filled by name: inputs and outputs with pointers (scalars with values), sizes with integers, the
    others from `meta`. `grid` has one to three sizes, each an integer or an expression in names of sizes and meta
    values, such as "ceil(N/BLOCK)"; or it is a function of the mapping of all these that returns such sizes.
    """

    grid: Callable[[Mapping[str, Any]], Any] | tuple[int | str, ...] | int | str
    meta: Mapping[str, Any] = field(default_factory=dict)
    num_warps: int = 4


@dataclass(frozen=True, kw_only=True)
class KernelVariant(LaunchedVariant):
    """A whole @triton.jit kernel.

    A case replaces a kernel under @triton.autotune or @triton.heuristics by the function below them, a variant for each
    configuration (`ptxdiff.model.tuning`). rules: the functions of @triton.heuristics by parameter. options: of the
    compiler, from the configuration. tuned: whether it has a configuration. configuration: its words in the variant's
    name, if there are several. prunes: whether a function of the kernel's removes configurations by a launch's
    arguments; it is not called.
    """

    function: Any
    rules: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    tuned: bool = False
    configuration: str = ""
    prunes: bool = False


DERIVED_PACKS = (1, 2, 4)
CONVENTIONS = ("triton", "llvm", "cuda")


@known_keywords(AsmVariant)
def asm(
    text: str | Mapping[int, str | tuple[str, str]],
    constraints: str | None = None,
    *,
    pack: int | None = None,
    packs: Sequence[int] | None = None,
    convention: str = "triton",
    **policies: Any,
) -> AsmVariant:
    """A variant in inline PTX, as `tl.inline_asm_elementwise` takes it, or in another `convention`.

    "triton": `$0`, and a register holds several elements of less than 32 bits. "llvm", that of `llvm.inline_asm` in
    MLIR: `$0`, and an operand holds one element, or as many as fill its register, as the number of operands implies.
    "cuda", an asm statement of CUDA C++: `%0`, `%%`, constraints such as `'"=r"(y) : "r"(x)'`, operands as in "llvm".
    Such a variant runs on every backend; for Triton, moves are added if its operands have another layout.

    From one instruction without constraints or pack, forms for several pack factors are derived (`packs`, by default 1,
    2 and 4). Longer asm belongs to one `pack` (1 if not given); a mapping gives a text, or a text with constraints, for
    each. Missing constraints are derived from the formats, with outputs as early clobbers. Further keywords are the
    fields of `Variant`, and `reads_padding` of `AsmVariant`.
    """
    if convention not in CONVENTIONS:
        raise CaseError(f"convention={convention!r} is none of {', '.join(CONVENTIONS)}")
    policies["convention"] = convention
    if isinstance(text, Mapping):
        if constraints is not None or pack is not None or packs is not None:
            raise CaseError("a mapping of pack to asm carries the packs itself; give (text, constraints) as its values")
        texts = {p: AsmText(*((t,) if isinstance(t, str) else t)) for p, t in text.items()}
        return AsmVariant(texts=texts, **policies)
    if pack is None and constraints is None and packs is None and _is_one_instruction(text):
        packs = DERIVED_PACKS
    if packs is not None:
        if constraints is not None or pack is not None:
            raise CaseError("packs= asks for derived forms; it excludes constraints= and pack=")
        return AsmVariant(texts={1: AsmText(text)}, derived_packs=tuple(packs), **policies)
    return AsmVariant(texts={pack or 1: AsmText(text, constraints)}, **policies)


def _is_one_instruction(text: str) -> bool:
    return single_instruction(text) is not None


@known_keywords(PlainVariant)
def plain(function: Any, *, constants: Mapping[str, Any] | None = None, **policies: Any) -> PlainVariant:
    """A variant in ordinary Triton: a @triton.jit function of the inputs' element tensors."""
    return PlainVariant(function=function, constants=dict(constants or {}), **policies)


@known_keywords(KernelVariant)
def kernel(
    function: Any,
    *,
    grid: Any,
    meta: Mapping[str, Any] | None = None,
    num_warps: int = 4,
    **policies: Any,
) -> KernelVariant:
    """A variant that is a whole Triton kernel; see `LaunchedVariant` for how its parameters are filled.

    Of an autotuned kernel each configuration becomes a variant; a value in `meta` chooses those that have it.
    """
    return KernelVariant(function=function, grid=grid, meta=dict(meta or {}), num_warps=num_warps, **policies)


# ---- A kernel given as PTX from any compiler: nvcc, CuTe DSL, tilelang, numba-cuda, Inductor or Triton ---------------

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


# ---- One PTX instruction as text -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InstructionText:
    """One PTX instruction as text: its opcode with all modifiers, and its operands."""

    opcode: str
    operands: tuple[str, ...]


def single_instruction(text: str) -> InstructionText | None:
    """The instruction, if `text` holds exactly one and no block, label, declaration or predicate; else None."""
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S).strip().removesuffix(";").strip()
    match = re.fullmatch(r"([a-z][\w.:]*)\s+([^;]*)", bare, flags=re.S)
    if not match or "{" in match[1] or ";" in bare or "@" in bare:
        return None
    return InstructionText(match[1], tuple(split_operands(match[2])))


def split_operands(operands: str) -> list[str]:
    """Operands separated by commas outside braces and brackets."""
    parts, depth = [""], 0
    for character in operands:
        depth += (character in "{[") - (character in "}]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [p.strip() for p in parts]
