"""Launch machine code that has been made of a kernel already, where Triton would compile that kernel now.

Triton's launcher compiles what it launches, in the process that owns the GPU, although a worker has compiled and
assembled the same before. So Triton is asked what it would compile, without compiling: the types of the arguments,
which of them became constants, what is known of them, and the options. If a worker was told to compile just that, the
driver API launches the worker's machine code; otherwise Triton compiles and launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ptxdiff.triton.spec import KernelSpec, Place


@dataclass(frozen=True)
class TritonRequest:
    """What Triton would compile. types: by parameter. constants, divisible: their places."""

    types: Mapping[str, Any]
    constants: frozenset[Place]
    divisible: frozenset[Place]
    options: Any

    def meets(self, spec: KernelSpec) -> bool:
        """Whether that is what `spec` says."""
        options = {"num_warps": spec.num_warps, "enable_fp_fusion": spec.enable_fp_fusion, **dict(spec.options)}
        return (
            dict(self.types) == dict(spec.signature)
            and self.constants == {place for place, _ in spec.constants}
            and self.divisible == set(spec.divisible)
            and all(getattr(self.options, name, None) == value for name, value in options.items())
        )


def request_of(function: Any, launch: Callable[[], Any]) -> TritonRequest | None:
    """What Triton would compile of a @triton.jit function at a launch; None if it has launched what it has in memory.

    launch: the launch by Triton. During the call Triton compiles and launches nothing: its request is recorded.
    """
    request: list[TritonRequest] = []

    def note(_key: Any, signature: Any, _device: Any, constexprs: Any, options: Any, attrs: Any, _warmup: Any) -> None:
        known = {place for place, value in attrs.items() if ["tt.divisibility", 16] in value}
        other = [value for value in attrs.values() if value not in ([], [["tt.divisibility", 16]])]
        request.append(
            TritonRequest({} if other else signature, frozenset(constexprs), frozenset(known), options)
        )  # a property that no `KernelSpec` has meets none

    function._do_compile = note
    try:
        launch()
    finally:
        del function._do_compile
    return request[0] if request else None


def launcher(
    function: Any, by_triton: Callable[[], Any], ready: Callable[[], Any], spec: KernelSpec
) -> Callable[[], Any]:
    """A launch that runs `ready` where Triton asks for what `spec` says, and Triton's own otherwise."""

    def start() -> Any:
        try:
            request = request_of(function, by_triton)
        except TypeError:  # another version of Triton asks otherwise
            return by_triton()
        if request is None:
            return None
        return ready() if request.meets(spec) else by_triton()

    return start
