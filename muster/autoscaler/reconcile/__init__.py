"""All decisions of the autoscaler: from observed and tracked state to actions."""
