"""AnnData in and out: annotated matrices as the single-cell tools of Python share them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from offcut.cytometry.events import Events
from offcut.cytometry.gating import as_table
from offcut.cytometry.reading import assemble
from offcut.errors import DataError
from offcut.numerics.extras import needed
from offcut.tables.columns import Wanted, as_column, as_groups
from offcut.tables.read import choose
from offcut.tables.table import AnnDataLike


def from_anndata(
    annotated: AnnDataLike,
    channels: Wanted | None = None,
    *,
    layer: str | None = None,
    obsm: str | None = None,
    group: ArrayLike | None = None,
    **options: Any,
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
    group : str, or a label for each event, optional
        The name of a column of ``obs``, or labels.
    **options
        ``transform``, ``window``, ``at_limits`` and ``compensate``, as in ``read``.

    Returns
    -------
    Events
    """
    from offcut.tables.anndata import annotated_contents

    return assemble(choose(annotated_contents(annotated, layer, obsm), channels, group), **options)


def to_anndata(
    events: Events,
    labels: ArrayLike | None = None,
    certainty: ArrayLike | None = None,
    populations: object = None,
    posterior_density: ArrayLike | None = None,
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
            if np.shape(column) != (len(events),):
                raise DataError(
                    f"{name} must have one entry for each of the {len(events):,} events, got "
                    f"shape {np.shape(column)}"
                )
            obs[name] = as_column(column, name)
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
