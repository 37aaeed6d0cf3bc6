"""Judge output bits: expected results, classes of difference, and messages."""
