"""Machines that are containers: systemd, sshd and Debian, on one podman network.

The demo, molecule and the tests of a whole cluster get their hosts here. What such a host needs
because it is a container (limits below the hard ones, a clock that can't be set, GPUs made by
mknod) is in the image's recipe; roles and playbooks know nothing of it.
"""
