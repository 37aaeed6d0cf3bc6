"""Whether a change may go in: a run against what was accepted before."""
