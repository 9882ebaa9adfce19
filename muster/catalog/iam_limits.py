"""Google's limits of conditions in an IAM policy; pure.

https://cloud.google.com/iam/quotas#limits
"""

LOGICAL_OPERATORS = 12
"""&&, || and ! in the condition of one binding."""
CONDITIONS_OF_A_ROLE = 20
"""Bindings of one role to one member with different conditions, in one policy."""

IN_A_CONDITION = LOGICAL_OPERATORS + 1
"""Names that a condition can compare, joined by ||."""
NODE_SETS = IN_A_CONDITION * (CONDITIONS_OF_A_ROLE // 2)
"""Node sets of VMs that a cluster can have.

Half of the bindings: Pulumi replaces one by adding the new one before it removes the old one, and
where the first node set of a definition goes all change.
"""
