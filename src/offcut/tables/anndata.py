"""AnnData as a table, and what an H5AD file must be before anything reads it.

HDF5 files may refer to other files (links, external storage, virtual datasets), and compiled code
that reads sparse matrices trusts their indices: a crafted file could show any file of this machine,
or end the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.sparse import issparse, sparray, spmatrix

from offcut.errors import DataError
from offcut.numerics.extras import needed
from offcut.tables.columns import listed
from offcut.tables.table import AnnDataLike, Contents, Frame, Origin, reading


def annotated_contents(
    annotated: AnnDataLike,
    layer: str | None = None,
    obsm: str | None = None,
    path: Path | None = None,
) -> Contents:
    """One of its matrices; columns of ``obs`` can be the group."""
    matrix, names = _matrix(annotated, layer, obsm)

    def columns(places: Sequence[int]) -> Sequence[np.ndarray]:
        some: Any = matrix[:, list(places)]
        return list(np.asarray(some.toarray() if issparse(some) else some).T)

    origin = Origin("AnnData") if path is None else Origin(path.name, path)
    groups = {str(name): annotated.obs[name] for name in annotated.obs.columns}
    return Contents(origin, len(annotated.obs), names, columns, groups=groups)


def _matrix(
    annotated: AnnDataLike, layer: str | None, obsm: str | None
) -> tuple[np.ndarray | spmatrix | sparray, list[str]]:
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
        if isinstance(matrix, Frame):
            return np.asarray(matrix), [str(name) for name in matrix.columns]
        return matrix, [f"{obsm} {number}" for number in range(matrix.shape[1])]
    matrix = annotated.X if layer is None else annotated.layers[layer]
    if matrix is None:
        raise DataError("this AnnData has no X; choose a matrix with layer= or obsm=")
    return matrix, [str(name) for name in annotated.var_names]


def stored(path: Path) -> AnnDataLike:
    """The AnnData in an H5AD file."""
    anndata = needed("anndata", f"reading {path.name}")
    check_h5ad(path)
    with reading(path, "H5AD", "; is it damaged?"):
        return anndata.read_h5ad(path)


#: More than this, and more than so many times the size of the file, is not data but a trap.
MOST_BYTES, MOST_TIMES = 2**30, 2000
SPARSE = ("csr_matrix", "csc_matrix")


def check_h5ad(path: Path) -> None:
    """Refuse a file that reaches out of itself, or whose sparse matrices are not what they say."""
    with reading(path, "H5AD", "; is it damaged?"), h5py.File(path, "r") as file:
        try:
            for name, item in _items(file):
                if isinstance(item, h5py.Dataset):
                    _check_dataset(item, name, path.stat().st_size)
                else:
                    _check_group(item, name)
        except DataError as error:
            raise DataError(f"{path} cannot be trusted: {error}; write it again") from error


def _items(file: h5py.File) -> Iterator[tuple[str, h5py.Group | h5py.Dataset]]:
    """Everything in the file once, and nothing outside of it."""
    waiting, seen = [file], {file.id.__hash__()}
    yield "/", file
    while waiting:
        group = waiting.pop()
        for name in group:
            link = group.get(name, getlink=True)
            where = f"{group.name.rstrip('/')}/{name}"
            if isinstance(link, h5py.ExternalLink):
                raise DataError(f"{where} is a link to another file, {link.filename!r}")
            if isinstance(link, h5py.SoftLink):
                continue  # to a place in this file, which is looked at there
            item = group[name]
            if item.id.__hash__() in seen:
                continue
            seen.add(item.id.__hash__())
            yield where, item
            if isinstance(item, h5py.Group):
                waiting.append(item)


def _check_dataset(item: h5py.Dataset, name: str, size: int) -> None:
    if item.external:
        raise DataError(f"{name} is stored in another file, {item.external[0][0]!r}")
    if item.is_virtual:
        others = {source.file_name for source in item.virtual_sources()} - {"."}
        if others:
            raise DataError(f"{name} is stored in another file, {sorted(others)[0]!r}")
    if item.shape is not None and item.nbytes > max(MOST_BYTES, MOST_TIMES * size):
        raise DataError(f"{name} says {item.nbytes:,} bytes, but the file has {size:,}")


def _check_group(item: h5py.Group, name: str) -> None:
    """Bounds and order of a compressed sparse matrix."""
    kind = item.attrs.get("encoding-type", b"")
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    older = item.attrs.get("h5sparse_format")
    if kind not in SPARSE and older is None:
        return
    row_by_row = kind == "csr_matrix" or (kind not in SPARSE and "csr" in str(older))
    shape = np.ravel(item.attrs.get("shape", item.attrs.get("h5sparse_shape", ())))
    parts = {}
    for part in ("data", "indices", "indptr"):
        if part not in item or getattr(item[part], "ndim", 0) != 1:
            raise DataError(f"the sparse matrix {name} has no row of numbers {part!r}")
        parts[part] = item[part]
    if shape.size != 2 or shape.dtype.kind not in "iu" or (shape < 0).any():
        raise DataError(f"the sparse matrix {name} has the shape {shape.tolist()}")
    if any(parts[part].dtype.kind not in "iu" for part in ("indices", "indptr")):
        raise DataError(f"the sparse matrix {name} has indices that are no whole numbers")
    lines, across = (int(size) for size in (shape if row_by_row else shape[::-1]))
    indices, pointers = parts["indices"][...], parts["indptr"][...]
    count = len(parts["data"])
    fine = (
        len(pointers) == lines + 1
        and pointers[0] == 0
        and (pointers[1:] >= pointers[:-1]).all()
        and int(pointers[-1]) == len(indices) == count
    )
    if not fine:
        raise DataError(
            f"the sparse matrix {name} has {count:,} numbers in {lines:,} lines, and its pointers "
            "(indptr) do not lead through them in order"
        )
    if len(indices) and (indices.min() < 0 or int(indices.max()) >= across):
        raise DataError(
            f"the sparse matrix {name} is {across:,} wide, but its indices go from "
            f"{indices.min()} to {indices.max()}"
        )
