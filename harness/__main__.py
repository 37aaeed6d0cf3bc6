"""`python -m ptxdiff` is the command `ptxdiff`."""

import sys

from ptxdiff.cli import main

sys.exit(main())
