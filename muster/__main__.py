"""`python -m muster`."""

from muster.cli.main import main

main()
