"""Faults of a variant's asm that make it wrong on every backend. They are looked for before any backend runs it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from harness.jobs import Job
from harness.model.derive import AsmForm

_TRIED = 256  # packs of inputs with which asm that reads a special register is run


def fault_of(job: Job, form: AsmForm) -> str | None:
    """The fault of the asm, in one line; None if none is found.

    job: its inputs may have any number of units. They are used only for asm that reads a special register; without
    inputs only the text is checked.
    """
    from harness.ptx import repeated_name, written_input

    words = (
        written_input(form.text, form.constraints)
        or repeated_name(form.text, form.constraints)
        or _depends_on_the_machine(job, form)
    )
    return " ".join(words.split()) if words else None


def special_registers_in(form: AsmForm) -> list[str]:
    """The special registers that the text names, each once."""
    from harness.ptx.binding.special import SPECIAL_REGISTERS

    return [n for n in dict.fromkeys(re.findall(r"%[a-z_0-9]+", form.text)) if n in SPECIAL_REGISTERS]


def _depends_on_the_machine(job: Job, form: AsmForm) -> str | None:
    """Why a result depends on a special register, which has no value in asm alone, in the emulator's words.

    The emulator tracks undefined bits exactly: reading the register is no fault if no result depends on it. None if no
    result does, or if the emulator cannot run the asm.
    """
    from harness.backends.snippet import run_once
    from harness.ptx import PtxError
    from harness.ptx.errors import UndefinedBits

    names = special_registers_in(form)
    if not names or not job.inputs:
        return None
    chosen = np.arange(_TRIED * form.pack)
    few = {n: np.take(np.asarray(u).reshape(-1), chosen, mode="wrap") for n, u in job.inputs.items()}
    job = replace(job, setup=replace(job.setup, shape=chosen.shape, padding=None), inputs=few)
    try:
        run_once(job, form, few, {})
    except UndefinedBits as e:
        return f"a result depends on {' or '.join(names)}, which has no value in asm alone: {e}"
    except PtxError:
        return None
    return None
