"""The program that cuts GPUs (roles/nvidia_driver/files), and a node whose driver is played."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
sys.path.insert(0, str(ROOT / "roles/nvidia_driver/files/usr/local/lib/muster"))
