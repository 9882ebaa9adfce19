"""Compare the machines with the definition."""
