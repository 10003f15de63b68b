"""The configuration of a worker, from that of all."""

from dataclasses import replace
from pathlib import Path

from warrenmq.server.config.load import load
from warrenmq.server.workers.worker import WorkerPlace, as_worker

NAMES = ("a@h", "a-1@h", "a-2@h", "a-3@h")
STORE = WorkerPlace(0, NAMES, "http://127.0.0.1:1", "u", "p", (("", 5672),), ())


def place(number: int) -> WorkerPlace:
    return WorkerPlace(number, *[getattr(STORE, name) for name in STORE.__struct_fields__[1:]])


def test_workers_differ_in_name_directory_and_ports() -> None:
    config = load(
        environment={},
        settings=["node_name=a@h", "data_dir=/d", "log.file=x.log", "management.tcp.port=80"],
    )
    first, second = as_worker(config, place(0)), as_worker(config, place(1))
    assert (first.node_name, second.node_name) == ("a@h", "a-1@h")
    assert (first.data_dir, second.data_dir) == (Path("/d"), Path("/d/workers/1"))
    assert (first.log.file, second.log.file) == (Path("x.log"), Path("x-1.log"))
    assert (first.log.writer, second.log.writer) == ("worker 0", "worker 1")
    assert first.cluster == second.cluster
    assert (first.cluster.name, first.cluster.etcd) == ("a@h", ("http://127.0.0.1:1",))
    wheres = [
        [each.where for each in worker.management.api_listeners()]
        + [each.where for each in worker.prometheus.metrics_listeners()]
        for worker in (first, second)
    ]
    assert wheres == [["*:80", "127.0.0.1:15692"], ["*:81", "127.0.0.1:15693"]]


def test_workers_share_the_memory_of_the_machine() -> None:
    relative = as_worker(load(environment={}), place(1)).broker
    assert relative.vm_memory_high_watermark_relative == 0.1
    assert relative.vm_memory_high_watermark_absolute == -1
    given = ["vm_memory_high_watermark.absolute=4GB"]
    absolute = as_worker(load(environment={}, settings=given), place(1)).broker
    assert absolute.vm_memory_high_watermark_absolute == 1_000_000_000


def test_worker_without_metrics_has_no_http() -> None:
    config = load(environment={}, settings=["prometheus.listen=off"])
    assert as_worker(config, place(1)).management.is_off
    assert not as_worker(config, place(0)).management.is_off


def test_workers_of_a_cluster_on_etcd_have_ports_for_nodes_in_a_row() -> None:
    config = load(
        environment={}, settings=["cluster.name=shop", "cluster.etcd=http://10.0.0.1:2379"]
    )
    advertised = replace(config, cluster=replace(config.cluster, advertise=("h", 4000)))
    etcd = replace_url(place(2))
    assert as_worker(config, etcd).cluster == replace(config.cluster, listen=("", 25674))
    assert as_worker(advertised, etcd).cluster.advertise == ("h", 4002)


def replace_url(given: WorkerPlace) -> WorkerPlace:
    return WorkerPlace(given.number, given.names, "", "", "", given.tcp_listeners, ())
