"""Commands and columns about mirrored queues: formats of RabbitMQ 3.10.8, and those of warren.

The node is real and replicates nothing; what its queues have of copies a test says (T22).
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest

from tests.support.brokers.mirrors import MirrorsOfTest, copy, facts
from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.control_file import read_control_file
from warrenmq.cli.control import main

Warrenctl = Callable[..., tuple[int, str, str]]
QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    """A node with the queues `plain`, `ha1`, `hello1` and `held`, a quorum queue."""
    thread = NodeThread(tmp_path_factory.mktemp("mirrors"))
    parameters = pika.ConnectionParameters("127.0.0.1", thread.port)
    with pytest.MonkeyPatch.context() as patch, pika.BlockingConnection(parameters) as link:
        patch.setenv("WARREN_DATA_DIR", str(thread.node.config.data_dir))
        channel = link.channel()
        for name in ("plain", "ha1", "hello1", "held"):
            arguments = QUORUM if name == "held" else {}
            channel.queue_declare(name, durable=True, arguments=arguments)
        channel.confirm_delivery()
        for mode in (1, 2, 2):
            channel.basic_publish("", "ha1", b"m", pika.BasicProperties(delivery_mode=mode))
        link.close()
        yield thread
    thread.stop()


@pytest.fixture
def mirrors(node: NodeThread) -> Iterator[MirrorsOfTest]:
    """The copies: of `ha1` on n3 and n2, none of `hello1`; the tests change them."""
    found = MirrorsOfTest()
    found.put("ha1", facts(copy("n3@host"), copy("n2@host", is_synced=False, lag=(2, 20))))
    found.put("hello1", facts())
    node.node.broker.mirrors = found
    yield found
    node.node.broker.mirrors = None


@pytest.fixture
def warrenctl(node: NodeThread, capsys: pytest.CaptureFixture[str]) -> Warrenctl:
    """Runs a command: its exit code, its output and its errors; the node is called NODE."""
    name = read_control_file(Path(node.node.config.data_dir)).node

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        printed = capsys.readouterr()
        return code, printed.out.replace(name, "NODE"), printed.err.replace(name, "NODE")

    return run


# -- without replication ---------------------------------------------------------------------------


def test_the_policy_of_the_request_is_set_and_shown(warrenctl: Warrenctl, tmp_path: Path) -> None:
    """M31 and M32, word for word."""
    definition = (
        '{"ha-mode":"nodes","ha-params":["rabbit@10.18.195.57"],"ha-sync-mode":"automatic"}'
    )
    assert warrenctl(
        "set_policy", "--apply-to", "queues", "hello-ha", "^hello", definition
    ) == (
        0,
        (f'Setting policy "hello-ha" for pattern "^hello" to "{definition}" with priority "0" '
        'for vhost "/" ...\n'),
        "",
    )  # fmt: skip
    assert warrenctl("list_policies")[1] == (
        'Listing policies for vhost "/" ...\n'
        "vhost\tname\tpattern\tapply-to\tdefinition\tpriority\n"
        f"/\thello-ha\t^hello\tqueues\t{definition}\t0\n"
    )
    manually = definition.replace("automatic", "manually")
    assert warrenctl("-q", "set_policy", "hello-ha", "^hello", manually) == (0, "", "")
    manual = definition.replace("automatic", "manual")
    assert manual in warrenctl("list_policies")[1]
    exported = warrenctl("export_definitions", "-")[1]
    assert '"ha-sync-mode":"manual"' in exported.replace(": ", ":")
    again = tmp_path / "definitions.json"
    again.write_text(exported.replace('"manual"', '"manually"'))
    assert warrenctl("-q", "import_definitions", str(again))[0] == 0
    assert manual in warrenctl("list_policies")[1]
    assert warrenctl("export_definitions", "-")[1] == exported
    assert warrenctl("-q", "clear_policy", "hello-ha") == (0, "", "")


def test_queues_without_replication_have_no_mirrors(warrenctl: Warrenctl) -> None:
    """M33."""
    listed = warrenctl("list_queues", "name", "slave_pids", "synchronised_slave_pids", "state")
    assert listed == (
        0,
        (
            "Timeout: 60.0 seconds ...\nListing queues for vhost / ...\n"
            "name\tslave_pids\tsynchronised_slave_pids\tstate\n"
            "plain\t\t\trunning\nha1\t\t\trunning\nhello1\t\t\trunning\nheld\t\t\trunning\n"
        ),
        "",
    )
    for command in ("sync_queue", "mirror_status"):
        assert warrenctl("-q", command, "plain") == (69, "", "Error:\nnot_mirrored\n")
        assert warrenctl("-q", command, "nosuch") == (69, "", "Error:\nnot_found\n")
        assert warrenctl("-q", command, "plain", "-p", "no") == (69, "", "Error:\nnot_found\n")
    assert warrenctl("-q", "cancel_sync_queue", "plain") == (0, "not_syncing\n", "")
    assert warrenctl("-q", "cancel_sync_queue", "nosuch") == (69, "", "Error:\nnot_found\n")
    assert warrenctl("rebalance", "all") == (
        69,
        "Re-balancing leaders of all replicated queues...\n",
        "Error:\nrebalance is not available: queues have no mirrors\n",
    )
    assert warrenctl("-q", "rebalance", "streams")[0] == 69


# -- listings --------------------------------------------------------------------------------------


def test_mirrors_in_a_listing_of_queues(mirrors: MirrorsOfTest, warrenctl: Warrenctl) -> None:
    listed = warrenctl("-s", "list_queues", "name", "slave_pids", "synchronised_slave_pids")
    assert listed[1] == (
        "plain\t\t\n"
        "ha1\t[<n3@host.3.40.7>, <n2@host.3.40.7>]\t[<n3@host.3.40.7>]\n"
        "hello1\t[]\t[]\n"
        "held\t\t\n"
    )
    names = ("name", "slave_nodes", "synchronised_slave_nodes", "recoverable_slaves")
    assert warrenctl("-s", "list_queues", *names)[1].splitlines()[1] == (
        "ha1\t[n3@host, n2@host]\t[n3@host]\t[n1@host, n3@host, n2@host]"
    )
    found = warrenctl("list_queues", "name", "slave_pids", "state", "--formatter", "json")[1]
    assert json.loads(found)[:3] == [
        {"name": "plain", "slave_pids": "", "state": "running"},
        {"name": "ha1", "slave_pids": ["<n3@host.3.40.7>", "<n2@host.3.40.7>"], "state": "running"},
        {"name": "hello1", "slave_pids": [], "state": "running"},
    ]
    found = warrenctl("list_queues", "name", "slave_pids", "--formatter", "erlang", "-q")[1]
    assert "{slave_pids,[<n3@host.3.40.7>,<n2@host.3.40.7>]}" in found.replace("\n", "").replace(
        " ", ""
    )


def test_members_of_mirrored_queues(mirrors: MirrorsOfTest, warrenctl: Warrenctl) -> None:
    mirrors.put("ha1", facts(copy("n3@host"), copy("n2@host", is_online=False)))
    mirrors.put("held", facts(copy("n2@host")))
    listed = warrenctl("-s", "list_queues", "name", "leader", "members", "online", "slave_pids")
    assert listed[1] == (
        "plain\t\t\t\t\n"
        "ha1\tn1@host\t[n1@host, n3@host, n2@host]\t[n1@host, n3@host]\t"
        "[<n3@host.3.40.7>, <n2@host.3.40.7>]\n"
        "hello1\tn1@host\t[n1@host]\t[n1@host]\t[]\n"
        "held\tn1@host\t[n1@host, n2@host]\t[n1@host, n2@host]\t[<n2@host.3.40.7>]\n"
    )


def test_the_state_of_a_queue_that_is_synchronised(
    mirrors: MirrorsOfTest, warrenctl: Warrenctl
) -> None:
    """RabbitMQ shows how many messages were copied; here, to the mirror that is last."""
    mirrors.put(
        "ha1",
        facts(
            copy("n3@host", sync=(80_000, 90_000)),
            copy("n2@host", is_synced=False, sync=(73_728, 90_000)),
        ),
    )
    mirrors.put("hello1", facts(is_down=True, reason="died"))
    listed = warrenctl("-s", "list_queues", "name", "state", "reason")[1].splitlines()[1:3]
    assert listed == ["ha1\t{syncing, 73728}\tdeclared", "hello1\tdown\tdied"]
    found = warrenctl("list_queues", "state", "--formatter", "json")[1]
    assert found.split("\n")[2] == ',{"state":["syncing",73728]}'
    found = warrenctl("-q", "list_queues", "state", "--formatter", "erlang")[1]
    assert "[{state,{syncing,73728}}]" in found
    assert '"{syncing, 73728}"' in warrenctl("list_queues", "state", "--formatter", "csv")[1]


# -- mirror_status ---------------------------------------------------------------------------------

STATUS = """\
Status of mirrored queue 'ha1' in vhost '/' ...
Queue

Name: ha1
Virtual host: /
State: syncing, 10 messages copied
Reason: promoted
Messages: 3
Epoch: 3, version: 9
Synchronised copies needed to publish: 2

Master

n1@host <NODE.2.2.0>

Mirrors

n3@host <n3@host.3.40.7> synchronised, lag: 1 messages (9 bytes), 45 ms
n2@host <n2@host.3.40.7> unsynchronised syncing 10 of 30 messages, 8 messages/s, \
800 bytes/s, 2.5 s left, lag: 2 messages (20 bytes)
n4@host <n4@host.3.40.7> unsynchronised offline, lag: unknown

Ring

n1@host -> n4@host -> n2@host -> n3@host -> n1@host

Recoverable copies

n1@host
n3@host
n2@host
n4@host

Lost if a node stops now

n1@host: nothing: n3@host takes over
n3@host: no message; publishes are refused until 2 copies are synchronised
n2@host: nothing
n4@host: nothing
"""


def test_the_status_of_a_mirrored_queue(mirrors: MirrorsOfTest, warrenctl: Warrenctl) -> None:
    found = facts(
        copy("n3@host", lag=(1, 9), lag_ms=45),
        copy("n2@host", is_synced=False, lag=(2, 20), sync=(10, 30), rates=(8, 800)),
        copy("n4@host", is_synced=False, is_online=False, lag=(-1, -1)),
        reason="promoted",
        min_sync=2,
    )
    mirrors.put("ha1", found)
    assert warrenctl("mirror_status", "ha1") == (0, STATUS, "")
    data = json.loads(warrenctl("mirror_status", "ha1", "-p", "/", "--formatter", "json")[1])
    assert set(data) == {
        "epoch", "lost_if_stops", "messages", "min_sync", "mirrors", "name", "node", "pid", "reason",
        "recoverable_slaves", "ring", "slave_nodes", "state", "sync_messages",
        "synchronised_slave_nodes", "version", "vhost",
    }  # fmt: skip
    assert (data["state"], data["sync_messages"], data["messages"]) == ("syncing", 10, 3)
    assert data["slave_nodes"] == ["n3@host", "n2@host", "n4@host"]
    assert data["synchronised_slave_nodes"] == ["n3@host"]
    assert data["mirrors"][1] == {
        "node": "n2@host", "pid": "<n2@host.3.40.7>", "is_synchronised": False, "is_online": True,
        "lag_messages": 2, "lag_bytes": 20, "sync_messages": 10, "sync_total": 30,
        "sync_bytes": None, "lag_ms": None, "sync_message_rate": 8, "sync_byte_rate": 800,
        "sync_left_ms": 2500,
    }  # fmt: skip
    assert data["lost_if_stops"]["n2@host"] == {"messages": 0, "text": "nothing"}


def test_a_queue_that_only_its_master_has_whole(
    mirrors: MirrorsOfTest, warrenctl: Warrenctl
) -> None:
    mirrors.put("ha1", facts(copy("n2@host", is_synced=False, lag=(2, 20))))
    assert warrenctl("-q", "mirror_status", "ha1")[1].splitlines()[-2:] == [
        (
            "n1@host: the queue is down until n1@host is back, with 2 messages; "
            "1 transient messages are lost"
        ),
        "n2@host: nothing",
    ]


# -- commands --------------------------------------------------------------------------------------


def test_a_synchronisation_is_waited_for(mirrors: MirrorsOfTest, warrenctl: Warrenctl) -> None:
    syncing = facts(copy("n2@host", is_synced=False, sync=(1, 3)))
    # The request, then two looks at the progress.
    mirrors.next = [syncing, syncing, facts(copy("n2@host"))]
    assert warrenctl("sync_queue", "ha1") == (
        0,
        "Synchronising queue 'ha1' in vhost '/' ...\n",
        "",
    )
    assert mirrors.asked == [("sync", b"ha1")] and mirrors.next == []
    mirrors.failure = "no mirror can be reached"
    assert warrenctl("-q", "sync_queue", "ha1") == (69, "", "Error:\nno mirror can be reached\n")


def test_a_synchronisation_that_ends_before_is_an_error(
    mirrors: MirrorsOfTest, warrenctl: Warrenctl
) -> None:
    """A script must not stop the master next. Nobody waits for a mirror that is out of reach."""
    lost = copy("n3@host", is_synced=False, is_online=False)
    syncing = facts(copy("n2@host", is_synced=False, sync=(1, 3)), lost)
    mirrors.next = [syncing, syncing, facts(copy("n2@host", is_synced=False), lost)]
    assert warrenctl("-q", "sync_queue", "ha1") == (
        69,
        "",
        "Error:\nended early; not synchronised: n2@host\n",
    )
    mirrors.next = [syncing, syncing, facts(copy("n2@host"), lost)]
    assert warrenctl("-q", "sync_queue", "ha1") == (0, "", "")


def test_a_synchronisation_is_cancelled(mirrors: MirrorsOfTest, warrenctl: Warrenctl) -> None:
    banner = "Stopping synchronising queue 'ha1' in vhost '/' ...\n"
    assert warrenctl("cancel_sync_queue", "ha1") == (0, f"{banner}not_syncing\n", "")
    mirrors.is_syncing = True
    assert warrenctl("cancel_sync_queue", "ha1") == (0, banner, "")
    assert warrenctl("-q", "sync_queue", "plain") == (69, "", "Error:\nnot_mirrored\n")
    assert mirrors.asked == [("cancel", b"ha1")] * 2


def test_a_name_that_is_no_text_is_refused(warrenctl: Warrenctl) -> None:
    """The shell passes any bytes on."""
    code, out, errors = warrenctl("mirror_status", "\udcff")
    assert (code, out) == (64, "")
    assert errors.startswith("Error (argument validation): arguments must be UTF-8.\n")


def test_masters_are_rebalanced(mirrors: MirrorsOfTest, warrenctl: Warrenctl) -> None:
    mirrors.put("held", facts(copy("n2@host"), master="n2@host"))
    counts = (
        "Node name\tNumber of quorum queues\tNumber of replicated classic queues\n"
        "n1@host\t0\t2\nn2@host\t1\t0\n"
    )
    table = ("-q", "--formatter", "table")
    assert warrenctl("rebalance", "all", "--queue-pattern", "^h.*1$", *table) == (0, counts, "")
    assert mirrors.asked == [("rebalance", b"ha1"), ("rebalance", b"hello1")]
    mirrors.asked.clear()
    assert warrenctl("rebalance", "quorum", *table)[0] == 0
    assert mirrors.asked == [("rebalance", b"held")]
    assert warrenctl("rebalance", "all", "--vhost-pattern", "(", *table)[0] == 69
    mirrors.failure = "node n2@host has not answered"
    assert warrenctl("-q", "rebalance", "all")[2] == "Error:\nnode n2@host has not answered\n"


def test_a_master_without_synchronised_mirror_is_critical(
    mirrors: MirrorsOfTest, warrenctl: Warrenctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("-q", "check_if_node_is_mirror_sync_critical")
    alone = (
        "Node NODE seems to be the only one in a single node cluster, the check does not apply\n"
    )
    assert warrenctl(*command) == (0, alone, "")
    monkeypatch.setattr("warrenmq.cli.control.nodes.redundancy._is_alone", lambda _run: False)
    assert warrenctl(*command) == (
        69,
        "",
        (
            "Error:\nqueue 'hello1' in vhost '/' would lose its only synchronised replica (master) "
            "if node NODE is stopped\n"
        ),
    )
    await_command = ("-q", "await_online_synchronized_mirror", "-t", "0")
    code, _, error = warrenctl(*await_command)
    assert code == 69 and "queue 'hello1' in vhost '/'\n" in error
    mirrors.put("hello1", facts(copy("n2@host")))
    assert warrenctl(*command)[0] == 0
    assert warrenctl(*await_command) == (0, "", "")
    # A synchronised mirror whose node does not run cannot take over.
    mirrors.put("hello1", facts(copy("n2@host", is_online=False)))
    assert warrenctl(*command)[0] == 69


def test_a_quorum_queue_without_another_synchronised_copy_is_critical(
    mirrors: MirrorsOfTest, warrenctl: Warrenctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warrenmq.cli.control.nodes.redundancy._is_alone", lambda _run: False)
    command = ("-q", "check_if_node_is_quorum_critical")
    mirrors.put("held", facts(copy("n2@host"), copy("n3@host")))
    assert warrenctl(*command) == (
        0, "Node NODE reported no quorum queues with minimum quorum\n", ""
    )  # fmt: skip
    assert warrenctl("-q", "await_online_quorum_plus_one", "-t", "0") == (0, "", "")
    for others in ([], [copy("n2@host", is_synced=False), copy("n3@host", is_online=False)]):
        mirrors.put("held", facts(*others))
        assert warrenctl(*command) == (
            69,
            "",
            "Error:\nqueue 'held' in vhost '/' would lose quorum if node NODE is stopped\n",
        )
        code, _, error = warrenctl("-q", "await_online_quorum_plus_one", "-t", "0")
        assert code == 69 and "queue 'held' in vhost '/'\n" in error


def test_the_copies_of_a_quorum_queue(mirrors: MirrorsOfTest, warrenctl: Warrenctl) -> None:
    mirrors.put("held", facts(copy("n3@host"), copy("n2@host", is_synced=False, is_online=False)))
    found = warrenctl("-q", "quorum_status", "held", "--formatter", "json")[1]
    assert [list(row.values()) for row in json.loads(found)] == [
        ["n1@host", "leader", True, True],
        ["n3@host", "follower", True, True],
        ["n2@host", "follower", False, False],
    ]
    mirrors.put("held", facts(copy("n2@host"), is_down=True))
    found = warrenctl("-q", "quorum_status", "held", "--formatter", "csv")[1]
    assert '"n2@host","follower"' in found and "leader" not in found
    assert warrenctl("-q", "quorum_status", "plain") == (
        69, "", "Error:\nCannot get quorum status of a classic queue\n"
    )  # fmt: skip
    assert warrenctl("-q", "quorum_status", "held", "-p", "no") == (69, "", "Error:\nnot_found\n")


def test_a_node_in_maintenance_has_no_clients(node: NodeThread, warrenctl: Warrenctl) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", node.port)
    connection = pika.BlockingConnection(parameters)
    assert warrenctl("drain") == (
        0,
        (
            "Will put node NODE into maintenance mode. "
            "The node will no longer serve any client traffic!\n"
        ),
        "",
    )
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="maintenance mode"):
        connection.channel()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(parameters)
    assert "Node: NODE, status: marked for maintenance\n" in warrenctl("cluster_status")[1]
    assert "Is under maintenance?: true\n" in warrenctl("status")[1]
    assert warrenctl("revive") == (
        0,
        (
            "Will put node NODE back into regular operating mode. "
            "The node will again serve client traffic and host primary queue replicas.\n"
        ),
        "",
    )
    pika.BlockingConnection(parameters).close()
    status = json.loads(warrenctl("cluster_status", "--formatter", "json")[1])
    assert list(status["maintenance_status"].values()) == ["not under maintenance"]
    # A start of the broker ends the mode.
    assert [warrenctl("-q", each)[0] for each in ("drain", "stop_app", "start_app")] == [0, 0, 0]
    pika.BlockingConnection(parameters).close()
