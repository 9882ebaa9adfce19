# SPDX-License-Identifier: Apache-2.0
"""Build one folder of software as an account of its own; /usr/local/sbin/muster-build starts it."""
