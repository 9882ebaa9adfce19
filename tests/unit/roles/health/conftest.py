"""The health check of nodes (roles/health/files), as a package."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
sys.path.insert(0, str(ROOT / "roles/health/files/usr/local/lib/muster"))
