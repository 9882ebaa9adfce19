"""FullyShardedDataParallel for ddp.py: each process holds a part of the model and its optimizer.

A process gathers a layer when it computes with it. That is for models that don't fit into one GPU;
others are faster without. Checkpoints are whole, so any number of processes goes on from one.
It needs PyTorch 2.6, for CPUs (over Gloo) and GPUs; `fully_shard` of 2.6 is for GPUs alone.
"""

import warnings
from typing import Any

import torch  # type: ignore[import-not-found]
from torch import nn
from torch.distributed.checkpoint import state_dict  # type: ignore[import-not-found]
from torch.distributed.fsdp import FullyShardedDataParallel  # type: ignore[import-not-found]
from torch.distributed.fsdp.wrap import ModuleWrapPolicy  # type: ignore[import-not-found]

# What it says of one process alone, again and again: it holds the whole model.
warnings.filterwarnings("ignore", message=".*`NO_SHARD`", category=UserWarning)


def shard(model: nn.Module, device: torch.device, group: Any) -> nn.Module:
    """Return a model of which each process of the group holds a part of each layer."""
    return FullyShardedDataParallel(
        model,
        process_group=group,
        # What is gathered at once; of a transformer it would be its blocks.
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        device_id=device,
        use_orig_params=True,
    )


def full_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Any, Any]:
    """Return the states of model and optimizer; all processes gather them together.

    From GPUs they go to the memory of the first process alone.
    """
    # On CPUs nothing has to leave a GPU, and PyTorch 2.6 crashes if it should.
    gpus = torch.cuda.is_available()
    options = state_dict.StateDictOptions(full_state_dict=True, cpu_offload=gpus)
    in_model, in_optimizer = state_dict.get_state_dict(model, optimizer, options=options)
    return in_model, in_optimizer


def load_full_state(
    states: tuple[Any, Any], model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Have each process take its part of what `full_state` has returned."""
    options = state_dict.StateDictOptions(full_state_dict=True)
    in_model, in_optimizer = states
    state_dict.set_state_dict(
        model,
        optimizer,
        model_state_dict=in_model,
        optim_state_dict=in_optimizer,
        options=options,
    )
