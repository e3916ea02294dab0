"""A process that runs one part: ``python -m offcut.reproduction.worker PART PLAN OUTPUT [DATA]``.

It says on standard output what it does, and leaves its runs in OUTPUT/runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

#: Exit codes: an error that the user can do something about, and an interruption.
UNUSABLE, INTERRUPTED = 2, 130


def main(arguments: list[str]) -> int:
    """Run the part."""
    from offcut.errors import OffcutError
    from offcut.reproduction.keeper import Keeper
    from offcut.reproduction.reproduce import module_of, plan_named

    part, plan, output, *data = arguments
    keeper = Keeper(Path(output) / "runs", lambda line: print(line, flush=True), progress=False)
    try:
        module_of(part).run(keeper, plan_named(plan), Path(data[0]) if data else None)
    except OffcutError as error:
        print(f"error: {error}", flush=True)
        return UNUSABLE
    except KeyboardInterrupt:
        print("interrupted; what was done is kept", flush=True)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
