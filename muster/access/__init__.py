"""How people and administrators reach the VMs of a cluster in the cloud."""
