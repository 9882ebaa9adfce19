"""The cloud cluster on this machine: `pulumi up` against fakecloud, whose VMs are containers."""
