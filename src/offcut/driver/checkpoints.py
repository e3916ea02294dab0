"""Checkpoints: a directory of checksummed files, nothing executable in it.

    PATH/manifest.json            what run this is; written once
    PATH/lock                     held while a process uses the directory
    PATH/budget-<phase>.json      the budget of a phase of draws
    PATH/chain-<c>-draws-<phase>-<start>-<stop>.seg    rows of draws and statistics
    PATH/chain-<c>-state-<phase>-<stop>.seg            the state after them

Segments are NumPy's npz behind a line with their SHA-256 and one that says where they belong: run
(a digest of the manifest: model, data, seed, all settings), chain, phase and steps. A file under
another's name, or of another run, is refused. Files are written to a temporary one, synced and
renamed. A state is written after its draws, and only then is the older state removed: whenever
the process dies, the newest state has all its draws. Draws whose state was never written stay
behind as strays; they are bitwise what the resumed run draws again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from offcut.errors import CheckpointError
from offcut.files import advice

try:
    import fcntl
except ImportError:  # Windows has no such locks: two processes may then use one directory
    fcntl = None  # type: ignore[assignment]


FORMAT = 2
_MAGIC = b"offcut-segment-2 "
_SEGMENT = re.compile(r"chain-(\d+)-(draws|state)-(\d+)-(\d+)(?:-(\d+))?\.seg")
#: Every file of a checkpoint.
_OWN = re.compile(rf"lock|(manifest\.json|budget-\d+\.json|{_SEGMENT.pattern})(\.tmp)?")
#: Where room made on the disk is all that a run needs.
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def _on_disk(what: str, path: Path) -> Iterator[None]:
    """Errors of the file system, with the path, what was tried and what to do."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        remedy = advice(error)
        if error.errno in _FULL:
            remedy += ". The same call goes on from what was saved"
        raise CheckpointError(f"checkpoint: could not {what} {path} ({why}); {remedy}") from error


def refuse_in_use(directory: Path) -> None:
    """Raise where a process works on a checkpoint in this directory or below it."""
    for lock in sorted(directory.rglob("lock")) if directory.is_dir() else ():
        with _on_disk("look at", lock), open(lock, "a") as file:
            _take(file, lock.parent)


def forget(directory: Path) -> None:
    """Remove the files of a checkpoint that nobody uses, and the directory if that empties it."""
    if directory.is_symlink() or not directory.is_dir():
        return
    refuse_in_use(directory)
    for file in directory.iterdir():
        if _OWN.fullmatch(file.name) and not file.is_dir():
            file.unlink()
    if not any(directory.iterdir()):
        directory.rmdir()


def _take(lock: TextIO, path: Path) -> None:
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {path} is in use by another process; wait for it, or give another path"
        ) from error


class Saved(NamedTuple):
    """Where a chain stands: phase, steps done in it, its rows so far, and its state's leaves."""

    phase: int
    done: int
    rows: dict[str, np.ndarray]
    state: list[np.ndarray]


class Segment(NamedTuple):
    """What a file holds: draws from one step of a phase to another, or the state after a step."""

    chain: int
    kind: str
    phase: int
    steps: tuple[int, ...]

    @classmethod
    def named(cls, name: str) -> Segment | None:
        """The segment of a file's name; None for another file."""
        match = _SEGMENT.fullmatch(name)
        if match is None:
            return None
        chain, kind, phase, *steps = match.groups()
        return cls(int(chain), kind, int(phase), tuple(int(s) for s in steps if s is not None))

    @property
    def name(self) -> str:
        steps = "-".join(map(str, self.steps))
        return f"chain-{self.chain}-{self.kind}-{self.phase}-{steps}.seg"


class Store:
    """A checkpoint directory, locked while open."""

    def __init__(self, path: str | os.PathLike, identity: dict[str, Any]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise CheckpointError(
                f"checkpoint must be the path of a directory, got {type(path).__name__}"
            )
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise CheckpointError(
                f"checkpoint {self.path} is a file, not an Offcut checkpoint directory; nothing "
                "was changed: give another path"
            )
        manifest = self.path / "manifest.json"
        if self.path.is_dir() and not manifest.exists():
            own = ("lock", "manifest.json.tmp")
            with _on_disk("list", self.path):
                others = sorted(p.name for p in self.path.iterdir() if p.name not in own)
            if others:
                raise CheckpointError(
                    f"{self.path} is not an Offcut checkpoint (it holds {others[0]!r}, and no "
                    "manifest.json); nothing was changed: give an empty or a new directory"
                )
        self._run = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
        with _on_disk("make", self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with _on_disk("open", self.path / "lock"):
            self._lock = open(self.path / "lock", "a")  # noqa: SIM115 - held until close
        try:
            _take(self._lock, self.path)
            self._check_still_ours()
            if manifest.exists():
                self._compare(manifest, identity)
            else:
                self._write("manifest.json", _sealed({"format": FORMAT, **identity}))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._lock.close()

    def _compare(self, manifest: Path, identity: dict[str, Any]) -> None:
        found = self._read_sealed(manifest)
        found.pop("format")
        expected = json.loads(json.dumps(identity))
        differing = [k for k in {**expected, **found} if expected.get(k) != found.get(k)]
        if differing:
            said = "; ".join(
                f"{k}: {found.get(k)!r} there, {expected.get(k)!r} now" for k in differing
            )
            raise CheckpointError(
                f"{self.path} belongs to another run ({said}); nothing was changed: repeat that "
                "call exactly to resume it, or give another path"
            )

    def _check_still_ours(self) -> None:
        """Raise where the directory was cleared, and perhaps taken by another run, meanwhile."""
        try:
            there = os.stat(self.path / "lock")
        except OSError:
            there = None
        held = os.fstat(self._lock.fileno())
        if there is None or (there.st_ino, there.st_dev) != (held.st_ino, held.st_dev):
            raise CheckpointError(
                f"checkpoint {self.path} was removed or replaced by another run while this one was "
                "using it; this run stops and writes nothing there. Start it again with a "
                "directory of its own"
            )

    def _write(self, name: str, content: bytes) -> None:
        self._check_still_ours()
        temporary = self.path / f"{name}.tmp"
        with _on_disk("write", self.path / name):
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path / name)

    def _read_sealed(self, file: Path) -> dict[str, Any]:
        """What a JSON file says, if its checksum is right."""
        try:
            with _on_disk("read", file):
                found = json.loads(file.read_text())
            if found.get("format", FORMAT) != FORMAT:
                raise CheckpointError(
                    f"{self.path} has checkpoint format {found['format']}, this version writes "
                    f"{FORMAT}; nothing was changed: resume it with the version that wrote it"
                )
            checksum = found.pop("checksum")
            if json.loads(_sealed(found))["checksum"] != checksum:
                raise ValueError("its checksum does not match")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise CheckpointError(
                f"{file} is damaged ({error}); nothing was changed: restore it, or start again in "
                "a new directory"
            ) from error
        return found

    def note_budget(self, phase: int, budget: int) -> None:
        noted = {"run": self._run, "phase": phase, "budget": budget}
        self._write(f"budget-{phase}.json", _sealed(noted))

    def budget(self, phase: int) -> int | None:
        """The budget of a phase, if it was decided before."""
        file = self.path / f"budget-{phase}.json"
        if not file.exists():
            return None
        found = self._read_sealed(file)
        budget = found.get("budget")
        self._check_place(file, {"run": self._run, "phase": phase, "budget": budget}, found)
        if not isinstance(budget, int) or isinstance(budget, bool) or budget < 0:
            raise CheckpointError(
                f"{file} has the budget {budget!r}, which is no number of rejections; nothing was "
                "changed: restore the file, or start again in a new directory"
            )
        return budget

    def _check_place(self, file: Path, wanted: dict[str, Any], found: dict[str, Any]) -> None:
        """Raise where a file says that it belongs elsewhere."""
        if found != wanted:
            differing = [name for name in wanted if dict(found).get(name) != wanted[name]]
            said = ", ".join(f"{name} {dict(found).get(name)}" for name in differing)
            here = ", ".join(f"{name} {wanted[name]}" for name in differing)
            raise CheckpointError(
                f"{file} does not belong here: it is of {said}, and stands for {here}. Nothing was "
                "changed; restore the right file, or start again in a new directory"
            )

    def save(
        self,
        chain: int,
        phase: int,
        start: int,
        stop: int,
        rows: dict[str, np.ndarray],
        state: list[np.ndarray],
    ) -> None:
        """Rows start..stop of a phase, and the state after them."""
        if stop > start:
            self._write_segment(Segment(chain, "draws", phase, (start, stop)), rows)
        newest = Segment(chain, "state", phase, (stop,))
        self._write_segment(newest, {f"leaf{i}": leaf for i, leaf in enumerate(state)})
        for older in self._segments(chain):
            if older.kind == "state" and older != newest:
                with _on_disk("remove", self.path / older.name):
                    (self.path / older.name).unlink(missing_ok=True)

    def load(self, chain: int) -> Saved | None:
        """The newest state of a chain with all its rows, or None."""
        segments = self._segments(chain)
        states = [segment for segment in segments if segment.kind == "state"]
        if not states:
            self._check_no_state_lost(chain, segments)
            return None
        newest = max(states, key=lambda segment: (segment.phase, segment.steps))
        phase, (done,) = newest.phase, newest.steps
        leaves = self._read_segment(newest)
        state = [leaves[f"leaf{i}"] for i in range(len(leaves))]
        # From the state backwards: a segment starts where a state was once written, so any that
        # ends here leads on to the beginning, whereas one that starts here may be a stray.
        draws = [s for s in segments if s.kind == "draws" and s.phase == phase]
        ending = {segment.steps[1]: segment for segment in draws}
        parts: list[dict[str, np.ndarray]] = []
        reached = done
        while reached > 0:
            if reached not in ending or ending[reached].steps[0] >= reached:
                raise CheckpointError(
                    f"{self.path}: chain {chain} stands at step {done} of phase {phase}, but no "
                    f"draws end at step {reached}: a segment is missing. Nothing was changed; "
                    "restore the file, or start again in a new directory"
                )
            parts.insert(0, self._read_segment(ending[reached]))
            reached = ending[reached].steps[0]
        names = parts[0] if parts else {}
        rows = {name: np.concatenate([part[name] for part in parts]) for name in names}
        return Saved(phase, done, rows, state)

    def _check_no_state_lost(self, chain: int, segments: list[Segment]) -> None:
        """Without a state there can be one first segment of draws, and nothing behind it."""
        phases = {segment.phase for segment in segments}
        if len(phases) > 1 or any(segment.steps[0] > 0 for segment in segments):
            raise CheckpointError(
                f"{self.path}: chain {chain} has draws, but the segment with its state is "
                "missing. Nothing was changed; restore the file, or start again in a new directory"
            )

    def _segments(self, chain: int) -> list[Segment]:
        with _on_disk("list", self.path):
            found = [Segment.named(file.name) for file in sorted(self.path.iterdir())]
        return [segment for segment in found if segment is not None and segment.chain == chain]

    def _write_segment(self, segment: Segment, arrays: dict[str, np.ndarray]) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        content = json.dumps(self._place(segment)).encode() + b"\n" + buffer.getvalue()
        digest = hashlib.sha256(content).hexdigest().encode()
        self._write(segment.name, _MAGIC + digest + b"\n" + content)

    def _place(self, segment: Segment) -> dict[str, Any]:
        """Where a segment belongs, by its name and by the run; as JSON has it."""
        return {"run": self._run, **segment._asdict(), "steps": list(segment.steps)}

    def _read_segment(self, segment: Segment) -> dict[str, np.ndarray]:
        file = self.path / segment.name
        with _on_disk("read", file):
            content = file.read_bytes()
        head, _, body = content.partition(b"\n")
        if not head.startswith(_MAGIC) or (
            hashlib.sha256(body).hexdigest().encode() != head[len(_MAGIC) :]
        ):
            raise CheckpointError(
                f"{file} is damaged: its checksum does not match. Nothing was "
                "changed; restore the file, or start again in a new directory"
            )
        place, _, body = body.partition(b"\n")
        try:
            found = dict(json.loads(place))
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"{file} cannot be read: {error}") from error
        self._check_place(file, self._place(segment), found)
        try:
            with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays.files}
        except (ValueError, OSError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{file} cannot be read: {error}") from error


def _sealed(content: dict[str, Any]) -> bytes:
    """As JSON, with a checksum of itself."""
    plain = json.dumps(content, sort_keys=True)
    checksum = hashlib.sha256(plain.encode()).hexdigest()
    return json.dumps({**content, "checksum": checksum}).encode()
