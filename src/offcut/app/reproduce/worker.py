"""A process that runs one part: ``python -m offcut.app.reproduce.worker PART PLAN OUTPUT [DATA]``.

It says on standard output what it does, and leaves its runs in OUTPUT/runs/PLAN, with what the page
will show of them in PART.json there.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run the part."""
    from offcut.app.html import Page
    from offcut.app.reproduce.finished import RunStore
    from offcut.app.reproduce.run import INTERRUPTED, UNUSABLE, module_of, plan_named
    from offcut.app.reproduce.versus_paper import PartReport
    from offcut.errors import OffcutError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as kind as Ctrl-C
    part, name, output, *data = arguments
    plan, folder, module = plan_named(name), Path(output), module_of(part)
    store = RunStore(
        folder / "runs" / plan.name, lambda line: print(line, flush=True), progress=False
    )
    try:
        found = module.run(store, plan, Path(data[0]) if data else None)
        print("pictures and tables ...", flush=True)
        page = Page(part, figures=folder / "figures")
        rows = module.show(page, found, plan)
        PartReport.of(page, rows, store.again).save(folder / "runs" / plan.name, part)
        print("done", flush=True)
    except (OffcutError, ImportError) as error:  # extras that are not installed say how to
        print(f"error: {error}", flush=True)
        return UNUSABLE
    except KeyboardInterrupt:
        print("interrupted; what was done is kept", flush=True)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
