"""Packages that only some of the formats need, imported when one of them is used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

#: What the extra of Offcut brings. AnnData and FlowKit stay outside: they hold pandas below 3.
IN_EXTRA = ("flowio", "pandas", "pyarrow")


def needed(package: str, purpose: str) -> ModuleType:
    """The package, or an error that says how to get it.

    >>> needed("flowio_of_tomorrow", "reading FCS files")
    Traceback (most recent call last):
        ...
    ImportError: reading FCS files needs flowio_of_tomorrow: pip install 'offcut[cytometry]' \
flowio_of_tomorrow
    """
    try:
        return import_module(package)
    except ImportError as error:
        beside = "" if package in IN_EXTRA else f" {package}"
        raise ImportError(
            f"{purpose} needs {package}: pip install 'offcut[cytometry]'{beside}"
        ) from error
