# SPDX-License-Identifier: Apache-2.0
"""Whether this node can do its work: its storage, its GPUs; what SLURM learns of it.

`main` asks SLURM and systemd what the node should have and runs the commands that look at it
(`commands`). What they said becomes findings (`storage`, `gpus`, `xids`), and those what is done to
the node (`record`): functions of text, without side effects.

Python's standard library alone: it runs with the system's Python 3.10 and later.
"""
