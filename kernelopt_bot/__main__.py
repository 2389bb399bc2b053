"""`python -m kernelopt_bot`."""

import sys

from kernelopt_bot.cli.main import main

sys.exit(main())
