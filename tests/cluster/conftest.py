"""The etcd that the tests of a cluster share."""

from tests.support.etcd import cluster_name, etcd, gateway, own_etcd

__all__ = ["cluster_name", "etcd", "gateway", "own_etcd"]
