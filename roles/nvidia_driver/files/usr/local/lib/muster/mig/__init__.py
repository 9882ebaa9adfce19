# SPDX-License-Identifier: Apache-2.0
"""MIG instances on a node: made as the definition says, under names that gres.conf knows."""
