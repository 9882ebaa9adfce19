"""What Muster itself does with Google Cloud, from a laptop and from the cluster's own VMs.

The resources of a cluster are Pulumi's business (pulumi/); here is what takes long or has no
resource of its own, and what nodes come and go by.
"""
