"""Machines that are containers: systemd, sshd and Debian, on one podman network.

The demo, molecule and the tests of a whole cluster get their hosts here. What a host needs only
because it is a container (limits below the hard ones, a clock that can't be set, GPUs made by
mknod) is in the image's recipe; roles and playbooks don't know about containers.
"""
