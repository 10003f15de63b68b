"""Parquet backups of a vhost with messages of all kinds, made and restored without a JVM."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.brokers.process import BrokerProcess
from tests.support.kills.mixed_vhost import (
    FAN_QUEUES,
    LEVELS,
    SETTINGS,
    Expected,
    MixedVhost,
    fill,
)
from tests.support.spark.inline import InlineSpark
from warrenmq.offline.backup import back_up
from warrenmq.pipeline.backups.job import BackupResult, backup
from warrenmq.pipeline.backups.restore_job import RestoreResult, restore
from warrenmq.wire.properties import Properties


@dataclass
class Backups:
    """Backups of one node at three moments, from three kinds of source, and its messages then."""

    live: Path
    increment: Path
    stopped: Path
    of_files: Path
    data: Path
    first: dict[bytes, list[Expected]]
    last: dict[bytes, list[Expected]]
    results: dict[str, BackupResult]


def run_backup(source: str | Path, target: str | Path, **more: Any) -> BackupResult:
    more.setdefault("spark", InlineSpark())
    return backup(source, target, **more)


def run_restore(source: str | Path, target: Path, **more: Any) -> RestoreResult:
    more.setdefault("spark", InlineSpark())
    return restore(source, target, **more)


def damage_one_message(data: Path) -> None:
    """Flip a bit of a body in the largest segment of the first vhost of a data directory."""
    segment = max(
        (data / "msg_stores/vhosts/1/queues").rglob("*.idx"), key=lambda path: path.stat().st_size
    )
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2] ^= 1
    segment.write_bytes(raw)


def make_backups(directory: Path) -> Backups:
    """Run a node and make its backups below `directory`."""
    node = BrokerProcess(directory / "node", *SETTINGS)
    node.start()
    try:
        vhost = fill(node)
        first = {name: list(messages) for name, messages in vhost.queues.items()}
        results = {"live": run_backup(node.uri, directory / "live")}
        _go_on(vhost)
        results["increment"] = run_backup(
            node.uri, directory / "increment", base=directory / "live"
        )
        vhost.peer.drop()
    finally:
        node.kill()
    data = node.directory / "data"
    results["stopped"] = run_backup(data, directory / "stopped")
    back_up(data, directory / "files")
    results["of_files"] = run_backup(directory / "files", directory / "of_files")
    return Backups(
        live=directory / "live",
        increment=directory / "increment",
        stopped=directory / "stopped",
        of_files=directory / "of_files",
        data=data,
        first=first,
        last=vhost.queues,
        results=results,
    )


def _go_on(vhost: MixedVhost) -> None:
    """Change the vhost between two backups: consume, publish, and replace a queue by a new one."""
    vhost.take(b"small", 1000, 4)
    vhost.take(b"large", 20, 2)
    vhost.take(LEVELS, 100, 3)
    for number in range(300):
        vhost.publish(b"small", number)
    for number in range(20):
        vhost.publish(b"", 30_000 + number, exchange=b"fan-out", queues=FAN_QUEUES)
        vhost.publish(LEVELS, number, Properties(delivery_mode=2, priority=number % 7).encode())
    vhost.channel.delete(b"typed")
    vhost.declare(b"typed")
    vhost.publish(b"typed", 77)
    vhost.sync()
