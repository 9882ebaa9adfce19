"""Compute Engine, as the autoscaler reaches it: lists, makes and deletes VMs."""
