"""The fixtures of etcd for the tests of what stands on it."""

from tests.support.etcd import cluster_name, etcd, gateway, own_etcd

__all__ = ["cluster_name", "etcd", "gateway", "own_etcd"]
