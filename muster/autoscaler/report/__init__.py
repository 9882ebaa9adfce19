"""What the autoscaler tells people: status, events, metrics, and the words for them."""
