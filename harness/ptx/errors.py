"""The exceptions of `harness.ptx`: every one says what, where (line and column, from 1) and what to do.

`PtxError` is the root; whoever runs untrusted PTX catches that one class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class PtxError(Exception):
    """Anything wrong with PTX text, its operands, or what happened when it ran.

    `message` is the sentence without its place; `line` and `column` count from 1 in the text that the user
    gave (0: no place applies); `source` is that line of text. `str(error)` joins them.
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

    def __reduce__(self) -> tuple[object, tuple[str, int, int, str]]:
        return type(self), (self.message, self.line, self.column, self.source)


class ParseError(PtxError):
    """The text is not PTX: ptxas would refuse it too."""


class BindingError(PtxError):
    """Constraints, arguments, pack and asm text do not fit together; Triton or LLVM would refuse them."""


class InputWritten(PtxError):
    """The block writes an operand that its constraints declare as an input; the compiler assumes that it does not."""


class DeclaredOutside(PtxError):
    """A block declares a name outside braces, so that a second copy of it declares the name again."""


class UnknownInstruction(PtxError):
    """No instruction, modifier or type of this name is known; the message lists what is near it."""


class OperandError(PtxError):
    """An operand has the wrong count, kind, size or type for its instruction; ptxas would refuse it."""


class UnsupportedOnTarget(PtxError):
    """The instruction exists, but not on the target asked for."""


class NotElementwise(PtxError):
    """The instruction has no meaning for one element alone: memory, barriers, tensor cores, other threads."""


class TooLarge(PtxError):
    """The text, or what it asks for, exceeds a limit of the emulator (`harness.ptx.limits`) or of CUDA."""


class InternalError(PtxError):
    """A fault of the emulator itself, not of the text: please report it. `__cause__` has the exception behind it."""


class ExecutionError(PtxError):
    """The program ran into something that a correct one never does, such as a deadlock."""


class TimeLimit(ExecutionError):
    """The program ran for longer than the caller allows; another machine, or a longer limit, may see it end."""


class UndefinedBits(ExecutionError):
    """Bits that nobody defined reached an output element, an address or a branch.

    element, output, lane: of an asm block, the numbers of the first such element, of its result and of its invocation;
    None elsewhere. In a kernel `lane` is the thread among those that ran together, and `reached` the message alone.
    """

    element: int | None = None
    output: int | None = None
    lane: int | None = None
    reached: str = ""


class UnknownSpecialRegister(UndefinedBits):
    """A result depends on a special register that has no value where the program runs."""


class MemoryFault(ExecutionError):
    """An access outside every buffer, misaligned, of memory never written, or racing with another thread."""


def unexpected(error: Exception, doing: str) -> PtxError:
    """What leaves the emulator in place of an exception that no check foresaw."""
    if isinstance(error, MemoryError):
        return TooLarge(f"this machine has too little memory for {doing}")
    found = f"{type(error).__name__}: {error}"
    return InternalError(f"the emulator itself fails in {doing} ({found[:500]}); please report it with this text")


def only_own(doing: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function of the emulator's surface, from which only PtxErrors come; a fault of its own is an InternalError."""

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
