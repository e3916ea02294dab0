"""Which samplers ``offcut compare`` sets against each other, for a world or a user's own model."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from offcut.comparing import Contender
from offcut.errors import SettingsError
from offcut.fitting.request import WORLDS, Request
from offcut.fitting.run import prepare
from offcut.fitting.source import read_rows

LANGEVIN = ("augment", "collapsed", "exchange", "pseudo_marginal", "asymptotic")
CURVES = {
    "paper's sweep": {"method": "augment", "joint_moves": False},
    "augment": {"method": "augment", "joint_moves": True},
    "collapsed": {"method": "collapsed", "joint_moves": True},
}
EXAMPLE = "offcut compare models.py:model heights.csv"


def contenders(request: Request) -> tuple[list[Contender], np.ndarray, Any]:
    """Samplers, the data, and what was read; ``request.world`` may be ``path.py:NAME``."""
    if request.world in WORLDS:
        return _of_world(request)
    if ".py" not in request.world:
        raise SettingsError(
            f"{request.world!r} is nothing to compare: expected one of {', '.join(WORLDS)}, or a "
            f"Python file and the name of a model in it ({EXAMPLE})"
        )
    model = load_model(request.world)
    table = read_rows(request)
    values = table.values[:, 0] if len(table.names) == 1 else table.values
    return _of_model(model), values, table


def _of_world(request: Request) -> tuple[list[Contender], np.ndarray, Any]:
    variants: dict[str, dict[str, Any]] = {}
    if request.world == "langevin":
        variants = {name: {"method": name} for name in LANGEVIN}
    elif request.world == "mixture":
        variants = {f"prior {name}": {"prior": name} for name in ("latent", "window")}
    else:
        variants = CURVES
    found, task = [], None
    for name, chosen in variants.items():
        task = prepare(replace(request, options={**request.options, **chosen}))
        # Two priors of a mixture have two posteriors.
        target = name if request.world == "mixture" else ""
        found.append(Contender(name, task.model, None, name == "asymptotic", target))
    assert task is not None
    return found, next(iter(task.data.values())), task.table


def _of_model(model: Any) -> list[Contender]:
    """Every kernel for a rejection model; other models as they are."""
    import offcut
    from offcut.models.rejection import RejectionModel

    if not isinstance(model, RejectionModel):
        return [Contender(type(model).__name__, model)]
    kernels = {
        "NUTS": offcut.NUTS(),
        "HMC": offcut.HMC(),
        "RandomWalk": offcut.RandomWalk(),
        "Exchange": offcut.Exchange(),
        "PseudoMarginal": offcut.PseudoMarginal(),
        "Conjugate": offcut.Conjugate(),
        "Direct": offcut.Direct(),
    }
    return [Contender(name, model, kernel) for name, kernel in kernels.items()]


def load_model(text: str) -> Any:
    """The model that ``path/to/file.py:NAME`` means; without a name the only one in the file."""
    path_text, colon, name = text.rpartition(":")
    if not colon or "/" in name or "\\" in name:
        path_text, name = text, ""
    path = Path(path_text)
    if not path.is_file():
        raise SettingsError(
            f"there is no file {path} (from {Path.cwd()}); expected a Python file and the name of "
            f"a model in it ({EXAMPLE})"
        )
    spec = importlib.util.spec_from_file_location(f"_offcut_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SettingsError(
            f"{path} cannot be run: {type(error).__name__}: {error}. Does `python {path}` work?"
        ) from error
    finally:
        sys.path.pop(0)
    models = {key: value for key, value in vars(module).items() if _is_model(value)}
    known = ", ".join(models) or "none"
    if not name and len(models) == 1:
        return next(iter(models.values()))
    if not name:
        raise SettingsError(f"which model of {path}? There are: {known}. Say {path}:NAME")
    if name not in vars(module):
        raise SettingsError(f"{path} has no {name!r}; its models are: {known}")
    if name not in models:
        kind = type(vars(module)[name]).__name__
        raise SettingsError(
            f"{name} in {path} is no model but {kind}; expected what offcut.truncated, "
            f"offcut.selected or another model of this library makes. Models there: {known}"
        )
    return models[name]


def _is_model(value: Any) -> bool:
    from offcut.models.rejection import RejectionModel

    return isinstance(value, RejectionModel) or (
        hasattr(value, "prepare") and not isinstance(value, type)
    )


def chosen_among(found: list[Contender], wanted: str | None) -> list[Contender]:
    """Those named, with commas between them, in any case."""
    if wanted is None:
        return found
    by_name = {_plain(one.name): one for one in found}
    words = [_plain(word) for word in wanted.split(",")]
    unknown = [word for word in words if word not in by_name]
    if unknown:
        raise SettingsError(
            f"--samplers {wanted}: there is no {unknown[0]!r}; there are "
            f"{', '.join(one.name for one in found)}"
        )
    return [by_name[word] for word in dict.fromkeys(words)]


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-").removeprefix("prior ")
