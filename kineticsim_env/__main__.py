"""`python -m kineticsim_env`."""

import sys

from kineticsim_env.cli import main

sys.exit(main())
