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

from harness.triton.spec import KernelSpec, Place


@dataclass(frozen=True)
class Asked:
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


def asked_of(function: Any, launch: Callable[[], Any]) -> Asked | None:
    """What Triton would compile of a @triton.jit function at a launch; None if it has launched what it has in memory.

    launch: the launch by Triton. It compiles nothing, and so launches nothing, while this waits for its question.
    """
    asked: list[Asked] = []

    def note(_key: Any, signature: Any, _device: Any, constexprs: Any, options: Any, attrs: Any, _warmup: Any) -> None:
        known = {place for place, said in attrs.items() if ["tt.divisibility", 16] in said}
        other = [said for said in attrs.values() if said not in ([], [["tt.divisibility", 16]])]
        asked.append(
            Asked({} if other else signature, frozenset(constexprs), frozenset(known), options)
        )  # a property that no `KernelSpec` has meets none

    function._do_compile = note
    try:
        launch()
    finally:
        del function._do_compile
    return asked[0] if asked else None


def launcher(
    function: Any, by_triton: Callable[[], Any], ready: Callable[[], Any], spec: KernelSpec
) -> Callable[[], Any]:
    """A launch that runs `ready` where Triton asks for what `spec` says, and Triton's own otherwise."""

    def start() -> Any:
        try:
            asked = asked_of(function, by_triton)
        except TypeError:  # another version of Triton asks otherwise
            return by_triton()
        if asked is None:
            return None
        return ready() if asked.meets(spec) else by_triton()

    return start
