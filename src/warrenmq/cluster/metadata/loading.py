"""The definitions of a cluster, read from etcd as of one revision.

A definition that cannot be read stops no node: it is skipped, with one line in the log. But a vhost
or a queue must not count as deleted then, since its messages would go. So the vhost is there with
its name alone, and the queue has a group that cannot be read: it serves nobody, and nodes keep
their copies of it.
"""

import logging
from typing import Final

from warrenmq.broker.definitions import metadata
from warrenmq.broker.definitions.kinds import KIND_OF, QUEUES, VHOSTS
from warrenmq.cluster.metadata.errors import Compacted
from warrenmq.cluster.metadata.gateway import EtcdGateway
from warrenmq.cluster.metadata.keys import KIND_NAMES, change_of, parts_of, prefix_of
from warrenmq.cluster.metadata.operations import KeyValue
from warrenmq.cluster.metadata.uploading import UploadUnfinished, upload_key

logger = logging.getLogger("warren.cluster")

# The group of a queue that cannot be read; no group is encoded like this.
_UNREADABLE_GROUP: Final = b"unreadable"
# A load that is overtaken by so many compactions fails; one is bad luck.
_ATTEMPTS: Final = 3


def load_at(gateway: EtcdGateway, cluster: str) -> tuple[metadata.Definitions, int]:
    """The definitions in force, in the order of their births, and the revision they are as of.

    Bindings are in force if both ends have the births that they name, permissions if they were
    written in the user's present life. Definitions of one transaction are in the order of their
    keys. Raises UploadUnfinished while a node uploads its definitions.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _load(gateway, cluster)
        except Compacted:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _load(gateway: EtcdGateway, cluster: str) -> tuple[metadata.Definitions, int]:
    revision = 0
    found: list[KeyValue] = []
    for name in KIND_NAMES:
        keys, revision = gateway.read_range(prefix_of(cluster, name), revision)
        found.extend(sorted(keys, key=lambda key: key.create_revision))
    if gateway.read(upload_key(cluster), revision) is not None:
        raise UploadUnfinished(f"the upload of definitions to cluster {cluster} is not finished")
    loading = _Loading()
    for key in found:
        try:
            change = change_of(key.key, key.value, key.create_revision, key.mod_revision)
        except metadata.MetadataDamaged as error:
            logger.error("skipped a definition: %s", error)
            change = _placeholder(key)
        if change is not None:
            loading.add(change, key)
    return loading.definitions, revision


def _placeholder(key: KeyValue) -> metadata.Change | None:
    """A placeholder for a definition that cannot be read; None if the kind needs none."""
    match parts_of(key.key):
        case str(kind), [name] if kind == VHOSTS.keys.name:
            return metadata.PutVhost(name, metadata.NO_ID, birth=key.create_revision)
        case str(kind), [vhost, name] if kind == QUEUES.keys.name:
            return metadata.PutQueue(
                vhost,
                metadata.NO_ID,
                name,
                True,
                False,
                b"",
                birth=key.create_revision,
                group=_UNREADABLE_GROUP,
                revision=key.mod_revision,
            )
    return None


class _Loading:
    """Definitions as they are gathered, each kind after the kinds that it needs."""

    def __init__(self) -> None:
        self.definitions = metadata.Definitions()
        # Create revisions by name.
        self._users: dict[bytes, int] = {}
        # Births by vhost, name, and whether it is a queue.
        self._births: dict[tuple[bytes, bytes, bool], int] = {}

    def add(self, change: metadata.Change, key: KeyValue) -> None:
        """Add a definition if it is in force."""
        match change:
            case metadata.PutUser():
                self._users[change.name] = key.create_revision
            case metadata.PutExchange() | metadata.PutQueue():
                self._births[change.vhost, change.name, isinstance(change, metadata.PutQueue)] = (
                    change.birth
                )
            case metadata.PutPermission() | metadata.PutTopicPermission():
                if not self._is_of_this_life(change.user, key):
                    return
            case metadata.PutBinding():
                if not self._is_in_force(change):
                    return
        KIND_OF[type(change)].listed(self.definitions).append(change)

    def _is_of_this_life(self, user: bytes, key: KeyValue) -> bool:
        created = self._users.get(user)
        return created is not None and key.mod_revision >= created

    def _is_in_force(self, binding: metadata.PutBinding) -> bool:
        # A predeclared exchange has no key and no birth.
        source = self._births.get((binding.vhost, binding.source, False), metadata.NO_BIRTH)
        end = (binding.vhost, binding.destination, binding.destination_is_queue)
        destination = self._births.get(end, metadata.NO_BIRTH)
        return source == binding.source_birth and destination == binding.destination_birth
