# SPDX-License-Identifier: Apache-2.0
"""What the priority of a job that waits is made of, in words, from sprio."""

from muster_jobs.records import NotKnownError, Run, output

_SPRIO = ["/usr/bin/sprio", "--noheader"]
_WORDS = {
    "%F": "for fairshare (less, the more its owner and its account have used)",
    "%A": "for the time that it has waited",
    "%Q": "for its QoS",
    "%P": "for its partition",
    "%J": "for its size",
    "%B": "for its account",
}
"""Factors that are counted with a weight, by sprio's letters; the same in 22.05 and 24.11."""
_FORMAT = " ".join(_WORDS)


def sentence(job: str, run: Run) -> str:
    """Return it; empty where SLURM has no factors: jobs start in their order, or it is held.

    Args:
        job: Its number; of an array that of all.
        run: Runs a command, as `run_program`.

    """
    try:
        lines = output([*_SPRIO, f"--format=%Y %N {_FORMAT}", f"--jobs={job}"], run).splitlines()
        weights = output([*_SPRIO, "--weights", f"--format={_FORMAT}"], run).split()
    except NotKnownError:
        return ""
    words = lines[0].split() if lines else []
    # 22.05 says in a sentence that it knows no such job.
    if len(words) != len(_WORDS) + 2 or not words[0].isdigit() or len(weights) != len(_WORDS):
        return ""
    total, nice, *parts = words
    said = [
        f"{part} of {weight} {why}"
        for part, weight, why in zip(parts, weights, _WORDS.values(), strict=True)
        if weight != "0"
    ]
    if not any(int(part) for part in parts) and int(total):
        said = ["it was set by hand"]
    if nice != "0":
        said.append(f"less {nice} by --nice" if int(nice) > 0 else f"{-int(nice)} by --nice")
    return f"Its priority is {total}: {', '.join(said)}" if said else ""
