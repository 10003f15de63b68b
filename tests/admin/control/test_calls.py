"""Control operations over the admin protocol: durable, in force at once, for those who may."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    LocalAddress,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.client.control_file import ControlFile, read_control_file
from warrenmq.admin.client.definitions import import_definitions
from warrenmq.admin.control.listings import ListingCalls
from warrenmq.admin.control.permits import Permits
from warrenmq.admin.protocol.changes import Changes, ReadChanges
from warrenmq.admin.protocol.cluster import (
    DescribeCluster,
    DescribeMember,
    ForgetNode,
    JoinCluster,
    RotateSecret,
    SetDraining,
)
from warrenmq.admin.protocol.configuration import Configuration, DescribeConfiguration
from warrenmq.admin.protocol.control import (
    NEEDS,
    AddUser,
    AddVhost,
    CancelImport,
    ChangePassword,
    CheckPassword,
    ClearGlobalParameter,
    ClearParameter,
    ClearPermissions,
    ClearPolicy,
    ClearTopicPermissions,
    CloseConnections,
    ControlReply,
    ControlRequest,
    ControlStatus,
    Counted,
    DeleteQueue,
    DeleteUser,
    DeleteVhost,
    DescribeControl,
    DescribeUser,
    Done,
    ExportDefinitions,
    Exported,
    GetImport,
    ImportDefinitions,
    ImportStatus,
    IssueTicket,
    List,
    PauseQueue,
    PurgeQueue,
    ResetNode,
    ResumeQueue,
    RotateLogs,
    Rows,
    SetDiskLimit,
    SetGlobalParameter,
    SetListening,
    SetLogLevel,
    SetMemoryLimit,
    SetParameter,
    SetPermissions,
    SetPolicy,
    SetRunning,
    SetTopicPermissions,
    SetTracing,
    SetUserLimits,
    SetUserTags,
    SetVhostLimits,
    SetVhostMetadata,
    SetVhostTags,
    StopNode,
    Ticket,
    UserDescription,
)
from warrenmq.admin.protocol.counters import DescribeCounters, NodeCounters
from warrenmq.admin.protocol.latencies import DescribeLatencies, NodeLatencies
from warrenmq.admin.protocol.log import LogEntries, ReadLog
from warrenmq.admin.protocol.mirrors import (
    CancelSync,
    DescribeMirrors,
    PlanRebalance,
    RebalanceQueues,
    SyncQueue,
)
from warrenmq.admin.protocol.requests import GroupList, ListGroups
from warrenmq.admin.protocol.samples import ReadSamples
from warrenmq.admin.protocol.schedules import (
    ClearSchedule,
    IssueJobTicket,
    ListSchedules,
    NoteRun,
    Schedules,
    SetSchedule,
)
from warrenmq.admin.protocol.stores import (
    CompactionBegun,
    Compactions,
    CompactStores,
    DescribeCompactions,
    DescribeFiles,
    DescribeSegments,
    StoreFiles,
)
from warrenmq.admin.protocol.totals import DescribeTotals, NodeTotals
from warrenmq.admin.protocol.watching import (
    Certificates,
    DescribeCertificates,
    DescribeVariables,
    Events,
    KeepEvents,
    NextEvents,
    ResetLoginAttempts,
    SetSourceTracking,
    Variables,
    WatchEvents,
)

SCHEDULE = '{"job":"report","user":"guest","interval":60}'
RUN = '{"due":60,"node":"n","run":"r","state":"done"}'

# Each operation, with the type of its reply, in an order in which all of them succeed.
OPERATIONS: list[tuple[ControlRequest, type[ControlReply]]] = [
    (AddUser(name="u", password="p"), Done),
    (ChangePassword(name="u", password="q"), Done),
    (CheckPassword(name="u", password="q"), Done),
    (SetUserTags(name="u", tags=["management"]), Done),
    (SetUserLimits(name="u", max_connections=5), Done),
    (AddVhost(name="v", description="text", tags=["t"]), Done),
    (SetVhostMetadata(name="v", description="text", tags=["t"]), Done),
    (SetVhostTags(name="v", tags=["a", "b"]), Done),
    (SetTracing(vhost="v", is_on=True), Done),
    (SetVhostLimits(vhost="v", definition='{"max-queues": 7}'), Done),
    (SetPermissions(vhost="v", user="u", configure="", write="^w", read=".*"), Done),
    (SetTopicPermissions(vhost="v", user="u", exchange="amq.topic", write="a", read="b"), Done),
    (SetPolicy(vhost="v", name="p", pattern="^q", definition='{"message-ttl": 9}'), Done),
    (
        SetPolicy(
            vhost="v",
            name="o",
            pattern="",
            definition='{"expires": 99999}',
            kind="operator_policy",
        ),
        Done,
    ),
    (SetParameter(vhost="v", component="shovel", name="s", value='{"a": [1]}'), Done),
    (SetSchedule(vhost="v", name="s", value=SCHEDULE), Done),
    (NoteRun(vhost="v", name="s", run=RUN), Done),
    (ListSchedules(), Schedules),
    (IssueJobTicket(user="guest"), Ticket),
    (SetGlobalParameter(name="g", value='"x"'), Done),
    (ExportDefinitions(), Exported),
    (ImportDefinitions(json=b"{}"), ImportStatus),
    (GetImport(), ImportStatus),
    (CancelImport(), ImportStatus),
    (List(what="users", columns=["user", "tags"]), Rows),
    (DescribeControl(), ControlStatus),
    (DescribeCounters(), NodeCounters),
    (ReadChanges(kind="queue"), Changes),
    (DescribeLatencies(), NodeLatencies),
    (DescribeTotals(), NodeTotals),
    (DescribeConfiguration(), Configuration),
    (ReadLog(), LogEntries),
    (SetMemoryLimit(relative=0.5), Done),
    (SetDiskLimit(absolute=1000), Done),
    (SetLogLevel(level="warning"), Done),
    (RotateLogs(), Done),
    (SetListening(is_on=True), Done),
    (SetRunning(is_on=True), Done),
    (CloseConnections(reason="test", user="nobody"), Counted),
    (SetSourceTracking(is_on=True), Done),
    (ResetLoginAttempts(), Done),
    (CompactStores(vhost="v"), CompactionBegun),
    (DescribeFiles(vhost="v"), StoreFiles),
    (DescribeCompactions(vhost="v"), Compactions),
    (WatchEvents(names=["user.created"]), Done),
    (NextEvents(wait_ms=0), Events),
    (DescribeCertificates(), Certificates),
    (DescribeVariables(), Variables),
]
# What takes it all back, in an order in which all succeed.
UNDOING: list[ControlRequest] = [
    ClearGlobalParameter(name="g"),
    ClearSchedule(vhost="v", name="s"),
    ClearParameter(vhost="v", component="shovel", name="s"),
    ClearPolicy(vhost="v", name="o", kind="operator_policy"),
    ClearPolicy(vhost="v", name="p"),
    ClearTopicPermissions(vhost="v", user="u"),
    ClearPermissions(vhost="v", user="u"),
    DeleteVhost(name="v"),
    DeleteUser(name="u"),
]
# Operations that concern a queue that must exist, or end the node.
OTHERS: list[ControlRequest] = [
    PurgeQueue(vhost="/", queue=b"q"),
    PauseQueue(vhost="/", queue=b"q"),
    ResumeQueue(vhost="/", queue=b"q"),
    DeleteQueue(vhost="/", queue=b"q"),
    DescribeSegments(vhost="/", queue=b"q"),
    ResetNode(),
    StopNode(),
    DescribeCluster(),
    DescribeMember(),
    ForgetNode(node="other@host"),
    JoinCluster(seed="other@host"),
    RotateSecret(is_end=False),
    SetDraining(is_on=True),
    DescribeMirrors(vhost="/", queue=b"q"),
    SyncQueue(vhost="/", queue=b"q"),
    CancelSync(vhost="/", queue=b"q"),
    RebalanceQueues(),
    PlanRebalance(),
    KeepEvents(vhost="/", queue=b"q", events=[b"#"], messages=[]),
    ReadSamples(),
]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    running = NodeThread(tmp_path)
    yield running
    running.stop()


def local_client(node: NodeThread) -> AdminClient:
    return AdminClient(LocalAddress(read_control_file(node.node.config.data_dir)))


def user_client(node: NodeThread, user: str, vhost: str = "") -> AdminClient:
    address = NodeAddress(f"amqp://{user}:p@127.0.0.1:{node.port}")
    address.vhost = vhost
    return AdminClient(address)


def refusal(client: AdminClient, request: ControlRequest) -> str:
    with pytest.raises(AdminRefusedError) as refused:
        client.request(request, Done)
    return refused.value.code


def rows(client: AdminClient, what: Any, *columns: str, **more: Any) -> list[list[Any]]:
    return sorted(client.request(List(what=what, columns=list(columns), **more), Rows).rows)


def state(client: AdminClient) -> dict[str, Any]:
    """What all operations together have set."""
    return {
        "users": rows(client, "users", "user", "tags"),
        "vhosts": rows(client, "vhosts", "name", "tracing", "description", "tags"),
        "permissions": rows(client, "permissions", "user", "configure", "write", "read", vhost="v"),
        "topic": rows(client, "topic_permissions", "user", "exchange", "write", "read", vhost="v"),
        "policies": rows(client, "policies", "name", "pattern", "definition", vhost="v"),
        "operator": rows(client, "operator_policies", "name", "definition", vhost="v"),
        "parameters": rows(client, "parameters", "component", "name", "value", vhost="v"),
        "global": rows(client, "global_parameters", "name", "value"),
    }


def test_operations_are_in_force_and_survive_a_restart(tmp_path: Path) -> None:
    """Each operation does what it says; a restart finds it done; each can be taken back."""
    node = NodeThread(tmp_path)
    with local_client(node) as client:
        for request, expected in OPERATIONS:
            assert isinstance(client.request(request, expected), expected)
        before = state(client)
    assert before["users"] == [["guest", ["administrator"]], ["u", ["management"]]]
    assert before["vhosts"] == [
        ["/", False, "Default virtual host", []],
        ["v", True, "text", ["a", "b"]],
    ]
    assert before["permissions"] == [["u", "", "^w", ".*"]]
    node.stop()
    node = NodeThread(tmp_path)
    with local_client(node) as client:
        assert state(client) == before
        parameters = pika.URLParameters(f"amqp://u:q@127.0.0.1:{node.port}/v")
        pika.BlockingConnection(parameters).close()
        for request in UNDOING:
            client.request(request, Done)
        assert rows(client, "users", "user") == [["guest"]]
        assert rows(client, "vhosts", "name") == [["/"]]
        assert refusal(client, List(what="policies", columns=["name"], vhost="v")) == (
            "no_such_vhost"
        )
    node.stop()


def test_each_operation_asks_for_its_tag(node: NodeThread) -> None:
    """Without the tag a user is refused and nothing happens; a higher tag is enough too."""
    requests = [request for request, _ in OPERATIONS] + UNDOING + OTHERS
    # Everybody may ask who they are, and for a ticket of their own.
    assert {type(request) for request in requests} | {DescribeUser, IssueTicket} == set(NEEDS)
    with local_client(node) as local:
        local.request(AddUser(name="app", password="p"), Done)
        local.request(
            SetPermissions(vhost="/", user="app", configure="^none$", write="^$", read="^$"), Done
        )
        local.request(AddVhost(name="v"), Done)
        before = (rows(local, "users", "user"), rows(local, "vhosts", "name"))
        with user_client(node, "app") as app:
            for request in requests:
                assert refusal(app, request) == "access_refused", request
        local.request(SetUserTags(name="app", tags=["policymaker"]), Done)
        with user_client(node, "app", "/") as app:
            policy = SetPolicy(vhost="/", name="p", pattern="", definition='{"max-length": 1}')
            app.request(policy, Done)
            operator = ClearPolicy(vhost="/", name="p", kind="operator_policy")
            elsewhere = ClearPolicy(vhost="v", name="p")
            for request in (operator, elsewhere, AddVhost(name="w"), DescribeControl()):
                assert refusal(app, request) == "access_refused", request
            local.request(SetUserTags(name="app", tags=["monitoring"]), Done)
            app.request(DescribeControl(), ControlStatus)
            assert refusal(app, policy) == "access_refused"
            local.request(SetUserTags(name="app", tags=["administrator"]), Done)
            app.request(DeleteVhost(name="v"), Done)
        assert (before[0], [["/"]]) == (rows(local, "users", "user"), rows(local, "vhosts", "name"))


def test_schedules_stay_with_their_last_run_out_of_the_export(tmp_path: Path) -> None:
    """A start finds the schedule and its run; an export has the schedule alone."""
    node = NodeThread(tmp_path)
    with local_client(node) as client:
        client.request(SetSchedule(vhost="/", name="s", value=SCHEDULE), Done)
        client.request(NoteRun(vhost="/", name="s", run=RUN), Done)
    node.stop()
    node = NodeThread(tmp_path)
    with local_client(node) as client:
        listed = client.request(ListSchedules(), Schedules)
        (schedule,) = listed.schedules
        assert (schedule.vhost, schedule.name, schedule.value) == ("/", "s", SCHEDULE)
        assert schedule.run == RUN and listed.running == [listed.node]
        exported = client.request(ExportDefinitions(), Exported).json
        found = json.loads(exported)["parameters"]
        assert [(row["component"], row["value"]) for row in found] == [
            ("pipeline-schedule", json.loads(SCHEDULE))
        ]
        wrong = (
            b'{"parameters":[{"vhost":"/","component":"pipeline-schedule","name":"t","value":{}}]}'
        )
        with pytest.raises(AdminRefusedError, match="pipeline-schedule 't'"):
            import_definitions(client.request, ImportDefinitions(json=wrong))
        client.request(ClearSchedule(vhost="/", name="s"), Done)
        import_definitions(client.request, ImportDefinitions(json=exported))
        (schedule,) = client.request(ListSchedules(), Schedules).schedules
        assert (json.loads(schedule.value), schedule.run) == (json.loads(SCHEDULE), "")
    node.stop()


def test_a_ticket_of_a_job_is_for_local_administrators(node: NodeThread) -> None:
    """It logs its user in, and an administrator with a password gets none of another user."""
    with local_client(node) as local:
        local.request(AddUser(name="u", password="p"), Done)
        local.request(SetUserTags(name="u", tags=["administrator"]), Done)
        ticket = local.request(IssueJobTicket(user="u"), Ticket).ticket
        address = NodeAddress(f"amqp://u@127.0.0.1:{node.port}")
        address.vhost, address.password = "", ticket
        with AdminClient(address) as client:
            assert client.request(DescribeUser(), UserDescription).name == "u"
            assert refusal(client, IssueJobTicket(user="guest")) == "access_refused"
        local.request(ChangePassword(name="u", password=None), Done)
        assert refusal(local, IssueJobTicket(user="u")) == "precondition"
        with pytest.raises(AdminRefusedError):
            AdminClient(address)


def test_bad_requests_change_nothing(node: NodeThread) -> None:
    """What is missing, exists, or is invalid is refused with a code of its own."""
    with local_client(node) as client:
        client.request(AddUser(name="u", password="p"), Done)
        cases: list[tuple[ControlRequest, str]] = [
            (AddUser(name="u", password="x"), "exists"),
            (AddUser(name="", password="x"), "bad_request"),
            (DeleteUser(name="nobody"), "no_such_user"),
            (ChangePassword(name="nobody", password="x"), "no_such_user"),
            (CheckPassword(name="u", password="wrong"), "access_refused"),
            (SetPermissions(vhost="v", user="u", configure="", write="", read=""), "no_such_vhost"),
            (SetPermissions(vhost="/", user="w", configure="", write="", read=""), "no_such_user"),
            (SetPermissions(vhost="/", user="u", configure="(", write="", read=""), "invalid"),
            (DeleteVhost(name="v"), "no_such_vhost"),
            (ClearPolicy(vhost="/", name="p"), "not_found"),
            (SetPolicy(vhost="/", name="p", pattern="(", definition='{"expires": 1}'), "invalid"),
            (SetPolicy(vhost="/", name="p", pattern="", definition='{"nonsense": 1}'), "invalid"),
            (SetPolicy(vhost="/", name="p", pattern="", definition="{"), "bad_request"),
            (SetVhostLimits(vhost="/", definition='{"max-queues": "x"}'), "invalid"),
            (SetParameter(vhost="/", component="policy", name="x", value="1"), "invalid"),
            (
                SetParameter(vhost="/", component="pipeline-schedule", name="x", value="1"),
                "invalid",
            ),
            (SetSchedule(vhost="/", name="s", value="{}"), "invalid"),
            (SetSchedule(vhost="/", name="s", value='{"job":"a","user":"u"}'), "invalid"),
            (
                SetSchedule(vhost="/", name="s", value='{"job":"a","user":"u","cron":"x"}'),
                "invalid",
            ),
            (SetSchedule(vhost="v", name="s", value=SCHEDULE), "no_such_vhost"),
            (ClearSchedule(vhost="/", name="s"), "not_found"),
            (NoteRun(vhost="/", name="s", run=RUN), "not_found"),
            (IssueJobTicket(user="nobody"), "no_such_user"),
            (PurgeQueue(vhost="/", queue=b"q"), "not_found"),
            (PauseQueue(vhost="/", queue=b"q"), "not_found"),
            (ResumeQueue(vhost="/", queue=b"q"), "not_found"),
            (SetParameter(vhost="/", component="queue-pause", name="x", value="1"), "invalid"),
            (DeleteQueue(vhost="/", queue=b"q"), "not_found"),
            (CloseConnections(reason="x", pid="<a.1.2.3>"), "not_found"),
            (List(what="queues", columns=["name", "bogus"], vhost="/"), "bad_request"),
            (ResetNode(), "precondition"),
            (GetImport(), "precondition"),
            (CompactStores(vhost="v"), "no_such_vhost"),
            (DescribeFiles(vhost="v"), "no_such_vhost"),
            (DescribeCompactions(vhost="v"), "no_such_vhost"),
            (DescribeSegments(vhost="/", queue=b"q"), "not_found"),
            (CompactStores(node="other@host"), "not_found"),
        ]
        for request, code in cases:
            assert refusal(client, request) == code, request
        assert rows(client, "users", "user") == [["guest"], ["u"]]
        assert rows(client, "policies", "name", vhost="/") == []


def test_a_vhost_comes_and_goes_with_its_clients_and_messages(node: NodeThread) -> None:
    """A deleted vhost closes its clients, and a new one of its name is empty."""
    with local_client(node) as client:
        for _ in range(2):
            client.request(AddVhost(name="v"), Done)
            client.request(AddVhost(name="v", description="exists"), Done)
            client.request(
                SetPermissions(vhost="v", user="guest", configure=".*", write=".*", read=".*"), Done
            )
            parameters = pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{node.port}/v")
            connection = pika.BlockingConnection(parameters)
            channel = connection.channel()
            channel.confirm_delivery()
            assert channel.queue_declare("q", durable=True).method.message_count == 0
            for size in (10, 10_000):
                channel.basic_publish("", "q", bytes(size), pika.BasicProperties(delivery_mode=2))
            assert rows(client, "queues", "name", "messages", vhost="v") == [["q", 2]]
            client.request(DeleteVhost(name="v"), Done)
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
                channel.queue_declare("q", durable=True)
            assert closed.value.reply_code == 320
            assert closed.value.reply_text == "CONNECTION_FORCED - vhost 'v' is deleted"
    directories = node.node.config.data_dir / "msg_stores" / "vhosts"
    assert [path.name for path in directories.iterdir()] == ["1"]


def test_what_a_crash_leaves_of_a_deleted_vhost_is_no_store(tmp_path: Path) -> None:
    """A start removes a directory that was being removed, and keeps one that was not, aside."""
    node = NodeThread(tmp_path)
    with local_client(node) as client:
        for name in ("v", "w"):
            client.request(AddVhost(name=name), Done)
            client.request(DeleteVhost(name=name), Done)
    node.stop()
    data_dir = node.node.config.data_dir
    vhosts = data_dir / "msg_stores" / "vhosts"
    for name in ("2", "3.deleted", "9"):
        (vhosts / name).mkdir()
    node = NodeThread(tmp_path)
    assert sorted(path.name for path in vhosts.iterdir()) == ["1", "9"]
    assert [path.name.partition("-")[2] for path in (data_dir / "lost+found").iterdir()] == ["2"]
    node.stop()


def test_queues_and_connections_are_controlled(node: NodeThread) -> None:
    """Purge, delete and close do what AMQP does, with RabbitMQ's conditions."""
    connection = pika.BlockingConnection(pika.URLParameters(node.uri))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q")
    for _ in range(3):
        channel.basic_publish("", "q", b"x")
    with local_client(node) as client:
        assert refusal(client, DeleteQueue(vhost="/", queue=b"q", if_empty=True)) == "precondition"
        assert client.request(PurgeQueue(vhost="/", queue=b"q"), Counted).count == 3
        channel.basic_publish("", "q", b"x")
        assert client.request(DeleteQueue(vhost="/", queue=b"q"), Counted).count == 1
        (row,) = rows(client, "connections", "pid", "user", "state")
        assert row[1:] == ["guest", "running"]
        closing = CloseConnections(reason="maintenance", pid=row[0])
        assert client.request(closing, Counted).count == 1
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            channel.queue_declare("q")
        assert closed.value.reply_text == "CONNECTION_FORCED - maintenance"


def test_a_fault_of_the_broker_costs_one_request(
    node: NodeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug is answered and logged, at once and between the slices; the session goes on."""
    with local_client(node) as client:
        for calls, broken in ((Permits, "expect_tag"), (ListingCalls, "_build")):
            with monkeypatch.context() as patch:
                patch.setattr(calls, broken, None)
                assert refusal(client, List(what="users", columns=["user"])) == "internal_error"
        assert rows(client, "users", "user") == [["guest"]]


def test_a_stopped_broker_is_reset_and_started(node: NodeThread) -> None:
    """Without the broker there are no clients but admin sessions; a reset begins anew."""
    with local_client(node) as client:
        client.request(AddUser(name="u", password="p"), Done)
        client.request(AddVhost(name="v"), Done)
        client.request(SetRunning(is_on=False), Done)
        assert not client.request(DescribeControl(), ControlStatus).is_running
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.URLParameters(node.uri))
        client.request(ResetNode(), Done)
        client.request(SetRunning(is_on=True), Done)
        assert rows(client, "users", "user", "tags") == [["guest", ["administrator"]]]
        assert rows(client, "vhosts", "name") == [["/"]]
    pika.BlockingConnection(pika.URLParameters(node.uri)).close()


def test_a_broker_with_definitions_starts_with_them(tmp_path: Path) -> None:
    """Each start imports them; after a reset there is nothing else, not even the default user."""
    file = tmp_path / "definitions.json"
    given = '{"vhosts": [{"name": "v"}], "users": [{"name": "ann"}]}'
    file.write_text(given)
    node = NodeThread(tmp_path, f"load_definitions={file}")
    with local_client(node) as client:
        client.request(DeleteUser(name="ann"), Done)
        client.request(AddUser(name="u", password="p"), Done)
        for users in [["ann"], ["u"]], [["ann"]]:
            client.request(SetRunning(is_on=False), Done)
            if len(users) == 1:
                client.request(ResetNode(), Done)
                file.write_text("[]")
                assert refusal(client, SetRunning(is_on=True)) == "precondition"
                assert not client.request(DescribeControl(), ControlStatus).is_running
                assert rows(client, "users", "user") == rows(client, "vhosts", "name") == []
                file.write_text(given)
            client.request(SetRunning(is_on=True), Done)
            assert rows(client, "users", "user") == users
            assert rows(client, "vhosts", "name") == [["v"]]
    node.stop()


def test_the_control_file_lets_its_readers_in_and_nobody_else(tmp_path: Path) -> None:
    """Only the owner may read the file; a wrong token is refused; a stop removes the file."""
    node = NodeThread(tmp_path)
    data_dir = node.node.config.data_dir
    assert (data_dir / "control.json").stat().st_mode & 0o777 == 0o600
    control = read_control_file(data_dir)
    assert control.token not in repr(control)
    for token in ("", "wrong"):
        forged = ControlFile(control.node, control.address, token, control.pid)
        with pytest.raises(AdminRefusedError, match="token"):
            AdminClient(LocalAddress(forged))
    with AdminClient(LocalAddress(control, "/")) as client:
        client.request(ListGroups(), GroupList)
    # The management process declares and publishes over AMQP here, with its callers' passwords.
    pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{control.address}")).close()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(pika.URLParameters(f"amqp://guest:wrong@{control.address}"))
    node.stop()
    assert not (data_dir / "control.json").exists()
    with pytest.raises(NodeUnreachableError):
        AdminClient(LocalAddress(control))
