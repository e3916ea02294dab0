"""Checkpoints: a directory of checksummed segments, nothing executable in it.

    PATH/manifest.json            what run this is; written once
    PATH/lock                     held while a process uses the directory
    PATH/budget-<phase>.json      the budget of a phase of draws
    PATH/chain-<c>-draws-<phase>-<start>-<stop>.seg    rows of draws and statistics
    PATH/chain-<c>-state-<phase>-<stop>.seg            the state after them

Segments are NumPy's npz behind a line with their SHA-256, written to a temporary file, synced and
renamed. A state is written after its draws, and only then is the older state removed: whenever
the process dies, the newest state has all its draws. Draws whose state was never written stay
behind as strays; they are bitwise what the resumed run draws again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from offcut.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows has no such locks: two processes are then told apart by nobody
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
_MAGIC = b"offcut-segment-1 "
_SEGMENT = re.compile(r"chain-(\d+)-(draws|state)-(\d+)-(\d+)(?:-(\d+))?\.seg")


class Saved:
    """Where a chain stands: phase, steps done in it, its rows so far, and its state's leaves."""

    def __init__(self, phase: int, done: int, rows: dict[str, np.ndarray], state: list) -> None:
        self.phase, self.done, self.rows, self.state = phase, done, rows, state


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
            others = sorted(p.name for p in self.path.iterdir() if p.name not in own)
            if others:
                raise CheckpointError(
                    f"{self.path} is not an Offcut checkpoint (it holds {others[0]!r}, and no "
                    "manifest.json); nothing was changed: give an empty or a new directory"
                )
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.path / "lock", "a")  # noqa: SIM115 - held until close
        try:
            if fcntl is not None:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise CheckpointError(
                f"checkpoint {self.path} is in use by another process; wait for it, or give "
                "another path"
            ) from error
        try:
            if manifest.exists():
                self._compare(manifest, identity)
            else:
                self._write("manifest.json", json.dumps({"format": FORMAT, **identity}).encode())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the lock."""
        self._lock.close()

    def _compare(self, manifest: Path, identity: dict[str, Any]) -> None:
        try:
            found = json.loads(manifest.read_text())
            version = found.pop("format")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise CheckpointError(
                f"{manifest} is damaged ({error}); nothing was changed: restore it, or start "
                "again in a new directory"
            ) from error
        if version != FORMAT:
            raise CheckpointError(
                f"{self.path} has checkpoint format {version}, this version writes {FORMAT}; "
                "nothing was changed: resume it with the version that wrote it"
            )
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

    def _write(self, name: str, content: bytes) -> None:
        temporary = self.path / f"{name}.tmp"
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path / name)

    def note_budget(self, phase: int, budget: int) -> None:
        """Remember the budget of a phase."""
        self._write(f"budget-{phase}.json", json.dumps({"budget": budget}).encode())

    def budget(self, phase: int) -> int | None:
        """The budget of a phase, if it was decided before."""
        file = self.path / f"budget-{phase}.json"
        if not file.exists():
            return None
        try:
            return int(json.loads(file.read_text())["budget"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{file} is damaged ({error}); nothing was changed") from error

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
            self._write_segment(f"chain-{chain}-draws-{phase}-{start}-{stop}.seg", rows)
        leaves = {f"leaf{i}": leaf for i, leaf in enumerate(state)}
        name = f"chain-{chain}-state-{phase}-{stop}.seg"
        self._write_segment(name, leaves)
        for older, kind, _, _ in self._segments(chain):
            if kind == "state" and older != name:
                (self.path / older).unlink(missing_ok=True)

    def load(self, chain: int) -> Saved | None:
        """The newest state of a chain with all its rows, or None."""
        segments = self._segments(chain)
        states = [(phase, at[0], name) for name, kind, phase, at in segments if kind == "state"]
        if not states:
            self._check_no_state_lost(chain, segments)
            return None
        phase, done, name = max(states)
        leaves = self._read_segment(name)
        state = [leaves[f"leaf{i}"] for i in range(len(leaves))]
        # From the state backwards: a segment starts where a state was once written, so any that
        # ends here leads on to the beginning, whereas one that starts here may be a stray.
        ending = {
            bounds[1]: (bounds[0], name)
            for name, kind, p, bounds in segments
            if kind == "draws" and p == phase
        }
        parts: list[dict[str, np.ndarray]] = []
        reached = done
        while reached > 0:
            if reached not in ending or ending[reached][0] >= reached:
                raise CheckpointError(
                    f"{self.path}: chain {chain} stands at step {done} of phase {phase}, but no "
                    f"draws end at step {reached}: a segment is missing. Nothing was changed; "
                    "restore the file, or start again in a new directory"
                )
            reached, segment = ending[reached]
            parts.insert(0, self._read_segment(segment))
        names = parts[0] if parts else {}
        rows = {name: np.concatenate([part[name] for part in parts]) for name in names}
        return Saved(phase, done, rows, state)

    def _check_no_state_lost(self, chain: int, segments: list) -> None:
        """Without a state there can be one first segment of draws, and nothing behind it."""
        phases = {phase for _, _, phase, _ in segments}
        if len(phases) > 1 or any(bounds[0] > 0 for *_, bounds in segments):
            raise CheckpointError(
                f"{self.path}: chain {chain} has draws, but the segment with its state is "
                "missing. Nothing was changed; restore the file, or start again in a new directory"
            )

    def _segments(self, chain: int) -> list[tuple[str, str, int, tuple[int, ...]]]:
        found = []
        for file in sorted(self.path.iterdir()):
            match = _SEGMENT.fullmatch(file.name)
            if match and int(match[1]) == chain:
                bounds = tuple(int(g) for g in match.groups()[3:] if g is not None)
                found.append((file.name, match[2], int(match[3]), bounds))
        return found

    def _write_segment(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)  # type: ignore[arg-type]
        content = buffer.getvalue()
        digest = hashlib.sha256(content).hexdigest().encode()
        self._write(name, _MAGIC + digest + b"\n" + content)

    def _read_segment(self, name: str) -> dict[str, np.ndarray]:
        content = (self.path / name).read_bytes()
        head, _, body = content.partition(b"\n")
        if not head.startswith(_MAGIC) or (
            hashlib.sha256(body).hexdigest().encode() != head[len(_MAGIC) :]
        ):
            raise CheckpointError(
                f"{self.path / name} is damaged: its checksum does not match. Nothing was "
                "changed; restore the file, or start again in a new directory"
            )
        try:
            with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays.files}
        except (ValueError, OSError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{self.path / name} cannot be read: {error}") from error
