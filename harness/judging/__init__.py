"""From output bits to a judgement: expected results, classes of difference, and messages."""
