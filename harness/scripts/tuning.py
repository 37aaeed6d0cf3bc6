"""A stand-in for Triton's autotuner: it takes the first configuration that the GPU can run, as nothing is timed."""

from __future__ import annotations

from typing import Any

from ptxdiff.launcher import first_that_runs


class Choices:
    """The configurations chosen so far, by autotuner and by the key with which it distinguishes launches."""

    def __init__(self) -> None:
        self._chosen: dict[tuple[Any, ...], Any] = {}

    def run(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch with the configuration chosen before for this key, or else with the first one that runs
        (`first_that_runs`)."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        try:
            key = (tuner, *_key(tuner, kwargs))
            known = self._chosen.get(key)
            found, config = first_that_runs(tuner, kwargs, lambda more: tuner.fn.run(*args, **kwargs, **more), known)
            self._chosen[key] = tuner.best_config = config
            return found
        finally:
            tuner.nargs = None


def _key(tuner: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    given = {name: value for name, value in {**tuner.nargs, **kwargs}.items() if name in tuner.arg_names}
    types = [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
    return (*(repr(given[name]) for name in tuner.keys if name in given), *types)
