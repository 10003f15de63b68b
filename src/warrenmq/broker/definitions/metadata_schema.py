"""The tables of a node's definitions in SQLite, and how an earlier version is taken over."""

from typing import Final

SCHEMA_VERSION: Final = 8

# STRICT tables refuse a value of the wrong type; such a value that is read back is damage.
_SCHEMA: Final = """
CREATE TABLE schema_version (version INTEGER NOT NULL) STRICT;
CREATE TABLE vhosts (
    name BLOB NOT NULL UNIQUE, id INTEGER NOT NULL UNIQUE, description TEXT NOT NULL DEFAULT '',
    tags TEXT NOT NULL DEFAULT '', default_queue_type TEXT NOT NULL DEFAULT '',
    is_tracing INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE users (
    name BLOB NOT NULL UNIQUE, password_hash BLOB NOT NULL, hashing TEXT NOT NULL, tags TEXT NOT NULL,
    max_connections INTEGER NOT NULL DEFAULT -1, max_channels INTEGER NOT NULL DEFAULT -1) STRICT;
CREATE TABLE permissions (
    vhost BLOB NOT NULL, user BLOB NOT NULL, configure TEXT NOT NULL, write TEXT NOT NULL, read TEXT NOT NULL,
    UNIQUE (vhost, user)) STRICT;
CREATE TABLE exchanges (
    vhost BLOB NOT NULL, name BLOB NOT NULL, type BLOB NOT NULL, auto_delete INTEGER NOT NULL,
    internal INTEGER NOT NULL, arguments BLOB NOT NULL, UNIQUE (vhost, name)) STRICT;
CREATE TABLE queues (
    vhost BLOB NOT NULL, id INTEGER NOT NULL, name BLOB NOT NULL, durable INTEGER NOT NULL,
    auto_delete INTEGER NOT NULL, arguments BLOB NOT NULL, birth INTEGER NOT NULL DEFAULT 0,
    UNIQUE (vhost, id)) STRICT;
CREATE TABLE bindings (
    vhost BLOB NOT NULL, source BLOB NOT NULL, destination BLOB NOT NULL, destination_is_queue INTEGER NOT NULL,
    key BLOB NOT NULL, arguments BLOB NOT NULL,
    UNIQUE (vhost, source, destination, destination_is_queue, key, arguments)) STRICT;
-- Outlives the queues and staging logs: an id in a journal that is below it belonged to a queue that is deleted.
CREATE TABLE numbering (next_queue_id INTEGER NOT NULL, next_vhost_id INTEGER NOT NULL DEFAULT 1) STRICT;
INSERT INTO numbering VALUES (1, 1);
CREATE TRIGGER number_queues AFTER INSERT ON queues BEGIN
    UPDATE numbering SET next_queue_id = max(next_queue_id, NEW.id + 1); END;
INSERT INTO schema_version VALUES (8);
"""
_READER_GROUPS: Final = """
CREATE TABLE reader_groups (
    vhost BLOB NOT NULL, name BLOB NOT NULL, epoch INTEGER NOT NULL, pattern TEXT NOT NULL,
    UNIQUE (vhost, name)) STRICT;
CREATE TABLE reader_group_members (
    vhost BLOB NOT NULL, "group" BLOB NOT NULL, queue_id INTEGER NOT NULL, queue_name BLOB NOT NULL,
    acked INTEGER NOT NULL, reserved INTEGER NOT NULL, is_ended INTEGER NOT NULL,
    incarnation INTEGER NOT NULL DEFAULT 0, has_lapsed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (vhost, "group", queue_id)) STRICT;
"""
_SINKS: Final = """
CREATE TABLE stages (
    vhost BLOB NOT NULL, id INTEGER NOT NULL, sink BLOB NOT NULL, batch INTEGER NOT NULL, finished_ms INTEGER NOT NULL,
    message_count INTEGER NOT NULL, unroutable_count INTEGER NOT NULL, unroutable BLOB NOT NULL,
    target BLOB NOT NULL, UNIQUE (vhost, id)) STRICT;
CREATE TABLE sinks (
    vhost BLOB NOT NULL, name BLOB NOT NULL, batch INTEGER NOT NULL, stages TEXT NOT NULL, UNIQUE (vhost, name)) STRICT;
CREATE TRIGGER number_stages AFTER INSERT ON stages BEGIN
    UPDATE numbering SET next_queue_id = max(next_queue_id, NEW.id + 1); END;
"""
_CONTROL: Final = """
CREATE TABLE topic_permissions (
    vhost BLOB NOT NULL, user BLOB NOT NULL, exchange BLOB NOT NULL, write TEXT NOT NULL, read TEXT NOT NULL,
    UNIQUE (vhost, user, exchange)) STRICT;
CREATE TABLE parameters (
    vhost BLOB NOT NULL, component TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
    UNIQUE (vhost, component, name)) STRICT;
CREATE TRIGGER number_vhosts AFTER INSERT ON vhosts BEGIN
    UPDATE numbering SET next_vhost_id = max(next_vhost_id, NEW.id + 1); END;
"""
_QUEUE_PARTS: Final = """
CREATE TABLE queue_parts (
    vhost BLOB NOT NULL, id INTEGER NOT NULL, owner INTEGER NOT NULL, number INTEGER NOT NULL,
    UNIQUE (vhost, id)) STRICT;
CREATE TRIGGER number_queue_parts AFTER INSERT ON queue_parts BEGIN
    UPDATE numbering SET next_queue_id = max(next_queue_id, NEW.id + 1); END;
"""
_RECEIPTS: Final = """
CREATE TABLE receipts (
    vhost BLOB NOT NULL, id INTEGER NOT NULL, sink BLOB NOT NULL, queue_id INTEGER NOT NULL, floor INTEGER NOT NULL,
    runs TEXT NOT NULL, shared TEXT NOT NULL, UNIQUE (vhost, id)) STRICT;
CREATE TRIGGER number_receipts AFTER INSERT ON receipts BEGIN
    UPDATE numbering SET next_queue_id = max(next_queue_id, NEW.id + 1); END;
"""
# Schema version 1 had no sinks, and a reader group had one queue. Of a deleted queue only the id is
# known.
_PUT_ASIDE_VERSION_1: Final = "ALTER TABLE reader_groups RENAME TO old_groups;"
_TAKE_OVER_VERSION_1: Final = """
INSERT INTO reader_groups SELECT vhost, name, epoch, '' FROM old_groups ORDER BY rowid;
INSERT INTO reader_group_members
    SELECT g.vhost, g.name, g.queue_id, coalesce(q.name, CAST('' AS BLOB)), g.acked, g.reserved, 0, 0, 0
    FROM old_groups g LEFT JOIN queues q ON q.vhost = g.vhost AND q.id = g.queue_id ORDER BY g.rowid;
DROP TABLE old_groups;
"""
# In schema version 2 a stage had no target: all messages are routed.
_TAKE_OVER_VERSION_2: Final = """
ALTER TABLE stages ADD COLUMN target BLOB NOT NULL DEFAULT x'';
"""
# Up to schema version 3 vhosts were made by a start or an import only, and users had no limits.
_TAKE_OVER_VERSION_3: Final = """
ALTER TABLE vhosts ADD COLUMN description TEXT NOT NULL DEFAULT '';
ALTER TABLE vhosts ADD COLUMN tags TEXT NOT NULL DEFAULT '';
ALTER TABLE vhosts ADD COLUMN default_queue_type TEXT NOT NULL DEFAULT '';
ALTER TABLE vhosts ADD COLUMN is_tracing INTEGER NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN max_connections INTEGER NOT NULL DEFAULT -1;
ALTER TABLE users ADD COLUMN max_channels INTEGER NOT NULL DEFAULT -1;
ALTER TABLE numbering ADD COLUMN next_vhost_id INTEGER NOT NULL DEFAULT 1;
UPDATE numbering SET next_vhost_id = (SELECT coalesce(max(id), 0) + 1 FROM vhosts);
"""
# Up to schema version 4 a queue had one part, and up to version 5 every node was a lone one.
_BIRTHS: Final = """
ALTER TABLE queues ADD COLUMN birth INTEGER NOT NULL DEFAULT 0;
"""
# Up to schema version 6 reader groups knew queues by their ids only. Version 1 had none of the
# table that changes.
_INCARNATIONS: Final = """
ALTER TABLE reader_group_members ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 0;
"""
# Up to schema version 7 a group did not keep that an unsafe promotion had lost messages.
_LAPSES: Final = """
ALTER TABLE reader_group_members ADD COLUMN has_lapsed INTEGER NOT NULL DEFAULT 0;
"""

# The script that fills an empty file.
NEW_FILE: Final = (
    "BEGIN IMMEDIATE; "
    + _SCHEMA
    + _READER_GROUPS
    + _SINKS
    + _CONTROL
    + _QUEUE_PARTS
    + _RECEIPTS
    + "COMMIT;"
)
_FROM_VERSION_3: Final = _TAKE_OVER_VERSION_3 + _CONTROL + _QUEUE_PARTS + _BIRTHS
_NEWEST: Final = "UPDATE schema_version SET version = 8;"
# The scripts that bring a file of an earlier version to SCHEMA_VERSION, without what all have:
# up to schema version 7 a sink belonged to one node, and there were no books of receipts.
_SCRIPTS: Final = {
    1: _PUT_ASIDE_VERSION_1 + _READER_GROUPS + _SINKS + _TAKE_OVER_VERSION_1 + _FROM_VERSION_3,
    2: _TAKE_OVER_VERSION_2 + _FROM_VERSION_3 + _INCARNATIONS + _LAPSES,
    3: _FROM_VERSION_3 + _INCARNATIONS + _LAPSES,
    4: _QUEUE_PARTS + _BIRTHS + _INCARNATIONS + _LAPSES,
    5: _BIRTHS + _INCARNATIONS + _LAPSES,
    6: _INCARNATIONS + _LAPSES,
    7: _LAPSES,
}
TAKE_OVER: Final = {
    version: "BEGIN IMMEDIATE; " + script + _RECEIPTS + _NEWEST + "COMMIT;"
    for version, script in _SCRIPTS.items()
}
