#!/usr/bin/env python3
"""Train a small model with Keras, one worker on each node of a job: multiworker.py BACKUP.

What a cluster adds to TensorFlow's MultiWorkerMirroredStrategy is TF_CONFIG, which says where all
workers are: srun starts this program once on each node, and SLURM knows the nodes. Each epoch that
is done is in the folder BACKUP until the last one is, so a job that is queued again goes on there.
"""

import argparse
import json
import os
import platform
import subprocess

import numpy as np  # type: ignore[import-not-found]
import tensorflow as tf  # type: ignore[import-untyped]

EPOCHS = 5
BATCH = 64
"""Points that one replica sees in a step: a replica is a GPU, or a node without GPUs."""


def workers() -> list[str]:
    """Return the addresses of all workers, in the order of SLURM_PROCID.

    The port is below those that srun takes (25000 and up), and jobs with other numbers have others.
    """
    nodes = os.environ["SLURM_JOB_NODELIST"]
    command = ["scontrol", "show", "hostnames", nodes]
    names = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    port = 20000 + int(os.environ["SLURM_JOB_ID"]) % 5000
    return [f"{name}:{port}" for name in names]


def main() -> None:
    """Train, and print the loss over all data."""
    parser = argparse.ArgumentParser()
    parser.add_argument("backup", help="folder that all nodes see")
    options = parser.parse_args()

    number = int(os.environ["SLURM_PROCID"])
    task = {"type": "worker", "index": number}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers()}, "task": task})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    source = np.random.default_rng(1)
    points = source.normal(size=(4096, 64)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((points, points.sum(axis=1, keepdims=True)))
    data = data.batch(BATCH * strategy.num_replicas_in_sync)
    # Each worker takes a part of the points. Of files, AutoShardPolicy.FILE gives each some.
    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = data.with_options(sharding)

    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.Input(shape=(64,)),
                tf.keras.layers.Dense(256, activation="relu"),
                tf.keras.layers.Dense(1),
            ]
        )
        model.compile(optimizer=tf.keras.optimizers.Adam(0.01), loss="mse")
    backup = tf.keras.callbacks.BackupAndRestore(options.backup)
    # One line for each epoch, from the first worker.
    model.fit(data, epochs=EPOCHS, verbose=2 if number == 0 else 0, callbacks=[backup])
    loss = model.evaluate(data, verbose=0)
    print(
        f"{platform.node()}: worker {number} of {strategy.num_replicas_in_sync}, loss {loss:.6f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
