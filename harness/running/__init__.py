"""From a case to its results: the plan, the runs, replays, pytest's items, the records of a run."""
