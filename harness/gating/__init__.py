"""Accept or refuse a run against an accepted baseline."""
