"""``python -m offcut``: the command line."""

from __future__ import annotations

from offcut.app.cli.app import main

main()
