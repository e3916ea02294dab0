"""From a file to rows that may be fitted, for all worlds but the mixture's."""

from __future__ import annotations

from offcut.errors import SettingsError
from offcut.fitting.reading import Table, read_table
from offcut.fitting.region_text import parse_region
from offcut.fitting.request import Request
from offcut.fitting.rows import box_of, check_groups, combined, settle_missing, settle_outside
from offcut.fitting.words import parse_limits, split_columns
from offcut.regions import Box


def read_rows(request: Request, *, frames: bool = False) -> Table:
    """The file's rows, those with missing values refused or left out."""
    columns = split_columns(request.columns)
    table = read_table(request.file, columns, request.group, frames=frames)
    return settle_missing(table, request.missing)


def read_boxed(request: Request) -> tuple[Table, Box | None]:
    """Rows inside of a window that must be a box, and the window."""
    table = read_rows(request)
    size = len(table.names)
    lower = parse_limits(request.lower, "--lower", size)
    upper = parse_limits(request.upper, "--upper", size)
    region = None if request.region is None else parse_region(request.region)
    window = combined(box_of(lower, upper), region, size)
    if window is not None and not isinstance(window, Box):
        raise SettingsError(
            f"--region {request.region}: offcut fit {request.world} takes a box only, because its "
            "functions live on one; give Box(lower, upper), or --lower and --upper"
        )
    table = settle_outside(table, window, request.outside)
    check_groups(table)
    return table, window
