"""ssh to the VMs of a cluster: through Google's Identity-Aware Proxy, host keys checked.

The VMs have no public address. IAP carries a TCP connection to the named VM, if the caller
may (roles/iap.tunnelResourceAccessor); gcloud is its client.
https://cloud.google.com/iap/docs/using-tcp-forwarding
"""

from muster.gcp.pulumi_stack import Stack


def alias(stack: Stack, host: str) -> str:
    """A VM's name in known_hosts: two clusters may have hosts of the same name."""
    return f"{host}.{stack.zone}.{stack.project}"


def known_hosts(stack: Stack) -> str:
    """Path of the file with the host keys of a cluster."""
    return f"~/.ssh/known_hosts.muster-{stack.cluster}"


def options(stack: Stack, host: str, *, forwards_agent: bool) -> dict[str, str]:
    """Return the options of ssh_config(5) with which ssh reaches `host`.

    `forwards_agent`: sudo there can ask the ssh agent for a key, and root there can use the agent.
    """
    tunnel = (
        f"gcloud compute start-iap-tunnel {host} 22 --listen-on-stdin "
        f"--project={stack.project} --zone={stack.zone} --verbosity=warning"
    )
    return {
        "ProxyCommand": tunnel,
        "HostKeyAlias": alias(stack, host),
        "UserKnownHostsFile": known_hosts(stack),
        # A key in the file must match. `muster ssh-config --write` asks Google for the keys;
        # otherwise the first connection learns them, and Google vouches for it in another way: IAP
        # ends at the VM of that name, and nobody else is on the way.
        "StrictHostKeyChecking": "accept-new",
        "ServerAliveInterval": "30",
        **({"ForwardAgent": "yes"} if forwards_agent else {}),
    }


def _forwards_agent(stack: Stack, host: str) -> bool:
    """Whether the agent comes along without being asked for (ssh -A).

    Not to a login node: what a shell starts with there is in the shared home, which root of a
    compute node can write.
    """
    return host == stack.controller


def arguments(stack: Stack, host: str) -> str:
    """Return them as arguments of ssh for a run of Ansible, quoted as Ansible splits them."""
    wanted = options(stack, host, forwards_agent=_forwards_agent(stack, host))
    return " ".join(f"-o '{name}={value}'" for name, value in wanted.items())


def config(stack: Stack, user: str | None = None) -> str:
    """Return an ssh_config(5) of the login nodes, the first by the cluster's name, and controller.

    On the controller only administrators can log in, through IAP only those in `cloud.iap_admins`.
    """
    blocks = []
    for number, host in enumerate([*stack.logins, stack.controller]):
        names = f"{stack.cluster} {host}" if number == 0 else host
        lines = {"User": user} if user else {}
        lines |= options(stack, host, forwards_agent=_forwards_agent(stack, host))
        body = "".join(f"    {name} {value}\n" for name, value in lines.items())
        blocks.append(f"Host {names}\n{body}")
    head = f"# Written by `muster ssh-config` for the cluster {stack.cluster}.\n"
    return head + "\n".join(blocks)
