"""A stand-in for Triton's autotuner: it takes the first configuration that the GPU can run, as nothing is timed."""

from __future__ import annotations

from typing import Any

from harness.arguments import LaunchError
from harness.ptx.errors import TooLarge


class Choices:
    """The configurations chosen so far, by autotuner and by the key with which it distinguishes launches."""

    def __init__(self) -> None:
        self._chosen: dict[tuple[Any, ...], Any] = {}

    def run(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch with the configuration chosen before for this key, or else with the first one that runs, in the
        tuner's order.

        A configuration is skipped if Triton's own autotuner would give it an infinite time: a `static_assert` fails, or
        a block needs more shared memory than the target has. All other errors are raised. Pruning, keys and hooks
        follow Triton's `Autotuner.run`. Raises LaunchError if no configuration is left.
        """
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        try:
            key = (tuner, *_key(tuner, kwargs))
            if config := self._chosen.get(key):
                return self._launch(tuner, config, args, kwargs)
            several = len(tuner.configs) > 1
            refused: list[str] = []
            for config in tuner.prune_configs(kwargs) if several else tuner.configs:
                if several:
                    tuner.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()}, reset_only=True)
                try:
                    found = self._launch(tuner, config, args, kwargs)
                except (LaunchError, TooLarge) as refusal:
                    if not several or not _passed_over(refusal):
                        raise
                    refused.append(f"{config}: {refusal}")
                    continue
                self._chosen[key] = tuner.best_config = config
                return found
            raise LaunchError("no configuration of the autotuner runs: " + "; ".join(refused))
        finally:
            tuner.nargs = None

    def _launch(self, tuner: Any, config: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if conflicts := sorted(kwargs.keys() & config.kwargs.keys()):
            raise LaunchError(f"{', '.join(conflicts)}: given both in the launch and by the autotuner")
        if config.pre_hook is not None:
            config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
        return tuner.fn.run(*args, **kwargs, **config.all_kwargs())


def _key(tuner: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    given = {name: value for name, value in {**tuner.nargs, **kwargs}.items() if name in tuner.arg_names}
    types = [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
    return (*(repr(given[name]) for name in tuner.keys if name in given), *types)


def _passed_over(refusal: Exception) -> bool:
    return isinstance(refusal, TooLarge) or "static_assert" in str(refusal) or "CompileTimeAssertion" in str(refusal)
