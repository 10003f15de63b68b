"""The operations of etcd that carry out changes of definitions in one transaction.

A transaction of etcd may touch a key only once, and a key that it deletes and writes would keep its
birth. So changes of one key are merged: the last one counts.
"""

from collections.abc import Iterable

from warrenmq.broker.definitions.kinds import KIND_OF
from warrenmq.broker.definitions.metadata import Change, DeleteVhost, PutQueue
from warrenmq.cluster.metadata.keys import NAMES_OF_VHOST, key_of, prefix_of
from warrenmq.cluster.metadata.operations import Operation, RawDelete, RawPut, end_of
from warrenmq.cluster.metadata.values import value_of

# Changes of definitions, and writes of records.
Write = Change | RawPut | RawDelete


def operations_of(cluster: str, writes: Iterable[Write], lease: int = 0) -> list[Operation]:
    """The operations for `writes`, in order; exclusive queues get the `lease`.

    Raises ValueError if something is deleted and then written again: it would have to be another
    life of it, and one transaction cannot make that.
    """
    operations: dict[bytes, RawPut | RawDelete] = {}
    for write in writes:
        for operation in _operations(cluster, write, lease):
            if isinstance(operation, RawPut):
                _add_put(operations, operation)
            else:
                _add_deletion(operations, operation)
    return list(operations.values())


def _operations(cluster: str, write: Write, lease: int) -> list[RawPut | RawDelete]:
    if isinstance(write, RawPut | RawDelete):
        return [write]
    key = key_of(cluster, write)
    if isinstance(write, DeleteVhost):
        prefixes = [prefix_of(cluster, name, write.name) for name in NAMES_OF_VHOST]
        return [RawDelete(key), *(RawDelete(prefix, end_of(prefix)) for prefix in prefixes)]
    if isinstance(write, KIND_OF[type(write)].delete):
        return [RawDelete(key)]
    is_leased = isinstance(write, PutQueue) and write.is_exclusive
    return [RawPut(key, value_of(write), lease if is_leased else 0)]


def _add_put(operations: dict[bytes, RawPut | RawDelete], put: RawPut) -> None:
    for other in operations.values():
        if isinstance(other, RawDelete) and _covers(other, put.key):
            raise ValueError(f"one transaction cannot delete and write {put.key.decode()}")
    operations[put.key] = put


def _add_deletion(operations: dict[bytes, RawPut | RawDelete], deletion: RawDelete) -> None:
    for key in [key for key in operations if _covers(deletion, key)]:
        del operations[key]
    operations[deletion.key] = deletion


def _covers(deletion: RawDelete, key: bytes) -> bool:
    if deletion.range_end:
        return deletion.key <= key < deletion.range_end
    return deletion.key == key
