"""Faults of a variant's asm that make it wrong on every backend, found before one runs it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from harness.jobs import Job
from harness.model.derive import AsmForm

_TRIED = 256  # packs of inputs on which asm that reads a special register is run


def fault_of(job: Job, form: AsmForm) -> str | None:
    """What is wrong with the asm, in one line; None where nothing is found.

    job: with inputs of any number, for asm that reads a special register; without inputs only the text is looked at.
    """
    from harness.ptx import repeated_name, written_input

    words = (
        written_input(form.text, form.constraints)
        or repeated_name(form.text, form.constraints)
        or _depends_on_the_machine(job, form)
    )
    return " ".join(words.split()) if words else None


def special_registers_in(form: AsmForm) -> list[str]:
    """The special registers that the text names."""
    from harness.ptx.binding.special import SPECIAL_REGISTERS

    return [n for n in dict.fromkeys(re.findall(r"%[a-z_0-9]+", form.text)) if n in SPECIAL_REGISTERS]


def _depends_on_the_machine(job: Job, form: AsmForm) -> str | None:
    """How a result depends on a special register, which has no value in asm alone, in the emulator's words.

    The emulator follows undefined bits exactly, so that a register which is read and has no effect is none. None where
    it cannot run the asm.
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
