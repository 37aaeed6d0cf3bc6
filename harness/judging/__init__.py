"""From output bits to facts: the right answer, classes of difference, and words."""
