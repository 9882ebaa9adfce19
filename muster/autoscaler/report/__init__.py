"""What the autoscaler shows people: status, events, metrics, and the words for them."""
