"""Requests and replies of the admin protocol that control a node: what `warrenctl` does.

One struct per operation; the table `NEEDS` names the tag that the user of each must have. An
operation that changes definitions is answered with `Done` when the change is on disk and in force,
or refused with an `ErrorReply`, and then nothing has changed. `requests.py` has the other requests.
"""

from typing import Annotated, Any, Final, Literal, TypeGuard

from msgspec import Meta, Struct

from warrenmq.admin.protocol import (
    changes,
    cluster,
    mirrors,
    samples,
    schedules,
    stores,
    watching,
)
from warrenmq.admin.protocol.configuration import Configuration, DescribeConfiguration
from warrenmq.admin.protocol.counters import DescribeCounters, NodeCounters
from warrenmq.admin.protocol.fields import ShortStr
from warrenmq.admin.protocol.latencies import DescribeLatencies, NodeLatencies
from warrenmq.admin.protocol.log import LogEntries, ReadLog
from warrenmq.admin.protocol.totals import DescribeTotals, NodeTotals

# Tags of users (RabbitMQ's): each operation asks for one of them, and administrator allows all.
ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
POLICYMAKER: Final = "policymaker"
MANAGEMENT: Final = "management"
# For operations that every user with access to the vhost may ask for.
NO_TAG: Final = ""

# Largest request (bytes) of an administrator whose session has no vhost: definitions to import.
IMPORT_BYTES_MAX: Final = 64 * 1024 * 1024

# Names that one request for a listing gives at most: they fit into a request.
NAMES_MAX: Final = 100

Name = Annotated[str, Meta(max_length=255)]
Pattern = Annotated[str, Meta(max_length=16_384)]
JsonText = Annotated[str, Meta(max_length=60_000)]
Tags = Annotated[list[Name], Meta(max_length=64)]
PolicyKind = Literal["policy", "operator_policy"]
Limit = Annotated[int, Meta(ge=-1, le=1 << 31)]


class _Operation(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of the operations: unknown fields are errors."""


# -- users and permissions -------------------------------------------------------------------------


class AddUser(_Operation, tag="add_user", frozen=True):
    """Create a user without tags. Refused (`exists`) when there is one."""

    name: Name
    password: str


class DeleteUser(_Operation, tag="delete_user", frozen=True):
    """Delete a user and its permissions in all vhosts."""

    name: Name


class ChangePassword(_Operation, tag="change_password", frozen=True):
    """Set a user's password; without one no password fits the user any more."""

    name: Name
    password: str | None


class CheckPassword(_Operation, tag="check_password", frozen=True):
    """Refused (`access_refused`) unless the password is the user's."""

    name: Name
    password: str


class SetUserTags(_Operation, tag="set_user_tags", frozen=True):
    """Replace a user's tags."""

    name: Name
    tags: Tags


class SetUserLimits(_Operation, tag="set_user_limits", frozen=True):
    """Set a user's limits; None leaves one as it is, -1 removes it."""

    name: Name
    max_connections: Limit | None = None
    max_channels: Limit | None = None


class SetPermissions(_Operation, tag="set_permissions", frozen=True):
    """Set a user's permissions in a vhost: three regular expressions."""

    vhost: Name
    user: Name
    configure: Pattern
    write: Pattern
    read: Pattern


class ClearPermissions(_Operation, tag="clear_permissions", frozen=True):
    """Take a user's access to a vhost away."""

    vhost: Name
    user: Name


class SetTopicPermissions(_Operation, tag="set_topic_permissions", frozen=True):
    """Set a user's permissions at a topic exchange of a vhost."""

    vhost: Name
    user: Name
    exchange: Name
    write: Pattern
    read: Pattern


class ClearTopicPermissions(_Operation, tag="clear_topic_permissions", frozen=True):
    """Clear a user's permissions at one topic exchange, or at all of the vhost (None)."""

    vhost: Name
    user: Name
    exchange: Name | None = None


# -- vhosts and parameters -------------------------------------------------------------------------


class AddVhost(_Operation, tag="add_vhost", frozen=True):
    """Create a vhost; an existing one stays as it is."""

    name: Name
    description: str = ""
    tags: Tags = []
    default_queue_type: Name = ""


class DeleteVhost(_Operation, tag="delete_vhost", frozen=True):
    """Delete a vhost with all that is in it; connections to it are closed."""

    name: Name


class SetVhostTags(_Operation, tag="set_vhost_tags", frozen=True):
    """Replace a vhost's tags."""

    name: Name
    tags: Tags


class SetVhostMetadata(_Operation, tag="set_vhost_metadata", frozen=True):
    """Replace a vhost's description and tags; `default_queue_type` "" leaves the type as it is."""

    name: Name
    description: str
    tags: Tags
    default_queue_type: Name = ""


class SetTracing(_Operation, tag="set_tracing", frozen=True):
    """Switch the copies of all messages of a vhost to `amq.rabbitmq.trace` on or off."""

    vhost: Name
    is_on: bool


class SetVhostLimits(_Operation, tag="set_vhost_limits", frozen=True):
    """Replace a vhost's limits by those of a JSON object; "{}" removes all."""

    vhost: Name
    definition: JsonText


class SetPolicy(_Operation, tag="set_policy", frozen=True):
    """Set a policy, or an operator policy; `definition` is a JSON object."""

    vhost: Name
    name: Name
    pattern: Pattern
    definition: JsonText
    priority: Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)] = 0
    apply_to: Name = "all"
    kind: PolicyKind = "policy"


class ClearPolicy(_Operation, tag="clear_policy", frozen=True):
    """Delete a policy, or an operator policy."""

    vhost: Name
    name: Name
    kind: PolicyKind = "policy"


class SetParameter(_Operation, tag="set_parameter", frozen=True):
    """Set a parameter of a component that is not one of the broker's own; `value` is JSON."""

    vhost: Name
    component: Name
    name: Name
    value: JsonText


class ClearParameter(_Operation, tag="clear_parameter", frozen=True):
    """Delete a parameter."""

    vhost: Name
    component: Name
    name: Name


class SetGlobalParameter(_Operation, tag="set_global_parameter", frozen=True):
    """Set a parameter of the whole broker; `value` is JSON."""

    name: Name
    value: JsonText


class ClearGlobalParameter(_Operation, tag="clear_global_parameter", frozen=True):
    """Delete a parameter of the whole broker."""

    name: Name


class ExportDefinitions(_Operation, tag="export_definitions", frozen=True):
    """Return the definitions of the node, or of one vhost, as JSON. Reply: Exported."""

    vhost: Name | None = None


class ImportDefinitions(_Operation, tag="import_definitions", frozen=True):
    """Begin to add definitions, or only to find what would change. Reply: ImportStatus.

    `json`: in RabbitMQ's format; with `vhost`, an export of one vhost. A session has one import at
    a time; its end cancels the import.
    """

    json: bytes
    vhost: Name | None = None
    is_dry_run: bool = False


class GetImport(_Operation, tag="get_import", frozen=True):
    """Report how far the session's last import is. Reply: ImportStatus, or why it was refused."""


class CancelImport(_Operation, tag="cancel_import", frozen=True):
    """End the session's import if nothing of it is stored yet. Reply: ImportStatus.

    An import that is being stored goes on, so that nothing is left half done.
    """


# -- queues and connections ------------------------------------------------------------------------


class PurgeQueue(_Operation, tag="purge_queue", frozen=True):
    """Drop the ready messages of a queue. Reply: Counted."""

    vhost: Name
    queue: ShortStr


class DeleteQueue(_Operation, tag="delete_queue", frozen=True):
    """Delete a queue. Reply: Counted, the ready messages that were in it."""

    vhost: Name
    queue: ShortStr
    if_empty: bool = False
    if_unused: bool = False


class PauseQueue(_Operation, tag="pause_queue", frozen=True):
    """Let a queue hand out nothing until ResumeQueue; a paused one stays so."""

    vhost: Name
    queue: ShortStr


class ResumeQueue(_Operation, tag="resume_queue", frozen=True):
    """Let a queue hand out messages again; nothing happens if it is not paused."""

    vhost: Name
    queue: ShortStr


class CloseConnections(_Operation, tag="close_connections", frozen=True):
    """Close connections with 320 and `reason`. Reply: Counted.

    Who is no administrator closes its own connections only; with another `user` it is refused.
    Chosen are those that have all the given attributes; `pid` is a column of the listing, and names
    the node. With `is_everywhere` connections to all nodes of the cluster are meant.
    """

    reason: Name
    pid: Name | None = None
    vhost: Name | None = None
    user: Name | None = None
    # Close at most so many of them.
    limit: Annotated[int, Meta(ge=0)] = 0
    is_everywhere: bool = False


# -- the node --------------------------------------------------------------------------------------


class SetMemoryLimit(_Operation, tag="set_memory_limit", frozen=True):
    """Set the memory limit in bytes, or as a share of all memory; until the next start."""

    absolute: Annotated[int, Meta(ge=0, le=1 << 60)] | None = None
    relative: Annotated[float, Meta(ge=0, le=1)] | None = None


class SetDiskLimit(_Operation, tag="set_disk_limit", frozen=True):
    """Set the disk limit in bytes, or as a multiple of all memory; until the next start."""

    absolute: Annotated[int, Meta(ge=0, le=1 << 60)] | None = None
    relative: Annotated[float, Meta(ge=0, le=1000)] | None = None


class SetLogLevel(_Operation, tag="set_log_level", frozen=True):
    """Log from `level` on; until the next start."""

    level: Literal["debug", "info", "warning", "error", "critical"]


class RotateLogs(_Operation, tag="rotate_logs", frozen=True):
    """Begin a new log file, if the node writes one."""


class SetListening(_Operation, tag="set_listening", frozen=True):
    """Take new connections of clients, or refuse them. Admin sessions go on."""

    is_on: bool


class SetRunning(_Operation, tag="set_running", frozen=True):
    """Stop the broker in the node, or start it: without it there are no clients.

    A start imports the definitions that the configuration names; it is refused if that fails.
    """

    is_on: bool


class ResetNode(_Operation, tag="reset_node", frozen=True):
    """Delete all definitions and messages and begin anew; refused while the broker runs.

    A node of a cluster leaves it, and its queues go with it. With `is_forced` it does so also when
    etcd does not answer; the cluster then still has it as a member.
    """

    is_forced: bool = False


class StopNode(_Operation, tag="stop_node", frozen=True):
    """Stop the node cleanly; the reply comes before its process ends."""


class DescribeControl(_Operation, tag="describe_control", frozen=True):
    """Describe the process of a node for status and checks. Reply: ControlStatus."""

    # The node that is asked, "": that of the session. Refused (`unreachable`) without a link to it.
    node: Name = ""


class DescribeUser(_Operation, tag="describe_user", frozen=True):
    """Describe the user of the session. Reply: UserDescription."""


class IssueTicket(_Operation, tag="issue_ticket", frozen=True):
    """Make a ticket for the user of the session, who shows the password again. Reply: Ticket.

    `password` may be a ticket that holds, until 12 hours after the login with the password.
    """

    password: str


class List(_Operation, tag="list", frozen=True, omit_defaults=True):
    """Rows of a listing, with the given columns in this order. Reply: Rows.

    `vhost` is "" for listings of the whole node. An unknown column is refused (`bad_request`).
    Queues, consumers, connections and channels are those of all nodes of the cluster. A node of an
    earlier version reads a request as long as the fields that it does not know are left out.
    """

    what: Literal[
        "auth_attempts",
        "auth_attempts_by_source",
        "bindings",
        "channels",
        "connections",
        "consumers",
        "exchanges",
        "global_parameters",
        "operator_policies",
        "parameters",
        "permissions",
        "policies",
        "queues",
        "topic_permissions",
        "user_limits",
        "user_permissions",
        "user_topic_permissions",
        "users",
        "vhost_limits",
        "vhosts",
    ]
    columns: Annotated[list[Name], Meta(min_length=1, max_length=100)]
    vhost: Name = ""
    # The user of user_permissions, user_topic_permissions and user_limits. Of connections, channels
    # and vhosts there are those of this user alone, unless it is ""; the node sets it for a user
    # who may not see those of others.
    user: Name = ""
    # local: queues of this node; online, offline: queues of nodes that are up, or down.
    which: Literal["all", "local", "online", "offline"] = "all"
    # Only the rows about these objects, found without a look at all others: queues and exchanges
    # called so, consumers of queues called so, bindings from exchanges or to queues and exchanges
    # called so, connections with this name or pid, and channels with this name or pid or on
    # connections with this name. Other listings have all rows. None: all rows.
    names: Annotated[list[str], Meta(max_length=NAMES_MAX)] | None = None


# -- replies ---------------------------------------------------------------------------------------


class Done(Struct, tag="done", frozen=True):
    """The operation is carried out and durable."""


class Counted(Struct, tag="counted", frozen=True):
    """The operation is carried out; it concerned `count` messages or connections."""

    count: int


class Rows(Struct, tag="rows", frozen=True):
    """The rows of a listing, each with the columns that were asked for.

    `missing`: running nodes that have not answered, so that their rows are not there.
    """

    rows: list[list[Any]]
    missing: list[str] = []


class Exported(Struct, tag="exported", frozen=True):
    """Definitions as JSON."""

    json: bytes


class Imported(Struct, frozen=True):
    """The lines say what changed, or would change, and what was left out."""

    changes: list[str]
    left_out: list[str]


class UserDescription(Struct, tag="user_description", frozen=True):
    """A user as it is now; `vhosts` are those that it may enter, sorted.

    With `is_loopback_only` the user may log in on the node's own machine only. A local
    administrator has an empty name, all tags and all vhosts. `node` is the session's, and
    `cluster_name` the name that it shows to clients.
    """

    name: str
    tags: list[str]
    vhosts: list[str]
    is_loopback_only: bool
    node: str
    cluster_name: str


class Ticket(Struct, tag="ticket", frozen=True):
    """What serves as the user's password for `expires_in` seconds."""

    ticket: str
    expires_in: int


# Steps of an import. IMPORT_READING and IMPORT_COMPARING change nothing and can be cancelled.
IMPORT_READING: Final = "reading"
IMPORT_COMPARING: Final = "comparing"
IMPORT_STORING: Final = "storing"
IMPORT_DECLARING: Final = "declaring"
IMPORT_DONE: Final = "done"
IMPORT_CANCELLED: Final = "cancelled"


class ImportStatus(Struct, tag="import_status", frozen=True):
    """An import: its step, with the objects done of `total` in it.

    The step ends as IMPORT_DONE or IMPORT_CANCELLED. Only the first has `imported`.
    """

    step: str
    done: int
    total: int
    imported: Imported | None = None


class ControlStatus(Struct, tag="control_status", frozen=True):
    """The process of the node. Sizes in bytes; a share of None means an absolute limit."""

    node: str
    version: str
    python: str
    os: str
    pid: int
    uptime_ms: int
    data_directory: str
    config_files: list[str]
    log_files: list[str]
    # Whether the broker runs, and whether its listeners take clients.
    is_running: bool
    is_listening: bool
    # Whether the node is in maintenance mode.
    is_draining: bool
    listeners: list[cluster.ListenerStatus]
    alarms: list[str]
    memory_used_bytes: int | None
    memory_limit_bytes: int
    memory_limit_share: float | None
    # Memory by its use.
    memory: dict[str, int]
    disk_free_bytes: int | None
    disk_limit_bytes: int
    open_files: int
    open_files_max: int
    sockets: int
    vhosts: int
    connections: int
    queues: int
    # Effective settings by key of the configuration.
    environment: dict[str, Any]


ControlRequest = (
    AddUser
    | DeleteUser
    | ChangePassword
    | CheckPassword
    | SetUserTags
    | SetUserLimits
    | SetPermissions
    | ClearPermissions
    | SetTopicPermissions
    | ClearTopicPermissions
    | AddVhost
    | DeleteVhost
    | SetVhostMetadata
    | SetVhostTags
    | SetTracing
    | SetVhostLimits
    | SetPolicy
    | ClearPolicy
    | SetParameter
    | ClearParameter
    | SetGlobalParameter
    | ClearGlobalParameter
    | ExportDefinitions
    | ImportDefinitions
    | GetImport
    | CancelImport
    | PurgeQueue
    | DeleteQueue
    | PauseQueue
    | ResumeQueue
    | CloseConnections
    | SetMemoryLimit
    | SetDiskLimit
    | SetLogLevel
    | RotateLogs
    | SetListening
    | SetRunning
    | ResetNode
    | StopNode
    | DescribeControl
    | DescribeUser
    | IssueTicket
    | DescribeCounters
    | DescribeLatencies
    | DescribeTotals
    | DescribeConfiguration
    | ReadLog
    | List
    | cluster.ClusterRequest
    | changes.ChangesRequest
    | mirrors.MirrorRequest
    | schedules.ScheduleRequest
    | stores.CompactStores
    | stores.DescribeFiles
    | stores.DescribeCompactions
    | stores.DescribeSegments
    | watching.WatchRequest
    | watching.KeepEvents
    | samples.ReadSamples
)
ControlReply = (
    Done
    | Counted
    | Rows
    | Exported
    | ImportStatus
    | ControlStatus
    | UserDescription
    | Ticket
    | NodeCounters
    | changes.ChangesReply
    | NodeLatencies
    | NodeTotals
    | Configuration
    | LogEntries
    | cluster.ClusterReply
    | mirrors.MirrorReply
    | schedules.Schedules
    | stores.CompactionBegun
    | stores.StoreFiles
    | stores.Compactions
    | stores.QueueSegments
    | watching.WatchReply
    | samples.Samples
)

# The tag that the user of each operation must have. A local administrator has all tags.
NEEDS: Final[dict[type, str]] = {
    AddUser: ADMINISTRATOR,
    DeleteUser: ADMINISTRATOR,
    ChangePassword: ADMINISTRATOR,
    CheckPassword: ADMINISTRATOR,
    SetUserTags: ADMINISTRATOR,
    SetUserLimits: ADMINISTRATOR,
    SetPermissions: ADMINISTRATOR,
    ClearPermissions: ADMINISTRATOR,
    SetTopicPermissions: ADMINISTRATOR,
    ClearTopicPermissions: ADMINISTRATOR,
    AddVhost: ADMINISTRATOR,
    DeleteVhost: ADMINISTRATOR,
    SetVhostMetadata: ADMINISTRATOR,
    SetVhostTags: ADMINISTRATOR,
    SetTracing: ADMINISTRATOR,
    SetVhostLimits: ADMINISTRATOR,
    SetPolicy: POLICYMAKER,
    ClearPolicy: POLICYMAKER,
    SetParameter: POLICYMAKER,
    ClearParameter: POLICYMAKER,
    SetGlobalParameter: ADMINISTRATOR,
    ClearGlobalParameter: ADMINISTRATOR,
    ExportDefinitions: ADMINISTRATOR,
    ImportDefinitions: ADMINISTRATOR,
    GetImport: ADMINISTRATOR,
    CancelImport: ADMINISTRATOR,
    PurgeQueue: NO_TAG,
    DeleteQueue: NO_TAG,
    PauseQueue: MANAGEMENT,
    ResumeQueue: MANAGEMENT,
    CloseConnections: MANAGEMENT,
    SetMemoryLimit: ADMINISTRATOR,
    SetDiskLimit: ADMINISTRATOR,
    SetLogLevel: ADMINISTRATOR,
    RotateLogs: ADMINISTRATOR,
    SetListening: ADMINISTRATOR,
    SetRunning: ADMINISTRATOR,
    ResetNode: ADMINISTRATOR,
    StopNode: ADMINISTRATOR,
    DescribeControl: MONITORING,
    DescribeUser: NO_TAG,
    IssueTicket: NO_TAG,
    DescribeCounters: MONITORING,
    changes.ReadChanges: MONITORING,
    samples.ReadSamples: MONITORING,
    DescribeLatencies: MONITORING,
    DescribeTotals: MONITORING,
    DescribeConfiguration: MONITORING,
    ReadLog: MONITORING,
    cluster.DescribeCluster: MANAGEMENT,
    cluster.DescribeMember: MANAGEMENT,
    cluster.ForgetNode: ADMINISTRATOR,
    cluster.JoinCluster: ADMINISTRATOR,
    cluster.RotateSecret: ADMINISTRATOR,
    cluster.SetDraining: ADMINISTRATOR,
    mirrors.DescribeMirrors: MANAGEMENT,
    mirrors.SyncQueue: ADMINISTRATOR,
    mirrors.CancelSync: ADMINISTRATOR,
    mirrors.RebalanceQueues: ADMINISTRATOR,
    mirrors.PlanRebalance: MONITORING,
    schedules.SetSchedule: ADMINISTRATOR,
    schedules.ClearSchedule: ADMINISTRATOR,
    schedules.NoteRun: ADMINISTRATOR,
    schedules.ListSchedules: MONITORING,
    schedules.IssueJobTicket: ADMINISTRATOR,
    stores.CompactStores: ADMINISTRATOR,
    stores.DescribeFiles: MANAGEMENT,
    stores.DescribeCompactions: MANAGEMENT,
    stores.DescribeSegments: MANAGEMENT,
    List: MANAGEMENT,
    watching.SetSourceTracking: ADMINISTRATOR,
    watching.ResetLoginAttempts: ADMINISTRATOR,
    watching.WatchEvents: ADMINISTRATOR,
    watching.NextEvents: ADMINISTRATOR,
    watching.KeepEvents: MONITORING,
    watching.DescribeCertificates: MANAGEMENT,
    watching.DescribeVariables: ADMINISTRATOR,
}


def is_control(request: object) -> TypeGuard[ControlRequest]:
    """Whether `request` is for the control calls, whatever the session's vhost."""
    return type(request) in NEEDS
