"""The command line: ``offcut fit``, ``compare``, ``reproduce``, ``cache``.

Nothing here imports JAX before a command runs, so that ``--help`` and completion are quick.
"""
