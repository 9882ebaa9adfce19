"""Where the programs of the model store are."""

import sys
from pathlib import Path

LIBRARY = Path(__file__).parents[4] / "roles/models/files/usr/local/lib/muster"
sys.path.insert(0, str(LIBRARY))
