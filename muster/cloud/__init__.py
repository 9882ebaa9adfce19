"""What Muster itself does with Google Cloud, on a laptop and on the cluster's VMs."""
