# SPDX-License-Identifier: Apache-2.0
"""JupyterLab as a job: what `notebook` does on the login node, and what runs in the job."""
