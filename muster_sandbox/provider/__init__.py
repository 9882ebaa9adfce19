"""A stand-in for Google's Pulumi provider, where its plugin is not installed."""
