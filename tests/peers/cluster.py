"""A broker that is a cluster, as a suite of a client sees it: one address, and queues elsewhere.

The suite's node has so many queues that a new one goes to another node by `min-masters`; only
exclusive queues live with their connection.
"""

from pathlib import Path

from bench.clusters import WarrenCluster
from warrenmq.perf.client import CHANNEL, Client
from warrenmq.perf.options import parse_uri
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.methods import QueueDeclare

# More than a suite has at any moment.
_BALLAST = 400
_LOCATOR = "queue_master_locator=min-masters"


class ElsewhereBroker:
    """A node of a cluster that holds no queue of the suite; takes the arguments of a `Broker`."""

    def __init__(
        self, directory: Path, cores: set[int], settings: tuple[str, ...], port: int | None
    ) -> None:
        assert not cores, "a cluster is not pinned"
        self._cluster = WarrenCluster(directory, (*settings, _LOCATOR), port)

    def start(self) -> None:
        """Start the cluster, and give the suite's node the queues that keep others away."""
        self._cluster.start()
        client = Client(parse_uri(self._cluster.nodes[0].uri), "peers", 60.0)
        here = encode_table(fields_from_python({"x-queue-master-locator": "client-local"}))
        for number in range(_BALLAST):
            client.send(
                CHANNEL,
                QueueDeclare(queue=b"ballast-%d" % number, durable=True, arguments=here),
            )
        for _ in range(_BALLAST):
            client.receive()
        client.close()

    def stop(self) -> None:
        """Kill the cluster."""
        self._cluster.stop()
