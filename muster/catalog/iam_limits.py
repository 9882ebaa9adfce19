"""Google's limits of conditions in an IAM policy; pure.

https://cloud.google.com/iam/quotas#limits
"""

LOGICAL_OPERATORS = 12
"""&&, || and ! in the condition of one binding."""
CONDITIONS_OF_A_ROLE = 20
"""Bindings of one role to one member with different conditions, in one policy."""
