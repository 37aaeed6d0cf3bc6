"""`python -m ptxdiff.cli`."""

import sys

from ptxdiff.cli import main

sys.exit(main())
