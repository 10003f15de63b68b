"""A start moves a path of the wrong kind (file, directory, looping link) to lost+found."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.settings import Settings
from warrenmq.offline.check import check_directory
from warrenmq.offline.problems import NO_DIRECTORY, NOT_OURS
from warrenmq.server.config.settings import Config
from warrenmq.server.startup.startup import open_data_directory
from warrenmq.store.disk.files import load_store_id, set_aside_strange
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.disk.store_reader import read_store
from warrenmq.store.settings import StoreSettings


def a_file(path: Path) -> None:
    path.write_bytes(b"somebody's")


def a_directory(path: Path) -> None:
    path.mkdir()
    (path / "somebody's").touch()


def a_loop(path: Path) -> None:
    path.symlink_to(path)


def a_broken_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def start(data: Path) -> Broker:
    """Start a node in this process and close everything again."""
    broker = Broker(Settings(), os.urandom, lambda: None)
    open_data_directory(Config(data_dir=data), broker, 1_700_000_000_000).close()
    return broker


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory after a node's first start."""
    start(tmp_path / "data")
    return tmp_path / "data"


STORE = "msg_stores/vhosts/1"
PLACES = [
    *[
        (f"{STORE}/{name}", make)
        for name in (
            "journal",
            "queues",
            "msg_store_persistent",
            "msg_store_transient",
            "lost+found",
        )
        for make in (a_file, a_loop)
    ],
    (f"{STORE}/journal", a_broken_link),
    *[
        (f"{STORE}/{name}", make)
        for name in ("store_id", "checkpoint", "checkpoint.previous")
        for make in (a_directory, a_loop)
    ],
    (f"{STORE}/queues/5", a_file),
    (f"{STORE}/queues/5", a_loop),
    (f"{STORE}/journal/7.wal", a_directory),
    (f"{STORE}/journal/7.wal", a_loop),
    (f"{STORE}/msg_store_persistent/3.rdq", a_directory),
    (f"{STORE}/msg_store_persistent/3.rdq", a_loop),
]


@pytest.mark.parametrize(
    ("place", "make"), PLACES, ids=lambda value: getattr(value, "__name__", value)
)
def test_what_is_of_another_kind_is_put_aside(
    data: Path, place: str, make: Callable[[Path], None]
) -> None:
    path = data / place
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
    make(path)
    checked = check_directory(data)
    assert any(path.name in problem.text for problem in checked.problems), checked.problems
    start(data)
    kept = [kept.name for kept in (data / STORE / "lost+found").iterdir()]
    assert any(name.startswith(path.name) for name in kept), kept
    # The second start finds nothing strange.
    assert not [problem for problem in check_directory(data).problems if problem.kind == NOT_OURS]
    start(data)
    assert [name.name for name in (data / STORE / "lost+found").iterdir()] == kept


@pytest.mark.parametrize("place", ["lost+found", "msg_stores", "msg_stores/vhosts", STORE])
@pytest.mark.parametrize("make", [a_file, a_loop])
def test_above_the_vhosts_too(data: Path, place: str, make: Callable[[Path], None]) -> None:
    path = data / place
    if path.exists():
        shutil.rmtree(path)
    make(path)
    if place == STORE:
        checked = check_directory(data)
        assert set(checked.problem_counts) == {NOT_OURS, NO_DIRECTORY}
    start(data)
    assert path.is_dir()
    assert any(path.name in kept.name for kept in (data / "lost+found").iterdir())


def test_a_link_to_a_directory_elsewhere_is_one(data: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "other disk"
    shutil.move(data / STORE / "queues", elsewhere)
    (data / STORE / "queues").symlink_to(elsewhere)
    start(data)
    assert (data / STORE / "queues").is_symlink()
    assert not (data / STORE / "lost+found").exists()


def test_a_file_system_that_does_not_answer_is_no_strange_one(data: Path) -> None:
    """A path that cannot be read stays in its place."""
    store = data / STORE
    files = LocalFileSystem(store)

    class Unreadable(LocalFileSystem):
        def list_names(self, path: str) -> list[str]:
            if path == "queues":
                raise OSError(5, "broken", path)
            return super().list_names(path)

    broken = Unreadable(store)
    with pytest.raises(OSError, match="broken"):
        set_aside_strange(broken)
    broken.release()
    assert set_aside_strange(files) == []
    read_store(files, load_store_id(files), StoreSettings(4096))
    files.release()
