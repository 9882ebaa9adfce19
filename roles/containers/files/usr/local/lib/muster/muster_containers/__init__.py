# SPDX-License-Identifier: Apache-2.0
"""The program muster-container."""
