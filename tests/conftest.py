"""What every test shares: no trial compilations of vector instructions in each new cache folder, which take longer than
most tests. tests/end_to_end clears the environment and leaves them to torch."""

from __future__ import annotations

import os

from kernelopt_bot.sandbox.worker_environment import VECTOR_SETS

os.environ.setdefault(VECTOR_SETS, "1")
