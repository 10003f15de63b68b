BEGIN TRANSACTION;
CREATE TABLE bindings (
    vhost BLOB NOT NULL, source BLOB NOT NULL, destination BLOB NOT NULL, destination_is_queue INTEGER NOT NULL,
    key BLOB NOT NULL, arguments BLOB NOT NULL,
    UNIQUE (vhost, source, destination, destination_is_queue, key, arguments)) STRICT;
INSERT INTO "bindings" VALUES(X'2F',X'78',X'71',1,X'6B',X'');
INSERT INTO "bindings" VALUES(X'2F',X'78',X'71',0,X'6B',X'0027FF3B2D2D');
CREATE TABLE exchanges (
    vhost BLOB NOT NULL, name BLOB NOT NULL, type BLOB NOT NULL, auto_delete INTEGER NOT NULL,
    internal INTEGER NOT NULL, arguments BLOB NOT NULL, UNIQUE (vhost, name)) STRICT;
INSERT INTO "exchanges" VALUES(X'2F',X'0027FF3B2D2D',X'66616E6F7574',0,1,X'');
INSERT INTO "exchanges" VALUES(X'2F',X'78',X'646972656374',0,1,X'');
CREATE TABLE numbering (next_queue_id INTEGER NOT NULL, next_vhost_id INTEGER NOT NULL DEFAULT 1) STRICT;
INSERT INTO "numbering" VALUES(2305843009213693953,4);
CREATE TABLE parameters (
    vhost BLOB NOT NULL, component TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
    UNIQUE (vhost, component, name)) STRICT;
INSERT INTO "parameters" VALUES(X'2F','policy','p','{"pattern":"^a"}');
INSERT INTO "parameters" VALUES(X'','','global','17');
CREATE TABLE permissions (
    vhost BLOB NOT NULL, user BLOB NOT NULL, configure TEXT NOT NULL, write TEXT NOT NULL, read TEXT NOT NULL,
    UNIQUE (vhost, user)) STRICT;
INSERT INTO "permissions" VALUES(X'2F',X'6775657374','.*','^$','a''b');
CREATE TABLE queue_parts (
    vhost BLOB NOT NULL, id INTEGER NOT NULL, owner INTEGER NOT NULL, number INTEGER NOT NULL,
    UNIQUE (vhost, id)) STRICT;
INSERT INTO "queue_parts" VALUES(X'2F',3,1,7);
CREATE TABLE queues (
    vhost BLOB NOT NULL, id INTEGER NOT NULL, name BLOB NOT NULL, durable INTEGER NOT NULL,
    auto_delete INTEGER NOT NULL, arguments BLOB NOT NULL, birth INTEGER NOT NULL DEFAULT 0,
    UNIQUE (vhost, id)) STRICT;
INSERT INTO "queues" VALUES(X'2F',1,X'72656E616D6564',1,0,X'',3);
INSERT INTO "queues" VALUES(X'2F',1152921504606846976,X'71',1,1,X'',4611686018427387904);
CREATE TABLE reader_group_members (
    vhost BLOB NOT NULL, "group" BLOB NOT NULL, queue_id INTEGER NOT NULL, queue_name BLOB NOT NULL,
    acked INTEGER NOT NULL, reserved INTEGER NOT NULL, is_ended INTEGER NOT NULL,
    incarnation INTEGER NOT NULL DEFAULT 0, has_lapsed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (vhost, "group", queue_id)) STRICT;
INSERT INTO "reader_group_members" VALUES(X'2F',X'67',1152921504606846976,X'71',17,4611686018427387904,0,0,0);
INSERT INTO "reader_group_members" VALUES(X'2F',X'67',6,X'73',1,2,0,0,0);
CREATE TABLE reader_groups (
    vhost BLOB NOT NULL, name BLOB NOT NULL, epoch INTEGER NOT NULL, pattern TEXT NOT NULL,
    UNIQUE (vhost, name)) STRICT;
INSERT INTO "reader_groups" VALUES(X'2F',X'67',3,'o.*');
CREATE TABLE receipts (
    vhost BLOB NOT NULL, id INTEGER NOT NULL, sink BLOB NOT NULL, queue_id INTEGER NOT NULL, floor INTEGER NOT NULL,
    runs TEXT NOT NULL, shared TEXT NOT NULL, UNIQUE (vhost, id)) STRICT;
INSERT INTO "receipts" VALUES(X'2F',8,X'0027FF3B2D2D',0,17,'20 20 30 1152921504606846976','');
INSERT INTO "receipts" VALUES(X'2F',9,X'73',1152921504606846976,1,'','4 5');
CREATE TABLE schema_version (version INTEGER NOT NULL) STRICT;
INSERT INTO "schema_version" VALUES(8);
CREATE TABLE sinks (
    vhost BLOB NOT NULL, name BLOB NOT NULL, batch INTEGER NOT NULL, stages TEXT NOT NULL, UNIQUE (vhost, name)) STRICT;
INSERT INTO "sinks" VALUES(X'2F',X'73',7,'2 3');
CREATE TABLE stages (
    vhost BLOB NOT NULL, id INTEGER NOT NULL, sink BLOB NOT NULL, batch INTEGER NOT NULL, finished_ms INTEGER NOT NULL,
    message_count INTEGER NOT NULL, unroutable_count INTEGER NOT NULL, unroutable BLOB NOT NULL,
    target BLOB NOT NULL, UNIQUE (vhost, id)) STRICT;
INSERT INTO "stages" VALUES(X'2F',2,X'73',7,1000,3,1,X'00016B',X'0027FF3B2D2D');
CREATE TABLE topic_permissions (
    vhost BLOB NOT NULL, user BLOB NOT NULL, exchange BLOB NOT NULL, write TEXT NOT NULL, read TEXT NOT NULL,
    UNIQUE (vhost, user, exchange)) STRICT;
INSERT INTO "topic_permissions" VALUES(X'2F',X'6775657374',X'0027FF3B2D2D','^a\.','');
CREATE TABLE users (
    name BLOB NOT NULL UNIQUE, password_hash BLOB NOT NULL, hashing TEXT NOT NULL, tags TEXT NOT NULL,
    max_connections INTEGER NOT NULL DEFAULT -1, max_channels INTEGER NOT NULL DEFAULT -1) STRICT;
INSERT INTO "users" VALUES(X'6775657374',X'0027FF3B2D2D','rabbit_password_hashing_sha256','administrator
bär',-1,-1);
INSERT INTO "users" VALUES(X'0027FF3B2D2D',X'','','',0,1099511627776);
CREATE TABLE vhosts (
    name BLOB NOT NULL UNIQUE, id INTEGER NOT NULL UNIQUE, description TEXT NOT NULL DEFAULT '',
    tags TEXT NOT NULL DEFAULT '', default_queue_type TEXT NOT NULL DEFAULT '',
    is_tracing INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "vhosts" VALUES(X'2F',1,'','','',0);
INSERT INTO "vhosts" VALUES(X'0027FF3B2D2D',2,'other','','',0);
CREATE TRIGGER number_queues AFTER INSERT ON queues BEGIN
    UPDATE numbering SET next_queue_id = max(next_queue_id, NEW.id + 1); END;
CREATE TRIGGER number_stages AFTER INSERT ON stages BEGIN
    UPDATE numbering SET next_queue_id = max(next_queue_id, NEW.id + 1); END;
CREATE TRIGGER number_vhosts AFTER INSERT ON vhosts BEGIN
    UPDATE numbering SET next_vhost_id = max(next_vhost_id, NEW.id + 1); END;
CREATE TRIGGER number_queue_parts AFTER INSERT ON queue_parts BEGIN
    UPDATE numbering SET next_queue_id = max(next_queue_id, NEW.id + 1); END;
CREATE TRIGGER number_receipts AFTER INSERT ON receipts BEGIN
    UPDATE numbering SET next_queue_id = max(next_queue_id, NEW.id + 1); END;
COMMIT;
