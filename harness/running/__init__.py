"""Runs cases: plans, runs, replays, pytest's items, and the records of a run."""
