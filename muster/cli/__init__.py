"""The program `muster`: all that talks to a terminal, and nothing else does."""
