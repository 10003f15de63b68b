"""The definitions that a node of a cluster opens: its own rows whose queues the cluster has.

The node's metadata has what only the node knows (the numbers of vhosts and queues, parts of queues,
reader groups, stages), and sinks that the cluster has not got yet. It has everything else. A row
and a queue of the cluster belong together if name and birth agree: a queue that was deleted and
declared again while the node was away is another one, and the messages of the old one go.

A row of a mirrored queue is that of the node's copy. It stays while the group counts with the copy:
a group that has given it up has forgotten the node. The copy opens hidden, whoever is master. It
stays, too, while the group cannot be read.
"""

from __future__ import annotations

from warrenmq.broker.definitions import metadata
from warrenmq.cluster.groups.group_change import group_of


def shared_definitions(
    rows: metadata.Definitions, first: list[metadata.Change], node: bytes
) -> list[metadata.Change]:
    """The definitions that `node`, which ran alone, brings into a new cluster.

    They are its `rows`, or `first` if it has neither vhosts nor users.
    """
    if not rows.vhosts and not rows.users:
        return first
    shared: list[metadata.Change] = [
        *rows.vhosts,
        *rows.users,
        *rows.permissions,
        *rows.topic_permissions,
        *rows.parameters,
        *rows.exchanges,
    ]
    shared.extend(
        metadata.PutQueue(
            queue.vhost, 0, queue.name, queue.durable, queue.auto_delete, queue.arguments, node=node
        )
        for queue in rows.queues
    )
    shared.extend(rows.bindings)
    return shared


def own_definitions(
    rows: metadata.Definitions, shared: metadata.Definitions, node: bytes
) -> tuple[metadata.Definitions, list[metadata.Change]]:
    """The definitions with which `node` opens its data directory, and what changes in its rows.

    Queues of other nodes, exchanges and bindings are not among them: they need no file. A row
    without a birth is of a time when the node ran alone: it has brought the queue into the cluster.
    """
    changes: list[metadata.Change] = []
    opened = metadata.Definitions()
    opened.users = shared.users
    opened.permissions = shared.permissions
    opened.topic_permissions = shared.topic_permissions
    opened.parameters = shared.parameters
    opened.next_queue_id = rows.next_queue_id
    opened.next_vhost_id = rows.next_vhost_id
    opened.unusable_ids = rows.unusable_ids
    opened.has_lost_ids = rows.has_lost_ids
    _add_vhosts(rows, shared, opened, changes)
    _add_queues(rows, shared, opened, changes, node)
    names = {vhost.name for vhost in opened.vhosts}
    opened.queue_parts = [part for part in rows.queue_parts if part.vhost in names]
    opened.reader_groups = [group for group in rows.reader_groups if group.vhost in names]
    opened.group_members = [member for member in rows.group_members if member.vhost in names]
    opened.stages = [stage for stage in rows.stages if stage.vhost in names]
    opened.sinks = [sink for sink in rows.sinks if sink.vhost in names]
    opened.receipts = [book for book in rows.receipts if book.vhost in names]
    return opened, changes


def _add_vhosts(
    rows: metadata.Definitions,
    shared: metadata.Definitions,
    opened: metadata.Definitions,
    changes: list[metadata.Change],
) -> None:
    ids = {vhost.name: vhost.id for vhost in rows.vhosts}
    for vhost in shared.vhosts:
        vhost_id = ids.pop(vhost.name, None)
        is_new = vhost_id is None
        if vhost_id is None:
            vhost_id = opened.next_vhost_id
            opened.next_vhost_id += 1
        own = metadata.PutVhost(
            vhost.name,
            vhost_id,
            vhost.description,
            vhost.tags,
            vhost.default_queue_type,
            vhost.is_tracing,
        )
        opened.vhosts.append(own)
        if is_new:
            changes.append(own)
    changes.extend(metadata.DeleteVhost(name) for name in ids)


def _add_queues(
    rows: metadata.Definitions,
    shared: metadata.Definitions,
    opened: metadata.Definitions,
    changes: list[metadata.Change],
    node: bytes,
) -> None:
    known = {(row.vhost, row.name): row for row in rows.queues}
    vhosts = {vhost.name for vhost in opened.vhosts}
    for queue in shared.queues:
        row = known.get((queue.vhost, queue.name))
        if not queue.durable or not _has_copy(queue, node, row):
            continue
        known.pop((queue.vhost, queue.name), None)
        is_same = row is not None and row.birth in (queue.birth, metadata.NO_BIRTH)
        if row is not None and not is_same:
            changes.append(metadata.DeleteQueue(row.vhost, row.id, row.name))
        if queue.group and not is_same:
            # A copy begins when the node joins the group.
            continue
        arguments = queue.arguments
        if row is None or not is_same:
            queue_id = opened.next_queue_id
            opened.next_queue_id += 1
        else:
            queue_id = row.id
            # A definition of the cluster that cannot be read has none.
            arguments = arguments or row.arguments
        own = metadata.PutQueue(
            queue.vhost,
            queue_id,
            queue.name,
            True,
            queue.auto_delete,
            arguments,
            birth=queue.birth,
            group=queue.group,
        )
        opened.queues.append(own)
        if row is None or row.birth != queue.birth:
            changes.append(own)
    for row in known.values():
        if row.vhost in vhosts:
            changes.append(metadata.DeleteQueue(row.vhost, row.id, row.name))


def _has_copy(queue: metadata.PutQueue, node: bytes, row: metadata.PutQueue | None) -> bool:
    """Whether `node` has the messages of `queue`, or a copy that its group counts with.

    `row`: the node's own row of a queue of this name.
    """
    try:
        group = group_of(queue)
    except metadata.MetadataDamaged:
        return row is not None and row.birth in (queue.birth, metadata.NO_BIRTH)
    return queue.node == node if group is None else node in group.recoverable
