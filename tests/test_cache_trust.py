"""What of the cache is believed: nothing that somebody else may have had a hand in, nothing cut short, nothing rotten.

Entries here are a few bytes, which `cache.obtain` treats as it does a library or a cubin (test_engine_trust.py).
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile

import pytest
from build_helpers import OTHER, as_user, forge, in_child, needs_root, own_folder, place

from kineticsim_env.errors import EngineUnavailable
from kineticsim_env.runtime import cache

__all__ = ["place"]  # a fixture


def obtain(name="entry", made=b"built"):
    """Return the content of an entry, made if need be."""

    def make(folder):
        assert folder.stat().st_mode & 0o777 == 0o700
        return made

    return cache.obtain(name, lambda path, content: path.read_bytes(), make)


def no_build(name="entry"):
    """Return the content of an entry that must be there."""
    return cache.obtain(name, lambda path, content: content, lambda folder: pytest.fail("it is built"))


# ---- One entry -----------------------------------------------------------------------------------------------------


def test_an_entry_is_made_once_and_then_believed(place, capsys):
    assert obtain() == b"built" and no_build() == b"built" and obtain(made=b"other") == b"built"
    assert capsys.readouterr().err == ""
    entry = place / "cache" / "entry"
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", "--quiet", "entry.sha256"], cwd=entry.parent, check=True)
    assert entry.stat().st_mode & 0o777 == cache.digest_path(entry).stat().st_mode & 0o777 == 0o644
    assert {path.name for path in entry.parent.iterdir()} == {"entry", "entry.sha256", "entry.lock"}


def link_to_copy(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def other_entry(path):
    """An older entry of ours, of which somebody else made a link under this name."""
    obtain("older", b"older")
    for old, new in ((path.with_name("older"), path), (path.with_name("older.sha256"), cache.digest_path(path))):
        new.unlink()
        os.link(old, new)


def pipe(path):
    path.unlink()
    os.mkfifo(path)


DAMAGES = {
    "other's file": (lambda path: os.chown(path, OTHER, OTHER), "building .*entry again: it belongs to user 12345"),
    "other's digest": (lambda path: os.chown(cache.digest_path(path), OTHER, OTHER), "its digest, it belongs to user"),
    "writable": (lambda path: path.chmod(0o666), "other users can write to it"),
    "group": (lambda path: path.chmod(0o664), "other users can write to it"),
    "writable digest": (lambda path: cache.digest_path(path).chmod(0o646), "its digest, other users can write"),
    "link": (link_to_copy, "it is a link"),
    "linked digest": (lambda path: link_to_copy(cache.digest_path(path)), "it is a link"),
    "another entry": (other_entry, "not what was built"),
    "cut short": (lambda path: path.write_bytes(b"bui"), "not what was built"),
    "rotten": (lambda path: path.write_bytes(b"bvilt"), "not what was built"),
    "empty": (lambda path: path.write_bytes(b""), "not what was built"),
    "no digest": (lambda path: cache.digest_path(path).unlink(), "entry.sha256 is missing"),
    "empty digest": (lambda path: cache.digest_path(path).write_bytes(b""), "not what was built"),
    "pipe": (pipe, "it is no file"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_not_to_be_trusted_is_built_again(place, capsys, damage):
    if "other's" in damage and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    obtain()
    spoil, said = DAMAGES[damage]
    spoil(place / "cache" / "entry")
    assert obtain(made=b"anew") == b"anew"
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert re.search(said, err), err
    assert no_build() == b"anew" and capsys.readouterr().err == ""


def test_what_cannot_be_loaded_is_built_again_and_then_given_up(place, capsys):
    def load(path, content):
        if content != b"good":
            raise OSError("wrong ELF class")

    obtain()
    cache.obtain("entry", load, lambda folder: b"good")
    assert "again: it cannot be loaded: wrong ELF class" in capsys.readouterr().err
    with pytest.raises(EngineUnavailable, match="other was built, but it cannot be loaded: wrong ELF class"):
        cache.obtain("other", load, lambda folder: b"bad")


@pytest.mark.parametrize("moment", ["make", "before 1", "after 1", "before 2", "after 2"])
def test_a_build_that_is_killed_at_any_moment_leaves_nothing_that_is_believed(place, monkeypatch, moment):
    """The file is replaced first, and then its digest."""
    obtain("entry", b"old")
    (place / "cache" / "entry").write_bytes(b"rotten")
    replaced = 0

    def die_at(this):
        if this == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def replace(old, new, really=os.replace):
        nonlocal replaced
        replaced += 1
        die_at(f"before {replaced}")
        really(old, new)
        die_at(f"after {replaced}")

    def build_and_die():
        monkeypatch.setattr(os, "replace", replace)
        cache.obtain("entry", lambda path, content: content, lambda folder: die_at("make") or b"new")

    with pytest.raises(EOFError):  # it dies before it says anything
        in_child(build_and_die)
    if moment == "after 2":
        assert no_build() == b"new"
    assert obtain(made=b"new") == b"new" == no_build()
    left = {path.name for path in (place / "cache").iterdir()}
    assert moment == "after 2" or left == {"entry", "entry.sha256", "entry.lock"}


def test_an_error_while_an_entry_is_made_is_its_own(place):
    """It was said that the entry cannot be written, and the build was begun once more in another folder."""
    tried = []

    def make(folder):
        tried.append(folder)
        return (folder / "no output").read_bytes()

    with pytest.raises(FileNotFoundError, match="no output"):
        cache.obtain("entry", lambda path, content: content, make)
    assert len(tried) == 1
    assert [path.name for path in (place / "cache").iterdir()] == ["entry.lock"]
    assert obtain() == b"built"


def test_a_full_disk_is_reported_and_leaves_nothing(place, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(
        EngineUnavailable, match="cannot be written: no space is left on the disk of .*; free some, or let "
    ):
        obtain()
    for folder in (place / "cache", *(place / "tmp").iterdir()):
        assert [path.name for path in folder.iterdir()] == ["entry.lock"]


# ---- Folders, and other users --------------------------------------------------------------------------------------


@needs_root
def test_a_cache_of_another_user_is_not_used(place, capsys):
    forge(place / "cache" / "entry", b"foreign")
    os.chown(place / "cache", OTHER, OTHER)
    assert obtain() == b"built" and (own_folder(place) / "entry").exists()
    err = capsys.readouterr().err
    assert f"{place / 'cache'} is not used: it belongs to user 12345; using {own_folder(place)}" in err
    assert no_build() == b"built"


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_cache_in_which_others_can_put_files_is_not_used(place, capsys, mode):
    forge(place / "cache" / "entry", b"foreign")
    (place / "cache").chmod(mode)
    assert obtain() == b"built" and (own_folder(place) / "entry").exists()
    assert "is not used: other users can write to it; using" in capsys.readouterr().err


@needs_root
def test_users_share_a_sticky_folder_without_trusting_each_other(place):
    """Each has a folder of his own."""
    (place / "cache").chmod(0o1777)
    for user, made in ((OTHER + 1, b"first"), (OTHER, b"second")):
        found, err = as_user(user, lambda made=made: obtain(made=made))
        assert found == made, found
        assert f"using {own_folder(place, user)}" in err
    assert as_user(OTHER, no_build)[0] == b"second"
    assert as_user(OTHER + 1, no_build)[0] == b"first"
    assert obtain(made=b"root") == b"root" == (own_folder(place) / "entry").read_bytes()
    assert not list((place / "cache").iterdir())


@needs_root
@pytest.mark.parametrize("planted", ["entry", "entry.sha256", "entry.lock"])
def test_what_another_user_planted_in_a_sticky_folder_is_got_round(place, planted):
    """It can be a folder, too, and it may be impossible to remove."""
    (place / "cache").chmod(0o1777)
    (place / "cache" / planted).mkdir()
    (place / "cache" / planted / "full").touch()
    for path in (place / "cache" / planted, place / "cache" / planted / "full"):
        os.chown(path, OTHER + 1, OTHER + 1)
    result, err = as_user(OTHER, obtain)
    assert result == b"built", result
    assert str(own_folder(place, OTHER)) in err


@needs_root
def test_a_lock_that_another_user_holds_is_not_waited_for(place):
    (place / "cache").chmod(0o1777)
    lock = place / "cache" / "entry.lock"
    lock.touch()
    lock.chmod(0o666)
    os.chown(lock, OTHER + 1, OTHER + 1)
    result, err = as_user(OTHER, obtain)
    assert result == b"built" and f"{place / 'cache'} is not used: other users can write to it" in err


@needs_root
def test_a_read_only_cache_that_holds_what_is_needed_is_used(place):
    """Root has built it for everybody."""
    obtain()
    (place / "cache").chmod(0o555)
    assert as_user(OTHER, no_build) == (b"built", "")
    assert not own_folder(place, OTHER).exists()

    result, err = as_user(OTHER, lambda: obtain("new", b"new"))
    assert result == b"new" and (own_folder(place, OTHER) / "new").read_bytes() == b"new"
    assert "it cannot be written (Permission denied); using" in err
    assert as_user(OTHER, lambda: no_build("new"))[0] == b"new"

    os.chown(place / "cache" / "entry", OTHER + 1, OTHER + 1)
    result, err = as_user(OTHER, lambda: obtain(made=b"own"))
    assert result == b"own" and "entry is not used: it belongs to user 12346" in err


@needs_root
def test_a_link_to_the_cache_cannot_be_turned_between_the_look_and_the_load(place, monkeypatch):
    """It is followed once."""
    obtain()
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "entry").write_bytes(b"foreign")
    link = place / "link"
    link.symlink_to("cache")
    monkeypatch.setenv("KINETICSIM_CACHE", str(link))

    def load(path, content):
        link.unlink()
        link.symlink_to("elsewhere")
        return path.read_bytes()

    assert cache.obtain("entry", load, lambda folder: pytest.fail("it is built")) == b"built"


def test_a_file_system_that_lets_everybody_write_is_not_used(place, monkeypatch, capsys):
    """As FAT does: modes and owners there are what they are."""

    class Loose:
        def __init__(self, **where):
            self._file = open(where["dir"] / "probe", "w+b")
            os.fchmod(self._file.fileno(), 0o777 if where["dir"].name == "cache" else 0o600)

        def __enter__(self):
            return self._file

        def __exit__(self, *_):
            self._file.close()

    monkeypatch.setattr(tempfile, "TemporaryFile", Loose)
    assert cache.cache_dir() == own_folder(place)
    assert "other users can write" in capsys.readouterr().err
