"""Resources of Compute Engine."""
