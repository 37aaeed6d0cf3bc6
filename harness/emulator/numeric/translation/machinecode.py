"""Machine code of LLVM modules, kept between runs.

The key of a kept file is everything that decides its code: the module's text before optimisation, the version of LLVM,
the processor and the options. So no stamp of source files is needed, and no edit can leave a file that is out of date.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np

from ptxdiff.diskcache import DiskCache

_kept = DiskCache("compiled")
_lock = threading.RLock()

SYMBOL = "SYMBOL"
"""Stands in a module's text for the name of its function."""
HEAD = object.__basicsize__
"""Bytes of a numpy array object before the address of its data (`PyArrayObject` in numpy's C interface).

Machine code reads that address itself: asking numpy for it takes a microsecond an array, longer than many calls.
"""

OPTIONS = {"opt": 3, "reloc": "static", "codemodel": "jitdefault", "jit": True}
TUNING = {"speed_level": 3, "loop_vectorization": True, "loop_unrolling": True, "slp_vectorization": False}


class _Processor:
    """This processor: its code generator, and the engine that holds loaded code as long as the process runs."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.triple = llvm.get_process_triple()
        self.cpu = llvm.get_host_cpu_name()
        self.features = llvm.get_host_cpu_features().flatten()
        options = dict(OPTIONS) if self.triple.startswith(("x86", "i")) else {**OPTIONS, "reloc": "default"}
        target = llvm.Target.from_triple(self.triple)
        self.machine = target.create_target_machine(cpu=self.cpu, features=self.features, **options)
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.machine)
        self.layout = str(self.engine.target_data)
        array = np.zeros(1)
        if ctypes.c_void_p.from_address(id(array) + HEAD).value != array.ctypes.data:
            raise RuntimeError("this build of Python or numpy keeps an array's address at another place than CPython's")

    def identity(self) -> tuple[str, ...]:
        """What decides the code of a module beside its text."""
        versions = repr((llvm.llvm_version_info, llvmlite.__version__))
        return versions, self.triple, self.cpu, self.features, repr((OPTIONS, TUNING))

    def compiled(self, text: str) -> bytes:
        """The object file of a module."""
        module = llvm.parse_assembly(text)
        module.triple, module.data_layout = self.triple, self.layout
        module.verify()
        tuning = llvm.create_pipeline_tuning_options()
        for name, value in TUNING.items():
            setattr(tuning, name, value)
        builder = llvm.create_pass_builder(self.machine, tuning)
        builder.getModulePassManager().run(module, builder)
        return bytes(self.machine.emit_object(module))

    def loaded(self, code: bytes, symbol: str) -> int:
        """The address of a function of an object file."""
        self.engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self.engine.finalize_object()
        return int(self.engine.get_function_address(symbol))


_processor = functools.cache(_Processor)


def identity() -> tuple[str, ...]:
    """What decides the machine code of a module beside its text: the processor, LLVM and its options."""
    return _processor().identity()


_loaded: dict[str, Any] = {}


def load(text: str) -> Any:
    """The function SYMBOL of a module, which takes the ids of arrays and a number of lanes, and returns nothing.

    It gets a name of its own, because the engine finds functions by name. It runs without the interpreter's lock.
    """
    symbol = f"loop_{hashlib.sha256(text.encode()).hexdigest()}"
    with _lock:
        if symbol not in _loaded:
            text = text.replace(f'@"{SYMBOL}"', f'@"{symbol}"')
            pointers = text.partition(f'@"{symbol}"(')[2].partition(")")[0].count("ptr")
            kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * pointers, ctypes.c_int64)
            _loaded[symbol] = kind(_processor().loaded(_code(text), symbol))
        return _loaded[symbol]


def _code(text: str) -> bytes:
    """The object file of a module, from the cache if it is there."""
    processor = _processor()
    parts = tuple(part.encode() for part in (*processor.identity(), text))
    code = _kept.get(*parts)
    if code is None:
        with _kept.making(*parts):  # other processes wait here, and then find it
            code = _kept.get(*parts)
            if code is None:
                code = processor.compiled(text)
                _kept.put(code, *parts)
    return code
