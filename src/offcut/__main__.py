"""``python -m offcut``: the command line."""

from __future__ import annotations

from offcut.app.cli.app import main

if __name__ == "__main__":  # parts of ``offcut reproduce`` import it in processes of their own
    main()
