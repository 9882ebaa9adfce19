"""The program that builds (roles/software/files), as a package."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
sys.path.insert(0, str(ROOT / "roles/software/files/usr/local/lib/muster"))
