"""The program that partitions GPUs, and a node with a simulated driver."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
sys.path.insert(0, str(ROOT / "roles/nvidia_driver/files/usr/local/lib/muster"))
