"""The exceptions of `ptxdiff.emulator`. Each message says what is wrong, where (line and column, from 1) and what to
do.

`PtxError` is the base class: catch it when you run untrusted PTX.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ptxdiff.extras import MissingPackage, advice, installed, missing_package
from ptxdiff.tracebacks import ShortTraceback

P = ParamSpec("P")
T = TypeVar("T")


class PtxError(ShortTraceback, Exception):
    """An error in PTX text, in its operands, or in its execution.

    `message`: the sentence without its place. `line` and `column`: the place in the user's text, from 1 (0: no place
    applies). `source`: that line of text. `str(error)` joins them.
    """

    def __init__(self, message: str, line: int = 0, column: int = 0, source: str = "") -> None:
        self.message = message
        self.line = line
        self.column = column
        self.source = source
        super().__init__(self._text())

    def _text(self) -> str:
        if not self.line:
            return self.message
        text = f"line {self.line}, column {self.column}: {self.message}"
        if self.source.strip():
            text += f"\n    {self.source.strip()}"
        return text

    def add(self, words: str) -> None:
        """Add words to the message."""
        self.message = f"{self.message} {words}"
        self.args = (self._text(),)

    def __reduce__(self) -> tuple[object, tuple[str, int, int, str]]:
        return type(self), (self.message, self.line, self.column, self.source)


class ParseError(PtxError):
    """The text is not PTX: ptxas would refuse it too."""


class BindingError(PtxError):
    """Constraints, arguments, pack and asm text do not fit together; Triton or LLVM would refuse them."""


class InputWritten(PtxError):
    """The block writes an operand that its constraints declare as an input; the compiler assumes that inputs keep their
    values."""


class DeclaredOutside(PtxError):
    """A block declares a name outside braces, so a second copy of the block declares the name again."""


class UnknownInstruction(PtxError):
    """No instruction, modifier or type has this name; the message lists similar names."""


class OperandError(PtxError):
    """An operand has the wrong count, kind, size or type for its instruction; ptxas would refuse it."""


class UnsupportedOnTarget(PtxError):
    """The instruction exists, but not on the target asked for."""


class NotElementwise(PtxError):
    """The instruction has no meaning for a single element: it uses memory, barriers, tensor cores or other threads."""


class TooLarge(PtxError):
    """The text, or what it asks for, exceeds a limit of the emulator (`ptxdiff.emulator.limits`) or of CUDA."""


class NotInstalled(PtxError):
    """Running it needs a package that is not installed. The message has the command that installs it."""


class InternalError(PtxError):
    """A fault of the emulator itself, not of the text: please report it. `__cause__` has the exception behind it."""


class ExecutionError(PtxError):
    """The program did something that a correct program never does, such as a deadlock."""


class TimeLimit(ExecutionError):
    """The program ran longer than the caller allows. It may end on a faster machine or with a longer limit."""


class UndefinedBits(ExecutionError):
    """Undefined bits reached an output element, an address or a branch.

    element, output, lane: in an asm block, the numbers of the first such element, of its result and of its invocation;
    else None. In a kernel, `lane` is the thread's number among those that ran together, and `reached` the message
    without place.
    """

    element: int | None = None
    output: int | None = None
    lane: int | None = None
    reached: str = ""


class UnknownSpecialRegister(UndefinedBits):
    """A result depends on a special register that has no value where the program runs."""


class MemoryFault(ExecutionError):
    """An access that lies outside every buffer, is misaligned, reads memory never written, or races with another
    thread."""


_COMPILERS = ("numba", "llvmlite")
"""What products of matrices need."""


def unexpected(error: Exception, doing: str) -> PtxError:
    """The PtxError that replaces an exception that no check of the emulator expected."""
    if isinstance(error, MemoryError):
        return TooLarge(f"this machine has too little memory for {doing}")
    if isinstance(error, MissingPackage):
        return NotInstalled(str(error))
    if missing_package(error) in _COMPILERS:
        return NotInstalled(advice([p for p in _COMPILERS if not installed(p)], "running matrix products"))
    message = f"{type(error).__name__}: {error}"
    return InternalError(f"the emulator has a fault in {doing} ({message[:500]}); please report it with this text")


def only_own(doing: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a public function of the emulator so that it raises PtxErrors only; its own faults become
    InternalErrors."""

    def around(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except PtxError:
                raise
            except Exception as error:
                raise unexpected(error, doing) from error

        return guarded

    return around
