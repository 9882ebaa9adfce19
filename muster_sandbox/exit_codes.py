"""The exit codes of the sandbox's commands, as the last line of their help."""

EXIT_CODES = (
    "Exit code 0: done. 1: it failed, and the error says why. 2: the command was typed wrongly. "
    "Any other: that of a program which it ran, or 130 after Ctrl-C."
)
