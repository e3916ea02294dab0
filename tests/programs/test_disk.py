"""Programs on disk: whole or not there, ours or not read, few enough; and never an error."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import time

import platformdirs
import pytest

from offcut.programs import disk

KEY, OTHER = "0" * 64, "a" * 64
PROGRAM = bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv(disk.VARIABLE, str(tmp_path / "of" / "programs"))
    return tmp_path / "of" / "programs"


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_what_was_written_is_read_for_its_owner_alone(directory):
    assert disk.read(KEY) is None
    assert not directory.exists()
    assert disk.write(KEY, PROGRAM)
    assert disk.read(KEY) == PROGRAM
    assert disk.read(OTHER) is None
    (file,) = directory.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_program_is_written_over(directory):
    disk.write(KEY, PROGRAM)
    disk.write(KEY, b"new")
    assert disk.read(KEY) == b"new"
    assert len(names(directory)) == 1


@pytest.mark.parametrize("bytes_left", [0, 1, 15, 16, 17, 47, 48, 49, 5000, len(PROGRAM) + 47])
def test_a_torn_file_is_not_read_and_removed(directory, bytes_left):
    disk.write(KEY, PROGRAM)
    (file,) = directory.iterdir()
    assert file.stat().st_size == len(PROGRAM) + 48
    os.truncate(file, bytes_left)
    assert disk.read(KEY) is None
    assert names(directory) == []


@pytest.mark.parametrize("place", [0, 15, 16, 47, 48, 3000, -1])
def test_one_bit_is_enough(directory, place):
    disk.write(KEY, PROGRAM)
    (file,) = directory.iterdir()
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)
    assert disk.read(KEY) is None
    assert names(directory) == []


def test_a_program_under_the_name_of_another_is_not_read(directory):
    disk.write(KEY, PROGRAM)
    (file,) = directory.iterdir()
    file.rename(directory / f"{OTHER}.program")
    assert disk.read(OTHER) is None


# Whose it is.


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_directory_that_others_may_write_to_is_not_used(directory, mode):
    disk.write(KEY, PROGRAM)
    directory.chmod(mode)
    assert disk.read(KEY) is None
    assert not disk.write(OTHER, PROGRAM)
    assert disk.objection(directory) == "others may write to it (chmod go-w)"
    directory.chmod(0o700)
    assert disk.read(KEY) == PROGRAM  # what is there was not removed
    assert len(names(directory)) == 1


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_to_is_not_read(directory, mode):
    disk.write(KEY, PROGRAM)
    (directory / f"{KEY}.program").chmod(mode)
    assert disk.read(KEY) is None


def test_what_belongs_to_somebody_else_is_not_used(directory, monkeypatch):
    disk.write(KEY, PROGRAM)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert disk.read(KEY) is None
    assert not disk.write(OTHER, PROGRAM)
    assert disk.objection(directory) == "it belongs to somebody else"
    assert names(directory) == [f"{KEY}.program"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_somebody_else_in_our_directory_is_not_read(directory):
    disk.write(KEY, PROGRAM)
    os.chown(directory / f"{KEY}.program", os.geteuid() + 1, -1)
    assert disk.read(KEY) is None


def test_a_link_is_not_followed(directory, tmp_path):
    disk.write(KEY, PROGRAM)
    file = directory / f"{KEY}.program"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert disk.read(KEY) is None
    assert (tmp_path / "elsewhere").exists()


# Places where nothing can be kept.


def test_nothing_is_written_where_it_is_off(directory, monkeypatch):
    for off in ("off", "OFF", " 0", "no", "none", "False"):
        monkeypatch.setenv(disk.VARIABLE, off)
        assert disk.place() is None
        assert not disk.write(KEY, PROGRAM)
        assert disk.read(KEY) is None
    assert not directory.exists()


def test_the_place_is_the_users_cache_or_another(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    usual = platformdirs.user_cache_path("offcut", appauthor=False) / "programs"
    for on in ("", "1", "on", "True"):
        monkeypatch.setenv(disk.VARIABLE, on)
        assert disk.place() == usual
    monkeypatch.delenv(disk.VARIABLE)
    assert disk.place() == usual
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(disk.VARIABLE, "~/elsewhere")
    assert disk.place() == tmp_path / "elsewhere"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(disk.VARIABLE, "here")
    assert disk.place() == tmp_path / "here"


def test_without_a_home_there_is_no_cache(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user without an entry
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for named in ("", "~/programs"):
        monkeypatch.setenv(disk.VARIABLE, named)
        assert disk.place() is None
        assert not disk.write(KEY, PROGRAM)
    assert list(tmp_path.iterdir()) == []


def test_a_file_may_stand_where_a_directory_should(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("mine")
    for place in (file, file / "below"):
        monkeypatch.setenv(disk.VARIABLE, str(place))
        assert disk.read(KEY) is None
        assert not disk.write(KEY, PROGRAM)
        assert disk.objection(place)
        assert disk.files(place) == []
    assert file.read_text() == "mine"


def test_a_directory_may_stand_where_a_file_should(directory):
    (directory / f"{KEY}.program" / "inside").mkdir(parents=True, mode=0o700)
    directory.chmod(0o700)
    assert disk.read(KEY) is None
    assert not disk.write(KEY, PROGRAM)
    assert names(directory) == [f"{KEY}.program"]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EDQUOT, errno.ENOSPC])
@pytest.mark.parametrize("call", ["mkdir", "open", "replace", "utime", "unlink", "scandir"])
def test_whatever_a_file_system_refuses_is_no_error(directory, monkeypatch, number, call):
    disk.write(KEY, PROGRAM)

    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        disk.write(OTHER, PROGRAM)
        disk.write(KEY, PROGRAM)
        assert disk.read(KEY) == PROGRAM
        disk.remove(KEY)
    assert disk.read(OTHER) in (None, PROGRAM)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_read(directory):
    disk.write(KEY, PROGRAM)
    directory.chmod(0o500)
    assert disk.read(KEY) == PROGRAM
    assert not disk.write(OTHER, PROGRAM)
    directory.chmod(0o700)


def test_a_disk_that_is_full_in_mid_file_keeps_no_part_of_it(directory):
    """Files of this process may have 4,096 bytes for a moment: the write fails where that ends."""
    disk.write(KEY, b"small")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        assert not disk.write(OTHER, PROGRAM)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(directory) == [f"{KEY}.program"]
    assert disk.read(KEY) == b"small"


# How much there is.


def keys(count):
    return [f"{number:064x}" for number in range(count)]


def test_what_was_not_used_for_longest_goes_first(directory, monkeypatch):
    size = 1000
    monkeypatch.setattr(disk, "LIMIT", 5 * (size + 48))
    for age, key in enumerate(keys(5)):
        disk.write(key, bytes(size))
        os.utime(directory / f"{key}.program", (0, 1000.0 + age))
    disk.read(keys(1)[0])  # the oldest, used now
    disk.write(OTHER, bytes(size))
    there = {key for key in [*keys(5), OTHER] if disk.read(key)}
    assert there == {keys(5)[0], *keys(5)[2:], OTHER}
    disk.write(KEY.replace("0", "f"), bytes(3 * size))
    assert sum(file.size for file in disk.files(directory)) <= disk.LIMIT


def test_a_program_beyond_the_limit_throws_nothing_out(directory, monkeypatch):
    disk.write(KEY, PROGRAM)
    monkeypatch.setattr(disk, "LIMIT", len(PROGRAM) + 48)
    assert not disk.write(OTHER, PROGRAM + b"1")
    assert disk.read(KEY) == PROGRAM


def test_only_files_of_the_cache_are_cleared(directory):
    disk.write(KEY, PROGRAM)
    for name in ("thesis.tex", f"{KEY}.program.txt", "a.part"):
        (directory / name).write_text("mine")
    (directory / f"{KEY}.abc_1.part").write_text("torn")
    assert len(disk.clear(directory)) == 2
    assert names(directory) == sorted(["thesis.tex", f"{KEY}.program.txt", "a.part"])
    assert disk.clear(directory / "nowhere") == []


# Several processes, without JAX: they start at once.

WRITER = """
import os, sys
from offcut.programs import disk
for turn in range(int(sys.argv[1])):
    for key in ("b" * 64, "c" * 64):
        content = bytes([turn % 256]) * 200_000
        disk.write(key, content)
        found = disk.read(key)
        assert found is None or len(set(found)) == 1 and len(found) == 200_000
        if os.getpid() % 2:
            disk.remove(key)
print("done")
"""
KILLED = """
import sys, time
from offcut.programs import disk
def slow(*_):
    print("writing", flush=True)
    time.sleep(60)
disk.os.replace = slow
disk.write("b" * 64, bytes(100_000))
"""


def start(code, *arguments):
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_processes_that_write_and_remove_the_same_do_not_disturb_each_other(directory):
    children = [start(WRITER, "100") for _ in range(3)]
    for child in children:
        assert child.communicate(timeout=60) == ("done\n", "")
    assert not [name for name in names(directory) if name.endswith(".part")]


def test_a_process_killed_in_mid_write_leaves_what_a_later_one_removes(directory):
    with start(KILLED) as child:
        assert child.stdout.readline() == "writing\n"
        child.send_signal(signal.SIGKILL)
    (part,) = directory.iterdir()
    assert part.name.endswith(".part")
    assert disk.read("b" * 64) is None
    disk.write(KEY, PROGRAM)
    assert part.exists()  # another process might still be writing it
    os.utime(part, (0, time.time() - disk.ABANDONED - 1))
    disk.write(OTHER, PROGRAM)
    assert names(directory) == [f"{KEY}.program", f"{OTHER}.program"]
