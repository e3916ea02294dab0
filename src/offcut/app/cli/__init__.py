"""The command line: ``offcut fit``, ``offcut compare``, ``offcut reproduce``.

Nothing here imports JAX before a command runs, so that ``--help`` and completion are quick.
"""
