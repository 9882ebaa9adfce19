"""The machines as they are, against the definition."""
