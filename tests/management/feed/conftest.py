"""The etcd of clusters whose nodes a feed follows."""

from tests.support.etcd import etcd

__all__ = ["etcd"]
