"""Broken files and places that cannot be written: one kind of error, which names the file."""

from __future__ import annotations

import errno
import gzip
import io
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from cli import CURVE, refused, run
from offcut.app.fit.folder import Folder
from offcut.app.html import Page
from offcut.cytometry import read
from offcut.errors import DataError, OutputError
from offcut.files import save_netcdf, write

flowio = pytest.importorskip("flowio")
h5py = pytest.importorskip("h5py")

X = np.round(np.random.default_rng(0).gamma(3.0, size=(12, 2)) * 64) / 64


def content(kind: str) -> bytes:
    """A small file of each kind."""
    file = io.BytesIO()
    if kind == "npy":
        np.save(file, X)
    elif kind == "parquet":
        pd.DataFrame(X, columns=["a", "b"]).to_parquet(file)
    elif kind == "fcs":
        flowio.create_fcs(file, X.ravel().tolist(), ["a", "b"], metadata_dict={"timestep": "0.1"})
    else:
        text = pd.DataFrame(X, columns=["a", "b"]).to_csv(index=False).encode()
        return gzip.compress(text, mtime=0)
    return file.getvalue()


def read_or_refused(path: Path, body: bytes) -> bool:
    """Whether it was read; otherwise the error must be ours and name the file."""
    path.write_bytes(body)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of trust: what is in the file may be read as it is
        try:
            read(path)
        except DataError as error:
            # About the file, or about what was read from it without trouble.
            said = str(error)
            named = path.name in said or re.search("events|column|channel|window", said)
            assert named, said
            return False
    return True


@pytest.mark.parametrize("kind", ["npy", "csv.gz", "parquet", "fcs"])
def test_files_cut_short_or_with_wrong_bytes(tmp_path, kind):
    whole, path = content(kind), tmp_path / f"t.{kind}"
    assert read_or_refused(path, whole)
    rng = np.random.default_rng(0)
    cuts = sorted({*range(0, 12), *rng.integers(0, len(whole), 40).tolist(), len(whole) - 1})
    # An FCS file may end in bytes that nobody needs; everything else notices each missing byte.
    for cut in cuts:
        assert not read_or_refused(path, whole[:cut]) or (kind == "fcs" and cut > len(whole) - 10)
    for place in rng.integers(0, len(whole), 80).tolist():
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << int(rng.integers(8))
        read_or_refused(path, bytes(spoilt))


def an_npy(header: str, body: bytes = b"") -> bytes:
    text = header.encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=X)
    return file.getvalue()


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([{}, []], dtype=object), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x93NUMPY",
        an_npy("not a header\n"),
        an_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }"),
        an_npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**17},), }}"),
        an_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-3,), }", b"\0" * 24),
        an_npy("{'descr': 'zz', 'fortran_order': False, 'shape': (3,), }", b"\0" * 24),
        an_npy("(" * 300),
        pickled(),
        npz(),
        npz()[:60],
        npz()[:-30],
        b"PK\x03\x04 and nothing more",
    ],
    ids=range(13),
)
def test_arrays_that_are_none(tmp_path, monkeypatch, body):
    monkeypatch.chdir(tmp_path)
    assert not read_or_refused(tmp_path / "t.npy", body)
    refused(run("fit", "density", "t.npy"), "t.npy cannot be read as an array", "numpy.save")


@pytest.mark.parametrize(
    "value", ["", "abc", "-1", "0", "nan", "inf", "9" * 400, "1,2", "\x00\xff"]
)
def test_keywords_of_fcs_files(tmp_path, monkeypatch, value):
    """Whatever a keyword says, the file is read or refused with words."""
    monkeypatch.chdir(tmp_path)
    whole = content("fcs")
    begin, end = (int(whole[place : place + 8]) for place in (10, 18))
    text = whole[begin : end + 1].decode("latin1")
    sign = text[0]
    parts = text.strip(sign).split(sign)
    for place in range(0, len(parts) - 1, 2):
        changed = [*parts]
        changed[place + 1] = value or " "
        new = sign + sign.join(changed) + sign
        room = new.ljust(end + 1 - begin)
        if len(room) > end + 1 - begin:  # the text goes to the end of the file
            start = len(whole)
            head = whole[:10] + b"%8d%8d" % (start, start + len(new) - 1) + whole[26:]
            body = head + new.encode("latin1")
        else:
            body = whole[:begin] + room.encode("latin1") + whole[end + 1 :]
        read_or_refused(tmp_path / "t.fcs", body)


def test_a_spoilt_gzip_at_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = content("csv.gz")
    for body in (whole[:-9], whole[:20], b"no gzip at all", whole[:30] + b"\xff" * 9 + whole[39:]):
        (tmp_path / "t.csv.gz").write_bytes(body)
        refused(run("fit", "density", "t.csv.gz"), "t.csv.gz cannot be read as a table")


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("t.npy", X)

    def forbidden(self, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", forbidden)
    refused(run("fit", "density", "t.npy"), "t.npy cannot be opened (Permission denied)")


# Places that cannot be written. Root may write anywhere, so the system's answer is made up.


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "nothing can be written there"),
        (errno.EACCES, "permission is missing"),
        (errno.EIO, "is there room"),
    ],
)
def test_every_way_of_writing_names_the_file(tmp_path, monkeypatch, number, says):
    out = Folder(tmp_path / "out")
    told = {"request": {"sampling": {}, "options": {}}, "data": ""}
    out.open(told, resume=False, overwrite=False)
    tree = xr.DataTree(xr.Dataset({"x": ("draw", [1.0])}))
    before = {path.name: path.read_bytes() for path in out.path.iterdir()}

    def fails(*_, **__):
        raise OSError(number, "in the system's words")

    for what in ("write_bytes", "mkdir"):
        monkeypatch.setattr(Path, what, fails)
    monkeypatch.setattr("xarray.DataTree.to_netcdf", fails)
    ways = {
        "settings.json": lambda: out.note(told),
        "posterior.n": lambda: out.save_posterior("", tree),
        "tables": lambda: out.save_table("a", ["x"], [[1]]),
        "figures": lambda: out.save_figure("a.svg", "<svg/>"),
        "new": lambda: Folder(tmp_path / "new").open(told, resume=False, overwrite=False),
        "page.html": lambda: Page("x").write(tmp_path / "page.html"),
        "a.nc": lambda: save_netcdf(tree, tmp_path / "a.nc"),
        "a.txt": lambda: write(tmp_path / "a.txt", "x"),
    }
    for name, way in ways.items():
        with pytest.raises(OutputError, match=rf"(?s){re.escape(str(tmp_path))}.*\): {says}"):
            way()
        assert name
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in out.path.iterdir()} == before


def test_a_full_disk_at_the_command_line(tmp_path, monkeypatch):
    """After sampling, too: what was drawn stays in the checkpoint, and --resume goes on."""
    monkeypatch.chdir(tmp_path)
    np.save("t.npy", X[:, 0])

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    words = ["fit", "density", "t.npy", "--lower", "0", *CURVE, "-o", "out"]
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        patch.setattr("offcut.sampling.sample", lambda *_, **__: pytest.fail("it ran"))
        refused(run(*words), "cannot be written (No space left on device)", "make room", code=1)
        patch.setattr("offcut.files.made", full)
        refused(run(*words[:-1], "t.npy"), "t.npy is a file; give a directory")


def test_a_directory_in_the_place_of_a_file(tmp_path):
    (tmp_path / "page.html").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"cannot be written .*a directory stands where"):
        Page("x").write(tmp_path / "page.html")
    with pytest.raises(OutputError, match=r"a file stands where a directory"):
        Page("x").write(tmp_path / "file" / "page.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "page.html"]
    for name in ("t.npy", "t.csv", "t.fcs", "t.h5ad"):
        (tmp_path / name).mkdir()
        with pytest.raises(DataError, match=rf"{name} is a directory"):
            read(tmp_path / name)


# H5AD files, as far as they are looked at before anndata reads them.


def sparse(path: Path, kind: str = "csr_matrix", **parts) -> Path:
    """A matrix of 3 by 4 with three numbers."""
    given = {"data": [1.0, 2.0, 3.0], "indices": [0, 1, 2], "indptr": [0, 1, 2, 3]}
    if kind == "csc_matrix":
        given["indptr"] = [0, 1, 2, 3, 3]
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"] = kind
        group.attrs["shape"] = parts.pop("shape", (3, 4))
        for name, values in {**given, **parts}.items():
            group.create_dataset(name, data=np.array(values))
    return path


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"indices": [0, 1, 4]}, "4 wide, but its indices go from 0 to 4"),
        ({"indices": [0, 1, -1]}, "go from -1 to 1"),
        ({"indices": [0, 1, 2**60]}, "4 wide"),
        ({"indptr": [0, 2, 1, 3]}, "do not lead through them in order"),
        ({"indptr": [0, 1, 2, 2**40]}, "do not lead"),
        ({"indptr": [1, 1, 2, 3]}, "do not lead"),
        ({"indptr": [0, 3]}, "do not lead"),
        ({"data": [1.0]}, "do not lead"),
        ({"indices": [0.0, 1.0, 2.0]}, "no whole numbers"),
        ({"indices": [[0], [1], [2]]}, "no row of numbers 'indices'"),
        ({"shape": (3, -4)}, "has the shape"),
        ({"shape": (3,)}, "has the shape"),
    ],
)
def test_sparse_matrices_that_would_end_the_process(tmp_path, parts, says):
    from offcut.tables.anndata import check_h5ad

    for kind in ("csr_matrix", "csc_matrix"):
        check_h5ad(sparse(tmp_path / "good.h5ad", kind))
    with pytest.raises(DataError, match=says):
        check_h5ad(sparse(tmp_path / "t.h5ad", **parts))


def test_h5ad_files_that_reach_out_of_themselves(tmp_path):
    from offcut.tables.anndata import check_h5ad

    path, secret = tmp_path / "t.h5ad", tmp_path / "secret"
    secret.write_bytes(b"12345678" * 4)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.zeros(4)

    def linked(file):
        file.create_group("obs")["a"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")

    def external(file):
        file.create_dataset("X", (4,), "f8", external=[(str(secret), 0, 32)])

    def virtual(file):
        layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", shape=(4,))
        file.create_virtual_dataset("X", layout)

    def bomb(file):
        file.create_dataset("X", (10**6, 10**6), "f8", chunks=(1000, 1000))

    def loop(file):
        file["a"] = h5py.SoftLink("/")
        file["b"] = file["/"]

    for make, says in (
        (linked, "/obs/a is a link to another file"),
        (external, "/X is stored in another file"),
        (virtual, "/X is stored in another file"),
        (bomb, "says 8,000,000,000,000 bytes"),
        (loop, None),
    ):
        with h5py.File(path, "w") as file:
            make(file)
        if says is None:
            check_h5ad(path)
            continue
        with pytest.raises(DataError, match=says):
            check_h5ad(path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match=r"t.h5ad cannot be read as H5AD"):
        check_h5ad(path)


def test_h5ad_files_are_looked_at_first(tmp_path, monkeypatch):
    from offcut.tables import anndata

    class Anndata:
        @staticmethod
        def read_h5ad(path):
            pytest.fail("it was read")

    real = anndata.needed
    monkeypatch.setattr(
        anndata, "needed", lambda name, *_: Anndata if name == "anndata" else real(name, *_)
    )
    path = sparse(tmp_path / "t.h5ad", indices=[0, 1, 9])
    with pytest.raises(DataError, match=r"t.h5ad cannot be trusted: the sparse matrix /X"):
        read(path)
