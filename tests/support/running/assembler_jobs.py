"""Jobs for an assembler of any version and level."""

import importlib.util
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]


def cases():
    spec = importlib.util.spec_from_file_location("backend_cases", TESTS / "backends" / "backend_cases.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("backend_cases", module)
    spec.loader.exec_module(module)
    return module


def job(case, variant, inputs, **setup):
    from ptxdiff.backends.gpu import device_target
    from ptxdiff.jobs import Job, Setup

    module = cases()
    found, path = getattr(module, case), Path(module.__file__)
    return Job(found, case, path, variant, found.variants[variant], device_target(), Setup(**setup), inputs)
