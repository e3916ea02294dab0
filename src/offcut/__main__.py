"""``python -m offcut``: the command line."""

from offcut.cli.app import main

main()
