"""torchrun whose nodes meet without libuv too, where USE_LIBUV=0 says that PyTorch lacks it.

    python3 torchrun.py [options of torchrun] program [its options]

PyTorch of Debian 13 is built without libuv. All of PyTorch 2.6 follows that variable but the
rendezvous c10d: "use_libuv was requested but PyTorch was build without libuv support".
"""

import os
from typing import Any

from torch import distributed  # type: ignore[import-not-found]


class Store(distributed.TCPStore):  # type: ignore[misc]
    """The store of the rendezvous, without libuv."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, use_libuv=False, **kwargs)


if os.environ.get("USE_LIBUV") == "0":
    # Before torchrun takes it from there. The programs make a store of their own.
    distributed.TCPStore = Store
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"

from torch.distributed import run  # type: ignore[import-not-found]  # noqa: E402

if __name__ == "__main__":
    run.main()
