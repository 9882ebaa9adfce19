# SPDX-License-Identifier: Apache-2.0
"""`launch`: what training frameworks want to know about a job, from SLURM's variables."""
