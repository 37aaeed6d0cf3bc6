"""Translate a graph of torch operations to the text of a Triton kernel's body, with 32-bit integers where they suffice.

`make_fx` records the graph of an oracle. `torch.compile` could also make a kernel of it, but it keeps all integers at
the references' 64 bits, and takes seconds for each kernel; this module takes milliseconds before Triton compiles.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness.sweep.fused.narrow import Value
from harness.sweep.fused.operations import OPERATIONS, SLOTS
from harness.sweep.fused.writer import KernelText, NotFused, Slots

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
        else:
            options = {k: v for k, v in node.kwargs.items() if k not in _OF_TENSORS}
            name, made = node.target.overloadpacket.__name__, node.meta["val"]
            arguments = [self._value(a) for a in node.args]
            if name == "view" and isinstance(arguments[1], list):
                name = "reshape"
            emit = SLOTS.get(name) or OPERATIONS.get(name)
            if emit is None or not _takes(emit, arguments, options):
                raise NotFused(f"no kernel text for {node.target}" + "".join(f", {name}=" for name in options))
            if name in SLOTS:
                self._values[node] = SLOTS[name](self, made.shape, *arguments, **options)
            else:
                self._values[node] = self._elementwise(OPERATIONS[name], str(made.dtype), arguments, options)

    def _elementwise(self, emit: Callable[..., Any], dtype: str, arguments: Sequence[Any], options: Any) -> Any:
        """An operation, or one for each slot of a storage unit."""
        dtype = dtype.removeprefix("torch.")
        slots = {len(s) for a in arguments for s in (a, *(a if isinstance(a, list) else ())) if isinstance(s, Slots)}
        if not slots:
            return emit(self, dtype, *arguments, **options)
        (count,) = slots

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


def _takes(emit: Callable[..., Any], arguments: Sequence[Any], options: dict[str, Any]) -> bool:
    """Whether a function of `SLOTS` or `OPERATIONS` takes what an operation was called with."""
    try:
        inspect.signature(emit).bind(None, None, *arguments, **options)
    except TypeError:
        return False
    return True
