"""What Muster itself does with Google Cloud, from a laptop and from the cluster's own VMs.

Pulumi (pulumi/) manages the resources of a cluster. Here is what takes long or has no resource in
Google's provider, and what the creation and deletion of nodes needs.
"""
