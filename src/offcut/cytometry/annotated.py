"""AnnData in and out: annotated matrices as the single-cell tools of Python share them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from offcut.cytometry.assemble import assemble
from offcut.cytometry.columns import as_column, as_groups, chosen, listed
from offcut.cytometry.events import Events
from offcut.cytometry.h5ad import check_h5ad
from offcut.cytometry.optional import needed
from offcut.cytometry.populations import as_table
from offcut.cytometry.recorded import Recorded
from offcut.errors import DataError


def from_anndata(
    annotated: Any,
    channels: Any = None,
    *,
    layer: str | None = None,
    obsm: str | None = None,
    transform: Any = None,
    window: Any = None,
    group: Any = None,
    at_limits: str = "keep",
    compensate: Any = False,
) -> Events:
    """Events from an AnnData; as ``read``, with the choice of which of its matrices.

    Parameters
    ----------
    annotated : anndata.AnnData
    channels : sequence of str or int, optional
        Among ``var_names``; among the columns of an ``obsm``.
    layer : str, optional
        A layer in place of ``X``.
    obsm : str, optional
        A matrix of ``obsm`` in place of ``X``. Columns of one that has no names are called
        ``<obsm> 0``, ``<obsm> 1``, ...
    transform, window, group, at_limits, compensate
        As in ``read``; ``group`` may name a column of ``obs``.

    Returns
    -------
    Events
    """
    recorded = recorded_from(annotated, channels, group, layer, obsm)
    return assemble(
        recorded,
        transform=transform,
        window=window,
        group=group,
        at_limits=at_limits,
        compensate=compensate,
    )


def recorded_from(
    annotated: Any, channels: Any, group: Any, layer: str | None = None, obsm: str | None = None
) -> Recorded:
    """The chosen columns of one of its matrices."""
    matrix, names = _matrix(annotated, layer, obsm)
    places, spelled = chosen(channels, [names], range(len(names)))
    matrix = matrix[:, places]
    if hasattr(matrix, "toarray"):
        matrix = matrix.toarray()
    matrix = np.asarray(matrix)
    columns = [as_column(matrix[:, place], name) for place, name in enumerate(spelled)]
    labels = None
    if isinstance(group, str):
        if group not in annotated.obs.columns:
            known = listed([str(name) for name in annotated.obs.columns]) or "none"
            raise DataError(f"obs has no column {group!r} for the group; it has: {known}")
        labels = np.asarray(annotated.obs[group])
    return Recorded(
        np.stack(columns, axis=1), spelled, list(range(len(spelled))), labels, source="AnnData"
    )


def _matrix(annotated: Any, layer: str | None, obsm: str | None) -> tuple[Any, list[str]]:
    if layer is not None and obsm is not None:
        raise DataError("give layer= or obsm=, not both: each is a matrix in place of X")
    for kind, wanted, there in (
        ("layer", layer, annotated.layers),
        ("obsm", obsm, annotated.obsm),
    ):
        if wanted is not None and wanted not in there:
            known = listed([str(key) for key in there]) or "none"
            raise DataError(f"there is no {kind} {wanted!r}; there are: {known}")
    if obsm is not None:
        matrix = annotated.obsm[obsm]
        if hasattr(matrix, "columns"):
            return matrix.to_numpy(), [str(name) for name in matrix.columns]
        return matrix, [f"{obsm} {number}" for number in range(matrix.shape[1])]
    matrix = annotated.X if layer is None else annotated.layers[layer]
    if matrix is None:
        raise DataError("this AnnData has no X; choose a matrix with layer= or obsm=")
    return matrix, [str(name) for name in annotated.var_names]


def stored(path: Path) -> Any:
    """The AnnData in an H5AD file."""
    anndata = needed("anndata", f"reading {path.name}")
    check_h5ad(path)
    try:
        return anndata.read_h5ad(path)
    except Exception as error:  # a damaged file can fail anywhere
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise DataError(f"{path} cannot be read as H5AD ({said}); is it damaged?") from error


def to_anndata(
    events: Events,
    labels: Any = None,
    certainty: Any = None,
    populations: Any = None,
    posterior_density: Any = None,
) -> Any:
    """An AnnData of the events and of what was learnt about them, ready for ``write_h5ad``.

    Parameters
    ----------
    events : Events
        Transformed values become ``X``, those before the transform the layer ``"linear"``
        (compensated, if the events are), groups ``obs["group"]``.
    labels : one for each event, optional
        The population of each, as the categories ``obs["population"]``.
    certainty : array, optional
        How sure each label is, as ``obs["certainty"]``.
    populations : table, optional
        A dict of columns, a sequence of dicts or a DataFrame, as ``uns["populations"]``.
    posterior_density : array, optional
        The density at each event, as ``obs["posterior_density"]``.

    Returns
    -------
    anndata.AnnData
        ``uns["offcut"]`` says the transforms, the window and the source.
    """
    anndata = needed("anndata", "to_anndata")
    pandas = needed("pandas", "to_anndata")

    def names(words: Iterable[str]) -> Any:
        # As objects: AnnData does not write the strings of pandas 3 to a file.
        return pandas.Index(list(words), dtype=object)

    obs = pandas.DataFrame(index=names(str(row) for row in range(len(events))))
    if events.group is not None:
        obs["group"] = pandas.Categorical.from_codes(events.group, names(events.group_names))
    if labels is not None:
        codes, kinds = as_groups(labels, len(events), "labels")
        obs["population"] = pandas.Categorical.from_codes(codes, names(kinds))
    for name, column in (("certainty", certainty), ("posterior_density", posterior_density)):
        if column is not None:
            obs[name] = as_column(_for_each(column, events, name), name)
    result = anndata.AnnData(
        X=events.values.copy(),
        obs=obs,
        var=pandas.DataFrame(index=names(events.channels)),
        layers={"linear": events.original(compensated=True)},
    )
    result.uns["offcut"] = {
        "transform": np.array([repr(transform) for transform in events.transforms]),
        "window": repr(events.region),
        "source": events.source,
        "dropped": events.dropped,
    }
    if events.compensation is not None:
        result.uns["offcut"]["spillover"] = events.compensation.spillover
        result.uns["offcut"]["detectors"] = np.array(events.compensation.detectors)
    if populations is not None:
        result.uns["populations"] = as_table(populations)
    return result


def _for_each(values: Any, events: Events, name: str) -> np.ndarray:
    array = np.asarray(values)
    if array.shape != (len(events),):
        raise DataError(
            f"{name} must have one entry for each of the {len(events):,} events, got shape "
            f"{array.shape}"
        )
    return array
