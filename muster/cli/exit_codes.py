"""The exit codes of all commands, and how the help of a command shows them."""

from collections.abc import Mapping

DONE, FAILED, WRONG, UNREACHED = 0, 1, 2, 4
STALE = SILENT = FAILED

_WRONG_DEFINITION = "the definition is wrong, or there is no such cluster"
_NO_PROGRAM = "this machine is no host with a model store"
_NO_CONTROLLER = "the controller could not be reached"

EXIT_CODES: Mapping[str, Mapping[int, str]] = {
    "cache": {
        DONE: "each folder that should be cached is",
        WRONG: f"a folder that should be cached is not, or {_WRONG_DEFINITION}",
        UNREACHED: "a node could not be asked",
    },
    "check": {
        DONE: "no errors",
        WRONG: f"{_WRONG_DEFINITION}; with --hosts also: a machine differs from it",
        UNREACHED: "with --hosts: a host could not be asked",
    },
    "cloud record": {
        DONE: "the recorded command ended with 0; any other code is that command's own",
        WRONG: "nothing was run: the file exists or can't be written, or there is no such program",
    },
    "data stage": {
        DONE: "all files are there and checked",
        FAILED: "not all are; the next run goes on from there",
        WRONG: _NO_PROGRAM,
    },
    "job": {
        DONE: "said",
        FAILED: "SLURM did not answer",
        WRONG: "there is no such job, or this machine is no login node",
    },
    "models add": {
        DONE: "the model is in the store",
        FAILED: "it is not, and nothing of it was published",
        WRONG: _NO_PROGRAM,
    },
    "models gc": {
        DONE: "nothing is left over",
        FAILED: "something could not be removed",
        WRONG: _NO_PROGRAM,
    },
    "models list": {
        DONE: "shown",
        FAILED: "there is no such model, or none",
        WRONG: _NO_PROGRAM,
    },
    "models verify": {
        DONE: "all files are what they were when they were added",
        FAILED: "there is no such model, or it could not be read",
        WRONG: f"a file differs or is missing, or {_NO_PROGRAM}",
    },
    "nodes": {
        DONE: "shown",
        STALE: "shown, but the daemon has not written for a minute",
        WRONG: "there is nothing to show",
        UNREACHED: _NO_CONTROLLER,
    },
    "packages": {
        DONE: "shown",
        FAILED: "Ansible could not read the roles",
        WRONG: f"the cluster is in the cloud, or {_WRONG_DEFINITION}",
    },
    "render": {
        DONE: "rendered",
        FAILED: "the files could not be written",
        WRONG: _WRONG_DEFINITION,
    },
    "schema": {DONE: "printed, or written"},
    "secrets": {
        DONE: "the cluster has all its secrets, or the new one",
        FAILED: "the file could not be written",
        WRONG: "they would not be safe there, or there is no such cluster",
    },
    "software build": {
        DONE: "all that the definition asks for is built",
        FAILED: "Ansible did not start",
        WRONG: f"something was not built, and the run says why; or {_WRONG_DEFINITION}",
        UNREACHED: _NO_CONTROLLER,
    },
    "software diff": {
        DONE: "shown",
        FAILED: "the controller has no software of Muster's",
        WRONG: _WRONG_DEFINITION,
        UNREACHED: _NO_CONTROLLER,
    },
    "software gc": {
        DONE: "what nobody needs is removed",
        FAILED: "not all of it is",
        WRONG: _WRONG_DEFINITION,
        UNREACHED: _NO_CONTROLLER,
    },
    "software list": {
        DONE: "shown",
        FAILED: "the controller has no software of Muster's",
        WRONG: _WRONG_DEFINITION,
        UNREACHED: _NO_CONTROLLER,
    },
    "software publish": {
        DONE: "users load what the definition asks for",
        FAILED: "Ansible did not start",
        WRONG: f"users load what they did before, and the run says why; or {_WRONG_DEFINITION}",
        UNREACHED: _NO_CONTROLLER,
    },
    "software rollback": {
        DONE: "users load the other release",
        FAILED: "there is no such release, or it does not load",
        WRONG: _WRONG_DEFINITION,
        UNREACHED: _NO_CONTROLLER,
    },
    "ssh-config": {DONE: "printed, or written", WRONG: f"there is none, or {_WRONG_DEFINITION}"},
    "timeline": {
        DONE: "drawn",
        WRONG: "there is nothing to draw, or no place for the picture",
        UNREACHED: _NO_CONTROLLER,
    },
    "updates": {
        DONE: "all hosts were asked",
        WRONG: _WRONG_DEFINITION,
        UNREACHED: "a host could not be asked",
    },
    "why": {
        DONE: "said",
        STALE: "said, but the daemon has not written for a minute; on own machines: SLURM did not "
        "answer",
        WRONG: "there is no such job or node, or nothing to read",
        UNREACHED: _NO_CONTROLLER,
    },
}
"""Command -> code -> when the command ends with it. Click ends with 2 where the words are wrong."""


def epilog(codes: Mapping[int, str]) -> str:
    """Return the last paragraph of a command's help."""
    return "Exit code " + " ".join(f"{code}: {when}." for code, when in sorted(codes.items()))
