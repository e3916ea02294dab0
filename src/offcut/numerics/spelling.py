"""Arguments that were called otherwise: an old name is answered with the new one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from offcut.errors import ModelError

Function = TypeVar("Function", bound=Callable[..., Any])


def renamed(**names: str) -> Callable[[Function], Function]:
    """Refuse old names of arguments, and say the new ones.

    >>> @renamed(kernel="covariance")
    ... def density(covariance="matern32"): ...
    >>> density(kernel="matern52")
    Traceback (most recent call last):
        ...
    offcut.errors.ModelError: kernel= is called covariance= here: give covariance='matern52'
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def call(*arguments: Any, **settings: Any) -> Any:
            for old, new in names.items():
                if old in settings:
                    raise ModelError(f"{old}= is called {new}= here: give {new}={settings[old]!r}")
            return function(*arguments, **settings)

        return call  # type: ignore[return-value]

    return decorate
