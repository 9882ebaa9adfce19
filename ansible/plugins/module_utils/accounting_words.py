# SPDX-License-Identifier: Apache-2.0
"""What slurmdbd has and what changes there, as text for people."""

from collections.abc import Iterable

from ansible_collections.muster.slurm.plugins.module_utils.accounting_limits import (
    ASSOCIATION_FIELDS,
    QOS_FIELDS,
    changes,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_limits import (
    shown as shown_setting,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_state import (
    Association,
    State,
)
from ansible_collections.muster.slurm.plugins.module_utils.accounting_target import set_by_hand


def shown(cluster: str, state: State) -> str:
    """Return `state` without its limits as the lines of a diff."""
    lines = [f"cluster {cluster}"] if state.registered else []
    lines += [f"QoS {name}" for name in sorted(state.qos)]
    for name, account in sorted(state.accounts.items()):
        coordinators = ",".join(sorted(account.coordinators))
        lines.append(
            f"account {name}: parent={account.parent} fairshare={account.fairshare} "
            f'description="{account.description}" organization="{account.organization}"'
            + (f" coordinators={coordinators}" if coordinators else "")
        )
    for name, user in sorted(state.users.items()):
        accounts = ",".join(_association(*association) for association in sorted(user.associations))
        lines.append(
            f"user {name}: accounts={accounts} default={user.default_account} "
            f"adminlevel={user.admin_level}"
        )
    return "".join(line + "\n" for line in lines)


def limits_changed(current: State, goal: State) -> list[str]:
    """Return what changes of limits and QoS, such as `ada in lab: GPUs at once 8 -> 4`."""
    lines: list[str] = []
    for name, wanted in sorted(goal.qos.items()):
        lines += changes(f"QoS {name}", QOS_FIELDS, current.qos.get(name, {}), wanted)
    for name, account in sorted(goal.accounts.items()):
        existing = current.accounts.get(name)
        before = existing.settings if existing else {}
        lines += changes(f"account {name}", ASSOCIATION_FIELDS, before, account.settings)
    for key in sorted({*current.settings, *goal.settings}):
        user, account_name, partition = key
        if (account_name, partition) in getattr(goal.users.get(user), "associations", ()):
            before, after = current.settings.get(key, {}), goal.settings.get(key, {})
            who = f"{user} in {_association(account_name, partition)}"
            lines += changes(who, ASSOCIATION_FIELDS, before, after)
    return lines


def by_hand(current: State, wish: State) -> list[str]:
    """Return the settings that the definition does not have, each with its value."""
    lines = [
        f"{whose}: {shown_setting(fields, key, there)}"
        for whose, fields, key, there in set_by_hand(current, wish)
    ]
    return lines if current.has_other_clusters else lines + _coordinators(current, wish)


def by_others(current: State, goal: State, wish: State) -> list[str]:
    """Return the rights that another cluster of the slurmdbd may have given."""
    if not goal.has_other_clusters:
        return []
    return _coordinators(goal, wish) + [
        f"user {name}: admin level {user.admin_level}"
        # slurmdbd keeps who has an association elsewhere, with the rights.
        + ("" if name in goal.users else f", if another cluster has {name}")
        for name, user in sorted({**current.users, **goal.users}.items())
        if user.admin_level != "none"
        and (name not in wish.users or wish.users[name].admin_level == "none")
    ]


def _coordinators(current: State, wish: State) -> list[str]:
    return [
        f"account {name}: coordinator {user}"
        for name, account in sorted(wish.accounts.items())
        if name in current.accounts
        for user in sorted(current.accounts[name].coordinators - account.coordinators)
    ]


def _association(account: str, partition: str) -> str:
    return f"{account}:{partition}" if partition else account


def described(
    accounts: Iterable[str], associations: Iterable[Association], qos: Iterable[str] = ()
) -> list[str]:
    """Return accounts, associations and QoS as words for a message, sorted."""
    return (
        [f"account {name}" for name in sorted(accounts)]
        + [
            f"user {user} in {_association(account, partition)}"
            for user, account, partition in sorted(associations)
        ]
        + [f"QoS {name}" for name in sorted(qos)]
    )
