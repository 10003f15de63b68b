"""Watches in etcd who is the master of each mirrored queue, and when that changes."""

import base64
import json
import subprocess
import threading
from types import TracebackType
from typing import Self

from simulator.checker.events import MasterReport
from simulator.checker.history import now_us
from tests.cluster.nodes.real_cluster import CLIENT, CLUSTER, RealCluster
from tests.support.cluster.etcd_parties import CLIENTS
from tests.support.cluster.networks import text_of
from warrenmq.cluster.groups.group import decode_group
from warrenmq.vocabulary.names import name_text

_PREFIX = f"/warren/{CLUSTER}/q/%2F/"
_DELETED = 1


class MasterWatch:
    """Collects a report for each change of a record; `etcdctl` survives etcd's restarts.

    The first queue of a name is reported as NAME, the next one after its deletion as NAME~2.
    """

    def __init__(self, cluster: RealCluster) -> None:
        self.reports: list[MasterReport] = []
        self._deletions: dict[str, int] = {}
        address = cluster.network.reach(CLIENT, cluster.members[0].name, CLIENTS)
        self._command = [
            *cluster.network.prefix(CLIENT), "etcdctl", "--endpoints", f"http://{text_of(address)}",
            "watch", "--prefix", _PREFIX, "-w", "json",
        ]  # fmt: skip

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at_us = now_us()
            for event in json.loads(line).get("Events", ()):
                self._take(event, at_us)

    def _take(self, event: dict[str, object], at_us: int) -> None:
        record = event["kv"]
        assert isinstance(record, dict)
        queue = base64.b64decode(record["key"]).decode().removeprefix(_PREFIX)
        number = self._deletions.get(queue, 0)
        if event.get("type") == _DELETED:
            self._deletions[queue] = number + 1
            return
        group_text = json.loads(base64.b64decode(record["value"])).get("group")
        if group_text:
            group = decode_group(base64.b64decode(group_text))
            name = f"{queue}~{number + 1}" if number else queue
            node = name_text(group.master_node).partition("@")[0]
            self.reports.append(MasterReport(at_us, name, group.epoch, node))
