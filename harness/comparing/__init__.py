"""Two PTX files of one kernel on the inputs of a case: whether they give the same bits, and where they first do not."""
