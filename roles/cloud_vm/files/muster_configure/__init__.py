# SPDX-License-Identifier: Apache-2.0
"""A VM that configures itself: fetches its bundle, runs site.yml on itself, reports its progress.

    cloud.py      the metadata server, Cloud Storage, Secret Manager
    wanted.py     what the metadata asks of this VM, and waiting until it asks something else
    bundles.py    archives: checked, unpacked, the old ones removed
    keys.py       the cluster's secrets
    playbook.py   one run of ansible-playbook
    processes.py  the end of a run that takes too long
    report.py     what others see: the guest attribute, the notice at login, the broadcast
    configurer.py the order of it all

Runs on a VM of Muster's image with the Python of the system alone; Muster's own package comes with
the bundle.
"""
