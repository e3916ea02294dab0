"""Arguments that were called otherwise or stood elsewhere: an old one is answered with the new."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from offcut.errors import ModelError, SettingsError

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


def moved(**answers: Callable[[Any], str]) -> Callable[[Function], Function]:
    """Refuse arguments that belong elsewhere now; ``answers`` say what to write for a value.

    >>> @moved(method=lambda value: f"give offcut.sample(model, data, method={value!r})")
    ... def model(prior): ...
    >>> model(1, method="exchange")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    offcut.errors.SettingsError: method='exchange' has another place now: give ...
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def call(*arguments: Any, **settings: Any) -> Any:
            for name, answer in answers.items():
                if name in settings:
                    value = settings[name]
                    raise SettingsError(f"{name}={value!r} has another place now: {answer(value)}")
            return function(*arguments, **settings)

        return call  # type: ignore[return-value]

    return decorate
