"""Compare two PTX files of one kernel on the inputs of a case: do they give the same bits, and where do they differ?"""
