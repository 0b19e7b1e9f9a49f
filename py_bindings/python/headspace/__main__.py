"""`python -m headspace` is the `headspace` command."""

import sys

from headspace._cli import main

sys.exit(main())
