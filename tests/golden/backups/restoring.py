"""Restores a backup of either kind, and reads what a node on the new directory hands out."""

from pathlib import Path
from typing import Any

from tests.golden.reading import SETTINGS, contents_of, digest
from tests.support.brokers.process import BrokerProcess
from tests.support.command_line import warren

# The commands that make a backup of each kind, and restore it.
COMMANDS = {
    "files": (("backup",), ("restore",)),
    "parquet": (
        ("pipeline", "backup", "--engine", "local"),
        ("pipeline", "restore", "--engine", "local"),
    ),
}
QUEUES = (b"classic", b"lazy")


def restored(kind: str, backup: Path, directory: Path) -> dict[str, Any]:
    """Restore `backup` into `directory`/data and start a node there.

    Returns a digest of the messages of each queue, by its name.
    """
    directory.mkdir(exist_ok=True)
    done = warren(*COMMANDS[kind][1], backup, "--data-dir", directory / "data")
    assert done.returncode == 0, done.stderr
    node = BrokerProcess(directory, *SETTINGS)
    node.start()
    try:
        found = {queue.decode(): digest(contents_of(node, queue)) for queue in QUEUES}
    finally:
        assert node.stop() == 0
    return {"queues": found}
