"""Translate a graph of torch operations to the text of a Triton kernel's body, with 32-bit integers where they suffice.

`make_fx` records the graph of an oracle. `torch.compile` could also make a kernel of it, but it keeps all integers at
the references' 64 bits, and takes seconds for each kernel; this module takes milliseconds before Triton compiles.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ptxdiff.sweep.fused.narrow import Value
from ptxdiff.sweep.fused.operations import OPERATIONS, SLOTS
from ptxdiff.sweep.fused.writer import TRACED, KernelText, NotFused, Slots

_OF_TENSORS = ("dtype", "layout", "device", "pin_memory", "memory_format")


class Body(KernelText):
    """The lines that compute a graph's results from its arguments; None stands for the inputs' numbers.

    results: the texts of the values that the graph returns.
    """

    def __init__(self, graph: Any, arguments: Sequence[Value | None], number_bits: int, *, base: str = "base") -> None:
        super().__init__(number_bits, base)
        self._values: dict[Any, Any] = {}
        self._arguments = iter(arguments)
        self._module = graph
        self.results: list[Any] = []
        for node in graph.graph.nodes:
            if getattr(getattr(node.target, "_schema", None), "is_mutable", False):
                raise NotFused(f"no kernel text for {node.target}, which writes to a tensor")
        graph.graph.eliminate_dead_code()
        for node in graph.graph.nodes:
            self._take(node)

    def _take(self, node: Any) -> None:
        if node.op == "placeholder":
            given = next(self._arguments)
            self._values[node] = given if given is not None else Value("", "int", self.number_bounds(0), shift=0)
        elif node.op == "get_attr":
            self._values[node] = getattr(self._module, node.target)
        elif node.op == "output":
            self.results = [self._result(self._values[n]) for n in node.args[0]]
        elif node.target is operator.getitem:
            self._values[node] = self._values[node.args[0]][node.args[1]]
        else:
            self._values[node] = self._called(node)

    def _called(self, node: Any) -> Any:
        """The value of an operation."""
        options = {k: v for k, v in node.kwargs.items() if k not in _OF_TENSORS}
        name, made = node.target.overloadpacket.__name__, node.meta["val"]
        arguments = [self._value(a) for a in node.args]
        if name in ("arange", "scalar_tensor") or _of_constants(arguments):
            return self._folded(node, arguments)
        if name == "view" and isinstance(arguments[1], list):
            name = "reshape"
        emit = SLOTS.get(name) or OPERATIONS.get(name)
        if emit is None or not _takes(emit, arguments, options):
            raise NotFused(f"no kernel text for {node.target}" + "".join(f", {name}=" for name in options))
        if name in SLOTS:
            return SLOTS[name](self, made.shape if isinstance(made, torch.Tensor) else (), *arguments, **options)
        return self._elementwise(OPERATIONS[name], made, arguments, options)

    def _folded(self, node: Any, arguments: Sequence[Any]) -> torch.Tensor:
        """An operation on constant tensors alone, computed by torch on the CPU."""
        from torch.utils._python_dispatch import _disable_current_modes

        options = {k: v for k, v in node.kwargs.items() if k != "device"}
        with _disable_current_modes():
            found = node.target(*arguments, **options)
        if not isinstance(found, torch.Tensor):
            raise NotFused(f"no kernel text for {node.target} of constants")
        return found

    def _elementwise(self, emit: Callable[..., Any], made: Any, arguments: Sequence[Any], options: Any) -> Any:
        """An operation, or one for each slot of a storage unit."""
        dtype = str(made.dtype).removeprefix("torch.")
        if emit is not OPERATIONS["index"]:
            arguments = [_constants(a) for a in arguments]
        slots = {len(s) for a in arguments for s in (a, *(a if isinstance(a, list) else ())) if isinstance(s, Slots)}
        if not slots:
            if list(made.shape) not in ([TRACED], [TRACED, 1], [1], []):
                raise NotFused(f"a shape of {list(made.shape)}")
            return emit(self, dtype, *arguments, **options)
        if len(slots) > 1:
            raise NotFused("tensors of several numbers of codes for each input")
        (count,) = slots
        if list(made.shape) not in ([TRACED, count], [TRACED * count]):
            raise NotFused(f"a shape of {list(made.shape)} where there are {count} codes for each input")

        def of(argument: Any, k: int) -> Any:
            if isinstance(argument, Slots):
                return argument[k]
            return [of(a, k) for a in argument] if isinstance(argument, list) else argument

        return Slots(emit(self, dtype, *(of(a, k) for a in arguments), **options) for k in range(count))

    def _result(self, value: Any) -> Any:
        return Slots(map(self.spelt, value)) if isinstance(value, Slots) else self.spelt(value)

    def _value(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self._values[argument]
        if isinstance(argument, (list, tuple)):
            return [self._value(a) for a in argument]
        return argument


def _of_constants(arguments: Sequence[Any]) -> bool:
    """Whether there are tensors among the arguments and all of them are constant."""
    flat = [x for a in arguments for x in (a if isinstance(a, list) else [a])]
    if any(isinstance(x, (Value, tuple)) for x in flat):
        return False
    return any(isinstance(x, torch.Tensor) for x in flat)


def _constants(argument: Any) -> Any:
    """A constant tensor as a number, or as one for each code of a storage unit."""
    if not isinstance(argument, torch.Tensor):
        return argument
    if argument.dim() > 1:
        raise NotFused("a constant table that is not looked up")
    return argument.item() if argument.numel() == 1 else Slots(argument.tolist())


def _takes(emit: Callable[..., Any], arguments: Sequence[Any], options: dict[str, Any]) -> bool:
    """Whether a function of `SLOTS` or `OPERATIONS` takes what an operation was called with."""
    try:
        inspect.signature(emit).bind(None, None, *arguments, **options)
    except TypeError:
        return False
    return True
