"""The program `muster`: the only package that talks to a terminal."""
