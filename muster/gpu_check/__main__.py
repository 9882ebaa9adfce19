"""`python -m muster.gpu_check`."""

import sys

from muster.gpu_check.check import main

sys.exit(main())
