"""A start refuses a store without definitions; salvage finds its messages in every state."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.test_salvage import everything, salvaged
from tests.support.brokers.process import BrokerProcess
from tests.support.stores.stopped_node import MESSAGES, fingerprint
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.settings import Settings
from warrenmq.server.config.settings import Config
from warrenmq.server.startup.definitions_file import DefinitionsLostError
from warrenmq.server.startup.startup import open_data_directory

pytestmark = pytest.mark.kill


def start(data: Path, accepts_loss: bool = False) -> Broker:
    """Start a node in this process and close everything again."""
    broker = Broker(Settings(), os.urandom, lambda: None)
    config = Config(data_dir=data, accept_lost_definitions=accepts_loss)
    opened = open_data_directory(config, broker, 1_700_000_000_000)
    opened.close()
    return broker


def without_tables(database: Path) -> None:
    database.unlink()
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()


def a_directory(database: Path) -> None:
    database.unlink()
    database.mkdir()
    (database / "inside").touch()


def a_link_to_itself(database: Path) -> None:
    database.unlink()
    database.symlink_to(database)


LOSSES: dict[str, Callable[[Path], object]] = {
    "is missing": Path.unlink,
    "is empty": lambda database: database.write_bytes(b""),
    "is damaged": lambda database: database.write_bytes(b"no database" * 1000),
    "defines nothing": without_tables,
    "is not a file": a_directory,
    "not a file": a_link_to_itself,
}


@pytest.mark.parametrize("cause", LOSSES)
def test_a_start_refuses_and_changes_nothing(data: Path, store: Path, cause: str) -> None:
    for path in data.glob("node.sqlite-*"):
        path.unlink()
    LOSSES[cause](data / "node.sqlite")
    before = fingerprint(store)
    for _ in range(2):
        with pytest.raises(DefinitionsLostError, match=cause) as refused:
            start(data)
        assert "\n" not in str(refused.value)
        assert "--accept-lost-definitions" in str(refused.value)
    assert fingerprint(store) == before
    assert not (data / "lost+found").exists()
    broker = start(data, accepts_loss=True)
    (vhost,) = broker.vhosts.values()
    assert vhost.queues == {}
    if cause != "is missing":
        assert [path.name.partition("-")[2] for path in (data / "lost+found").iterdir()] == [
            "node.sqlite"
        ]


def test_a_first_start_is_none_of_that(tmp_path: Path) -> None:
    assert len(start(tmp_path / "new").vhosts) == 1
    # A node was killed after it had created only the file's name.
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/node.sqlite").touch()
    assert len(start(tmp_path / "empty").vhosts) == 1


def test_salvage_reads_what_a_start_has_put_aside(data: Path, store: Path, tmp_path: Path) -> None:
    for path in data.glob("node.sqlite*"):
        path.unlink()
    node = BrokerProcess(tmp_path / "node", "accept_lost_definitions=true")
    shutil.move(data, tmp_path / "node/data")
    node.start()
    assert node.stop() == 0
    result, found = salvaged(tmp_path / "node/data", tmp_path)
    assert result.losses == [] and result.lost == 0
    # Only the checkpoint knew which of the messages were acked.
    assert result.messages >= MESSAGES
    for number, expected in enumerate(everything().values(), 1):
        assert found[b"salvaged-%d" % number][-len(expected) :] == expected
