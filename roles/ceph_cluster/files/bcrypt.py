"""In place of python3-bcrypt, which ceph-mgr 18.2 of Debian 13 can't import.

Its compiled part refuses the subinterpreters in which ceph-mgr runs its modules, and those that
import it for nothing but the dashboard's passwords then fail: "PyO3 modules do not yet support
subinterpreters". https://github.com/PyO3/pyo3/issues/576
"""

from typing import NoReturn


def _refuse(*_: object) -> NoReturn:
    raise NotImplementedError("the dashboard's passwords need Ceph's own packages")


gensalt = hashpw = checkpw = _refuse
