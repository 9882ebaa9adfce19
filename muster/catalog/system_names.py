"""Names of users and groups that the distribution and its packages have.

Without those that begin with an underscore, as of newer packages: no person's and no group's does.
"""

# base-passwd of Debian 12, 13 and Ubuntu 22.04, 24.04: /usr/share/base-passwd/*.master.
_BASE = """
    root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats
    nobody nogroup adm tty disk kmem dialout fax voice cdrom floppy tape sudo audio dip operator src
    shadow utmp video sasl plugdev staff users
"""
# Numbers that Debian keeps for packages: /usr/share/doc/base-passwd/README, 60000 to 64999.
_ALLOCATED = """
    netplan ftn mysql tac-plus alias qmail qmaild qmails qmailr qmailq qmaill qmailp asterisk
    vpopmail vchkpw slurm hacluster haclient grsec-tpe grsec-sock-all grsec-sock-clt grsec-sock-srv
    grsec-proc ceph opensrf libvirt-qemu nova cinder glance gnocchi
"""
# Packages of their servers and cloud images, and those that the roles install (systemd, openssh,
# udev, polkit, chrony, munge, SLURM, MariaDB, nfs-common, rpcbind, rdma-core, msmtp, NVIDIA's,
# cephadm).
_PACKAGES = """
    systemd-network systemd-resolve systemd-timesync systemd-journal systemd-coredump systemd-oom
    messagebus sshd ssh tss polkitd crontab netdev ssl-cert input sgx kvm render clock uuidd
    tcpdump chrony munge slurmrestd statd rdma msmtp nvidia-persistenced cephadm
    debian ubuntu google-sudoers landscape pollinate syslog usbmux fwupd-refresh dhcpcd
"""
# What Muster's image build uses.
_MUSTER = "muster-build"

SYSTEM_NAMES = frozenset(f"{_BASE} {_ALLOCATED} {_PACKAGES} {_MUSTER}".split())
"""No person and no group can have them: the package would use theirs, or could not be installed."""

ROOT_GROUPS = ("docker", "incus-admin", "lxd")
"""Groups whose members are root by the daemon of that name."""

SUDO_GROUPS = ("sudo", "admin", "wheel", "google-sudoers")
"""Groups whose members are root by sudo, in the sudoers of distributions and cloud images."""
