from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mcplumb.errors import AuthorizationError, UsageError
from mcplumb.stores.token_store import FileTokens, KeyringTokens, default_token_store
from tests.kit.loop import turns


class MemoryKeyring:
    """A keyring as the package ``keyring`` has them."""

    priority = 5

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, password: str) -> None:
        self.kept[service, name] = password

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


@pytest.fixture(params=["files", "keyring"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileTokens:
    folder = tmp_path / "state" / "tokens"
    return FileTokens(folder) if request.param == "files" else KeyringTokens(folder, MemoryKeyring())


def test_entries_are_kept(store: FileTokens) -> None:
    assert store.load("a") is None
    assert store.names() == []
    store.save("a", b'"one"')
    store.save("b", b'"two"')
    store.save("a", b'"three"')
    assert (store.load("a"), store.load("b"), store.names()) == (b'"three"', b'"two"', ["a", "b"])
    store.delete("a")
    store.delete("a")
    assert (store.load("a"), store.names()) == (None, ["b"])


def test_an_entry_may_have_an_end(store: FileTokens) -> None:
    store.save("a", b'"one"', ends_at=1.5)
    store.save("b", b'"two"')
    assert store.ends() == {"a": 1.5, "b": None}
    assert FileTokens(store.folder).ends() == {"a": 1.5, "b": None}, "That opens no keyring."
    store.save("a", b'"three"')
    assert store.ends() == {"a": None, "b": None}


@pytest.mark.req("AUT-8")
def test_nobody_else_can_read_them(store: FileTokens) -> None:
    old = os.umask(0)
    try:
        store.save("a", b"secret")
    finally:
        os.umask(old)
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    for path in store.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert isinstance(store, KeyringTokens) is (b"c2VjcmV0" not in path.read_bytes())


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    store = FileTokens(tmp_path / "tokens")
    store.save("a", b"secret")
    [path] = store.folder.glob("*.json")
    path.chmod(mode)
    with pytest.raises(UsageError, match="chmod go="):
        store.load("a")


@pytest.mark.req("AUT-8")
def test_the_tokens_of_another_user_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sudo, the home folder may still be that of the user."""
    store = FileTokens(tmp_path / "tokens")
    store.save("a", b"secret")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(UsageError, match=f"tokens of another user, number {owner}\\. Run this as that user"):
        store.load("a")


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match="other users may read or change it"):
        FileTokens(tmp_path).save("a", b"secret")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    store = FileTokens(tmp_path / "tokens")
    store.save("a", b"secret")
    [path] = store.folder.glob("*.json")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AuthorizationError, match="symbolic links"):
        store.load("a")


@pytest.mark.parametrize("content", [b"", b"{", b'{"name": "other", "data": "YQ=="}', b"\xff"])
def test_a_file_that_cannot_be_read_counts_as_missing(tmp_path: Path, content: bytes) -> None:
    store = FileTokens(tmp_path / "tokens")
    store.save("a", b"secret")
    [path] = store.folder.glob("*.json")
    path.write_bytes(content)
    assert store.load("a") is None


def test_a_failed_write_leaves_the_old_entry_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileTokens(tmp_path / "tokens")
    store.save("a", b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AuthorizationError, match="No space"):
        store.save("a", b"new")
    assert store.load("a") == b"old"
    assert len(list(store.folder.iterdir())) == 1


async def test_a_lock_excludes_others(store: FileTokens) -> None:
    order = []
    first, others = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with store.locked("a"):
            order.append("first")
            first.set()
            await others.wait()
            await turns()
            order.append("released")

    async def wait() -> None:
        await first.wait()
        async with store.locked("b"):
            order.append("another entry")
        others.set()
        async with store.locked("a"):
            order.append("second")

    await asyncio.gather(hold(), wait())
    assert order == ["first", "another entry", "released", "second"]


async def test_a_process_that_got_the_lock_holds_it_until_it_ends(tmp_path: Path) -> None:
    store = FileTokens(tmp_path / "tokens")
    async with store.locked("a") as lock:
        child = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", "import sys; sys.stdin.read()"],
            stdin=subprocess.PIPE,
            pass_fds=[lock.descriptor],
        )
    waiting = asyncio.ensure_future(_take(store))
    await turns()
    assert not waiting.done()
    child.kill()
    await asyncio.to_thread(child.communicate)
    await waiting


async def _take(store: FileTokens) -> None:
    async with store.locked("a"):
        pass


def test_the_keyring_is_used_where_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = pytest.importorskip("keyring")
    backend = MemoryKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: backend)
    assert isinstance(default_token_store(tmp_path), KeyringTokens)
    monkeypatch.setenv("MCPLUMB_KEYRING", "0")
    assert type(default_token_store(tmp_path)) is FileTokens
    monkeypatch.delenv("MCPLUMB_KEYRING")
    backend.priority = 0
    assert type(default_token_store(tmp_path)) is FileTokens
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert type(default_token_store(tmp_path)) is FileTokens


def test_a_keyring_that_cannot_be_found_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("no bus")

    monkeypatch.setattr(pytest.importorskip("keyring"), "get_keyring", fail)
    assert type(default_token_store(tmp_path)) is FileTokens


def test_tokens_from_a_time_without_a_keyring_are_of_use(tmp_path: Path) -> None:
    """The keyring may be installed later, or be out of reach for a while, as over SSH."""
    keyring = MemoryKeyring()
    files, store = FileTokens(tmp_path / "tokens"), KeyringTokens(tmp_path / "tokens", keyring)
    files.save("a", b"first")
    assert store.load("a") == b"first"
    store.save("a", b"second")
    assert (store.load("a"), files.load("a"), files.is_elsewhere("a")) == (b"second", None, True)
    files.save("a", b"third")
    assert (store.load("a"), files.is_elsewhere("a")) == (b"third", False), "What was kept last counts."
    store.delete("a")
    assert (store.load("a"), keyring.kept, files.names()) == (None, {}, [])
    assert not files.is_elsewhere("a")


class LockedKeyring:
    """Refuses everything."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        def refuse(*arguments: str) -> None:
            raise RuntimeError("The collection is locked.")

        return refuse


def refused(operation: Callable[[], object]) -> str:
    with pytest.raises(AuthorizationError) as caught:
        operation()
    assert caught.value.reason == "store"
    return str(caught.value)


def test_a_keyring_that_refuses(tmp_path: Path) -> None:
    store = KeyringTokens(tmp_path / "names", LockedKeyring())
    assert refused(lambda: store.load("a")) == "The keyring cannot be read: The collection is locked."
    assert "secret" not in refused(lambda: store.save("a", b"secret"))
    assert "locked" in refused(lambda: store.delete("a"))


async def test_a_disk_that_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = FileTokens(tmp_path / "file" / "tokens")
    assert not store.has("a")
    assert "Not a directory" in refused(lambda: store.load("a"))
    assert "Not a directory" in refused(lambda: store.save("a", b"secret"))
    assert "Not a directory" in refused(lambda: store.delete("a"))
    with pytest.raises(AuthorizationError, match="cannot be locked"):
        async with store.locked("a"):
            pass
