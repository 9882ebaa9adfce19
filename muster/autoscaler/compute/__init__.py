"""The client of Compute Engine: lists, creates and deletes VMs."""
