"""The errors a user can meet. Each message says what came, what was expected and what to do."""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "DataError",
    "MemoryLimitError",
    "ModelError",
    "OffcutError",
    "OutputError",
    "SettingsError",
    "StartError",
    "TrustWarning",
]


class OffcutError(Exception):
    """Base of every error that Offcut raises on purpose."""


class DataError(OffcutError, ValueError):
    """The data cannot be what the model describes (NaN, text, empty, outside the window)."""


class ModelError(OffcutError, ValueError):
    """The model is no rejection sampler (log_accept > 0, wrong shapes, ...), or not this one."""


class SettingsError(OffcutError, ValueError):
    """A setting of the run makes no sense (unknown kernel, negative budget, ...)."""


class StartError(OffcutError, RuntimeError):
    """No place to start: no prior support, or nothing is ever accepted there."""


class MemoryLimitError(OffcutError, RuntimeError):
    """An unbudgeted sweep needs more rejections than fit into the stated memory limit."""


class CheckpointError(OffcutError, RuntimeError):
    """A checkpoint is damaged, in use, or belongs to another run."""


class OutputError(OffcutError, OSError):
    """A file cannot be written: no room, no permission, or something else in its place."""


class TrustWarning(UserWarning):
    """The run finished, and something in it says how far not to trust it."""


def __dir__() -> list[str]:
    return sorted(__all__)
