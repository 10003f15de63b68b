"""RabbitMQ's tools by their names, as configuration management calls and reads them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

import warrenmq
from tests.support.brokers.process import BrokerProcess
from warrenmq.admin.client.control_file import read_control_file
from warrenmq.cli.control import main
from warrenmq.cli.control.formats.output import Style, Table, pretty_table
from warrenmq.cli.control.programs import PROGRAMS, WARRENCTL
from warrenmq.vocabulary.feature_flags import FEATURE_FLAGS

RABBITMQ_VERSION: Final = "3.10.8"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A node called rabbit, as these tools expect it; the commands find it."""
    process = BrokerProcess(tmp_path_factory.mktemp("node"), "node_name=rabbit")
    process.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARREN_DATA_DIR", str(process.directory / "data"))
        yield process
    process.stop()


# -- names -----------------------------------------------------------------------------------------


@pytest.fixture
def warrenctl(tmp_path: Path) -> Path:
    """An executable `warrenctl` that runs this build."""
    script = tmp_path / "bin" / "warrenctl"
    script.parent.mkdir()
    code = "from warrenmq.cli.control import script\nscript()\n"
    script.write_text(f"#!{sys.executable}\n{code}")
    script.chmod(0o755)
    return script


def call(executable: Path, *words: str) -> tuple[int, str, str]:
    """Run an executable: its exit code and what it printed."""
    paths = [os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(":") if each]
    done = subprocess.run(
        [executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": ":".join(paths)},
    )
    return done.returncode, done.stdout, done.stderr


def test_each_link_has_the_commands_of_its_name(
    node: BrokerProcess, warrenctl: Path, tmp_path: Path
) -> None:
    links = tmp_path / "tools"
    code, printed, _ = call(warrenctl, "-q", "aliases", str(links))
    assert (code, printed.split()) == (0, [str(links / name) for name in PROGRAMS])
    assert {each.name for each in links.iterdir()} == set(PROGRAMS)
    assert call(links / "rabbitmqctl", "--version") == (0, f"{RABBITMQ_VERSION}\n", "")
    assert call(links / "rabbitmqctl", "-s", "list_vhosts") == (0, "/\n", "")
    assert call(links / "rabbitmq-plugins", "-s", "list", "-m", "shovel_m")[:2] == (
        0,
        "rabbitmq_shovel_management\n",
    )
    code, _, error = call(links / "rabbitmq-upgrade", "list_vhosts")
    assert code == 64 and "Command 'list_vhosts' not found" in error
    assert "rabbitmq-upgrade help <command>" in error and "post_upgrade" in error
    # A second run finds its links, and a file of somebody else stays.
    assert call(warrenctl, "-q", "aliases", str(links))[0] == 0
    (links / "rabbitmq-queues").unlink()
    (links / "rabbitmq-queues").write_text("something else")
    (links / "rabbitmqctl").unlink()
    code, _, error = call(warrenctl, "-q", "aliases", str(links))
    assert code == 70 and f"{links / 'rabbitmq-queues'} exists" in error
    assert not (links / "rabbitmqctl").exists()


def test_every_tool_has_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    for program in PROGRAMS.values():
        assert main(["help", "help"], program) == 0
        assert f"\n{program.name} [--node <node>]" in capsys.readouterr().out
    assert PROGRAMS["rabbitmqctl"].commands == WARRENCTL.commands
    assert "list" not in WARRENCTL.commands and "set" not in WARRENCTL.commands


# -- versions --------------------------------------------------------------------------------------


def test_rabbitmqs_version_is_the_answer_and_warrens_own_stands_beside(
    node: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    own = warrenmq.__version__

    def printed(*words: str) -> str:
        assert main(words) == 0
        return capsys.readouterr().out

    assert printed("version") == printed("--version") == f"{RABBITMQ_VERSION}\n"
    assert printed("-q", "server_version") == f"{RABBITMQ_VERSION}\n"
    value = json.loads(printed("version", "--formatter", "json"))["value"]
    assert value == {
        "version": RABBITMQ_VERSION,
        "product_name": "warren",
        "product_version": own,
    }
    status = printed("-q", "status")
    assert f"\nRabbitMQ version: {RABBITMQ_VERSION}\nwarren version: {own}\n" in status
    data = json.loads(printed("status", "--formatter", "json"))
    assert (data["rabbitmq_version"], data["product_version"]) == (RABBITMQ_VERSION, own)
    name = read_control_file(node.directory / "data").node
    assert f"{name}: RabbitMQ {RABBITMQ_VERSION} (warren {own}) on" in printed("cluster_status")
    data = json.loads(printed("cluster_status", "--formatter", "json"))["versions"][name]
    assert (data["rabbitmq_version"], data["product_version"]) == (RABBITMQ_VERSION, own)


# -- what is shown ---------------------------------------------------------------------------------


def test_the_memory_limit_is_shown_as_it_was_set(
    node: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown() -> tuple[str, object]:
        assert main(["-q", "status"]) == 0
        (line,) = re.findall(r"Memory high watermark setting: (.*)\n", capsys.readouterr().out)
        assert main(["status", "--formatter", "json"]) == 0
        data = json.loads(capsys.readouterr().out)
        return str(line), data["vm_memory_high_watermark_setting"]

    assert main(["-q", "set_vm_memory_high_watermark", "absolute", "2GB"]) == 0
    assert shown() == ("2.0 gb, computed to: 2.0 gb", {"absolute": 2_000_000_000})
    assert main(["-q", "set_vm_memory_high_watermark", "0.5"]) == 0
    line, setting = shown()
    assert line.startswith("0.5 of available memory, computed to: ")
    assert setting == {"relative": 0.5}
    assert main(["-q", "set_vm_memory_high_watermark", "0.4"]) == 0


def test_a_pretty_table_draws_lines_for_a_terminal_only() -> None:
    found = Table(("name",), [["q"]])
    assert pretty_table(found, Style()) == ("+------+\n| name |\n+------+\n| q    |\n+------+\n")
    assert pretty_table(found, Style(is_terminal=True)).startswith("\x1b(0lqqqqqqk\x1b(B\n")


def test_the_pid_of_a_listing_closes_its_connection(
    node: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    with pika.BlockingConnection(pika.URLParameters(node.uri)) as link:
        assert main(["-s", "list_connections", "pid"]) == 0
        (pid,) = capsys.readouterr().out.split()
        assert main(["-q", "close_connection", pid, "bye"]) == 0
        with pytest.raises(ConnectionClosedByBroker, match="bye"):
            link.process_data_events(10)


# -- feature flags ---------------------------------------------------------------------------------


def test_a_queue_type_whose_flag_is_enabled_can_be_declared(
    node: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    with pika.BlockingConnection(pika.URLParameters(node.uri)) as link:
        for flag, kind in (("quorum_queue", "quorum"), ("stream_queue", "stream")):
            channel = link.channel()
            try:
                channel.queue_declare(kind, durable=True, arguments={"x-queue-type": kind})
                is_there = True
            except ChannelClosedByBroker as error:
                assert error.reply_code == 406
                is_there = False
            assert is_there == FEATURE_FLAGS[flag]
            assert main(["enable_feature_flag", flag]) == (0 if is_there else 64)
    capsys.readouterr()
    assert main(["-q", "quorum_status", "quorum", "--formatter", "json"]) == 0
    name = read_control_file(node.directory / "data").node
    assert json.loads(capsys.readouterr().out) == [
        {"Node Name": name, "Raft State": "leader", "Synchronised": True, "Online": True}
    ]


# -- configuration management ----------------------------------------------------------------------


class Step(NamedTuple):
    """A command line, and a regular expression that its caller searches for in the output."""

    tool: str
    words: tuple[str, ...]
    pattern: str = ""


def steps(tool: str, *lines: tuple[str, str] | str) -> list[Step]:
    """One step a line: words, which blanks separate, maybe with a pattern."""
    pairs = [(line, "") if isinstance(line, str) else line for line in lines]
    return [Step(tool, tuple(line.split(" ")), pattern) for line, pattern in pairs]


HA: Final = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
# The commands of Puppet's module rabbitmq, with the patterns by which it reads their output.
PUPPET: Final = [
    *steps(
        "rabbitmqctl",
        ("-q status", r"RabbitMQ.*?3\.10\.8"),
        ("status", r"(?m)^Status of node '?[\w.-]+@[\w.-]+'?"),
        ("-q cluster_status", r"(?m)^Cluster name: (\S+)$"),
        ("list_users -q --no-table-headers", r"\A(\S+)\s+\[.*?\]\n\Z"),
        "add_user app secret",
        "set_user_tags app administrator",
        ("list_users -q --no-table-headers", r"(?m)^app\t\[administrator\]$"),
        "authenticate_user app secret",
        "change_password app other",
        "add_vhost shop",
        ("list_vhosts -q --no-table-headers", r"(?m)^shop$"),
        "set_permissions -p shop app .* .* .*",
        (
            "list_user_permissions -q --no-table-headers app",
            r"\A(\S+)\s+(\S*)\s+(\S*)\s+(\S*)\n\Z",
        ),
        "set_topic_permissions -p shop app amq.topic ^a ^b",
        (
            "list_user_topic_permissions -q --no-table-headers app",
            r"\A(\S+)\s+(\S*)\s+(\S*)\s+(\S*)\n\Z",
        ),
        f"set_policy -p shop --priority 0 --apply-to queues ha-all ^orders {HA}",
        (
            "list_policies -q --no-table-headers -p shop",
            r"\A(\S+)\s+(\S+)\s+(\S+)\s+(all|exchanges|queues)\s+(\S+)\s+(\d+)\n\Z",
        ),
        "clear_policy -p shop ha-all",
        'set_parameter -p shop shovel moved {"src-uri":"amqp://"}',
        ("list_parameters -q --no-table-headers -p shop", r"\A(\S+)\s+(\S+)\s+(\S+)\n\Z"),
        "clear_parameter -p shop shovel moved",
        "clear_topic_permissions -p shop app",
        "clear_permissions -p shop app",
        "delete_vhost shop",
        "delete_user app",
        "set_cluster_name rabbit@shop",
        ("-q cluster_status", r"(?m)^Cluster name: rabbit@shop$"),
    ),
    *steps(
        "rabbitmq-plugins",
        ("list -E -m", r"(?m)^rabbitmq_consistent_hash_exchange$"),
        "enable rabbitmq_management",
        "disable rabbitmq_management",
    ),
]
# The commands of Ansible's collection community.rabbitmq.
ANSIBLE: Final = [
    *steps(
        "rabbitmqctl",
        ("-q -n rabbit status", r"RabbitMQ version: 3\.10\.8\n"),
        ("-q -n rabbit status --formatter json", r'"rabbitmq_version":"3\.10\.8"'),
        "-q -n rabbit add_vhost /shop",
        ("-q -n rabbit list_vhosts name tracing", r"(?m)^/shop\tfalse$"),
        "-q -n rabbit trace_on -p /shop",
        "-q -n rabbit trace_off -p /shop",
        ("-q -p /shop list_vhost_limits", r"\A\n\Z"),
        '-q -p /shop set_vhost_limits {"max-connections":64,"max-queues":256}',
        ("-q -p /shop list_vhost_limits", r'\A\{"max-connections":64,"max-queues":256\}\n\Z'),
        "-q -p /shop clear_vhost_limits",
        "-q -n rabbit add_user joe changeme",
        ("-q -n rabbit list_users --formatter json", r'\{"user":"joe","tags":\[\]\}'),
        "-q -n rabbit set_user_tags joe monitoring management",
        "-q -n rabbit set_permissions -p /shop joe .* .* .*",
        (
            "-q -n rabbit list_user_permissions joe --formatter json",
            r'\{"vhost":"/shop","configure":"\.\*","write":"\.\*","read":"\.\*"\}',
        ),
        ("-q list_user_limits --user joe", r"\A\{\}\n\Z"),
        '-q set_user_limits joe {"max-connections":64}',
        ("-q list_user_limits --user joe", r'\A\{"max-connections":64\}\n\Z'),
        "-q clear_user_limits joe max-channels",
        "-q clear_user_limits joe all",
        f"-q -n rabbit set_policy -p /shop HA .* {HA} --priority 0 --apply-to queues",
        ("-q -n rabbit list_policies -p /shop", r"(?m)^/shop\tHA\t\.\*\tqueues\t\{.*\}\t0$"),
        "-q -n rabbit clear_policy -p /shop HA",
        '-q -n rabbit set_parameter -p /shop federation local-username "guest"',
        (
            "-q -n rabbit list_parameters -p /shop",
            r'(?m)^federation\tlocal-username\t"guest"$',
        ),
        "-q -n rabbit clear_parameter -p /shop federation local-username",
        '-q -n rabbit set_global_parameter cluster_name "mq-cluster"',
        ("-q -n rabbit list_global_parameters", r'(?m)^cluster_name\t"mq-cluster"$'),
        "-q -n rabbit clear_global_parameter cluster_name",
        "-q -n rabbit clear_permissions -p /shop joe",
        "-q -n rabbit delete_user joe",
        "-q -n rabbit delete_vhost /shop",
        ("list_feature_flags -q", r"(?m)^maintenance_mode_status\tenabled$"),
        "-q -n rabbit enable_feature_flag maintenance_mode_status",
    ),
    *steps(
        "rabbitmq-diagnostics",
        ("--formatter json status -n rabbit", r'"is_under_maintenance":false'),
    ),
    *steps(
        "rabbitmq-upgrade",
        "await_online_quorum_plus_one",
        "await_online_synchronized_mirror",
        "drain -n rabbit",
        "revive -n rabbit",
        "post_upgrade",
    ),
    *steps(
        "rabbitmq-plugins",
        ("-n rabbit list -E -m", r"(?m)^rabbitmq_random_exchange$"),
        "-n rabbit disable --online rabbitmq_random_exchange",
        "-n rabbit enable --offline rabbitmq_management",
    ),
]
# The commands of kolla's images and of kolla-ansible.
KOLLA: Final = [
    *steps(
        "rabbitmq-diagnostics",
        "-t 5 -q ping",
        "-t 5 -q status",
        "-t 5 -q check_running",
        "-t 5 -q check_local_alarms",
        "-t 5 -q check_port_connectivity",
        "-t 5 -q check_virtual_hosts",
    ),
    *steps(
        "rabbitmqctl",
        ("--version", r"\A3\.10\.8\n\Z"),
        ("wait --timeout 60 {pid_file}", r"Applications 'rabbit_and_plugins' are running on node"),
        "enable_feature_flag all",
        ("list_policies --silent", r"\A\n\Z"),
        ("cluster_status --formatter json", r'"running_nodes":\["rabbit@'),
        "await_online_nodes 1",
    ),
]


@pytest.mark.parametrize("replayed", [PUPPET, ANSIBLE, KOLLA], ids=["puppet", "ansible", "kolla"])
def test_configuration_management_reads_what_it_expects(
    node: BrokerProcess,
    replayed: list[Step],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pid_file = tmp_path / "pid"
    pid_file.write_text(str(read_control_file(node.directory / "data").pid))
    failed = []
    for tool, words, pattern in replayed:
        line = [word.replace("{pid_file}", str(pid_file)) for word in words]
        code = main(line, PROGRAMS[tool])
        printed = capsys.readouterr()
        if code != 0 or re.search(pattern, printed.out) is None:
            failed.append((tool, words, code, printed.out[:300], printed.err))
    assert not failed
