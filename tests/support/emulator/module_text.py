"""A PTX module around the body of a kernel, and its launch."""

from __future__ import annotations

from typing import Any

from ptxdiff.emulator.kernel.run import run_kernel


def module(body: str, *, before: str = "", parameters: str = ".param .u64 p", heads: str = "") -> str:
    return (
        f".version 8.7\n.target sm_90a\n.address_size 64\n{before}\n.visible .entry k({parameters}) {heads}\n"
        "{ .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>; .reg .b16 %h<9>;\n" + body + "\nret; }"
    )


def launch(text: str, *arguments: Any, threads: int = 32, grid: Any = (1,), **more: Any) -> Any:
    return run_kernel(text, arguments, grid, num_threads=threads, **more)
