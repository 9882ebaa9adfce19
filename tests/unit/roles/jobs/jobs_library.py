"""Where the programs for jobs are."""

import sys
from pathlib import Path

FILES = Path(__file__).parents[4] / "roles/jobs/files/usr/local"
sys.path.insert(0, str(FILES / "lib/muster"))
