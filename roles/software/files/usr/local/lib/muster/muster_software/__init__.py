# SPDX-License-Identifier: Apache-2.0
"""Releases of modules: shown, rolled back, removed; /usr/local/sbin/muster-software starts it."""
