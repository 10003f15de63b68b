"""The table of commands: help, completion and the page that lists it; and finding the node."""

import json
import os
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.tls_process import TlsBroker
from tests.support.command_line import nobody
from tests.support.skips import does_not_apply
from warrenmq.admin.client.client import AdminClient, LocalAddress
from warrenmq.admin.client.control_file import ControlFile, read_control_file, write_control_file
from warrenmq.admin.protocol.control import List, Rows
from warrenmq.cli.control import main
from warrenmq.cli.control.absent import REASONS
from warrenmq.cli.control.command import Command
from warrenmq.cli.control.completion import bash, fish, zsh
from warrenmq.cli.control.programs import COMMANDS

PAGE: Final = Path(__file__).parents[2] / "docs" / "operations" / "warrenctl.md"
SCRIPT: Final = "from warrenmq.cli.control import script; script()"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A node, and its data directory in the environment."""
    process = BrokerProcess(tmp_path_factory.mktemp("node"))
    process.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARREN_DATA_DIR", str(process.directory / "data"))
        yield process
    process.stop()


def test_the_page_lists_all_commands() -> None:
    rows = re.findall(r"^\| `(\w+).*?` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    listed = {name: text for name, text in rows if name in COMMANDS}
    assert listed == {name: command.summary for name, command in COMMANDS.items()}


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name, command in COMMANDS.items():
        assert main(["help", name]) == 0
        text = capsys.readouterr().out
        assert main([name, "--help"]) == 0
        assert capsys.readouterr().out == text
        assert f" {name}" in text
        for option in command.options:
            assert f"--{option.name}" in text


def test_no_option_of_a_command_hides_a_general_one() -> None:
    for command in COMMANDS.values():
        line = command.usage("warrenctl")
        assert line.count(" --vhost") <= 1, line
        assert all(option.help for option in command.options), command.name


def test_bash_completes_commands_options_and_columns(tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(bash(COMMANDS.values()))

    def completed(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in ("warrenctl", *words))
        ask = (
            f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; "
            '_warrenctl; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", ask], capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.split()

    assert completed("list_q") == ["list_queues"]
    assert completed("-q", "list_queues", "messages_r") == [
        "messages_ram",
        "messages_ready",
        "messages_ready_ram",
    ]
    assert completed("set_policy", "--pri") == ["--priority"]


@pytest.mark.parametrize(("shell", "make"), [("zsh", zsh), ("fish", fish)])
def test_other_shells_can_read_their_script(
    shell: str, make: Callable[[Iterable[Command]], str], tmp_path: Path
) -> None:
    if shutil.which(shell) is None:
        does_not_apply(f"no {shell} here")
    script = tmp_path / "completion"
    script.write_text(make(COMMANDS.values()))
    subprocess.run([shell, "-n", str(script)], check=True, timeout=60)


def test_absent_commands_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    for name, reason in REASONS.items():
        assert main([name, "--whatever", "it", "-x"]) == 69
        assert reason in capsys.readouterr().err


def test_columns_are_those_of_the_node(node: BrokerProcess) -> None:
    control = read_control_file(node.directory / "data")
    lists = {
        name.removeprefix("list_"): command.columns
        for name, command in COMMANDS.items()
        if command.columns and command.needs == "running" and "unresponsive" not in name
    }
    assert len(lists) >= 7
    with AdminClient(LocalAddress(control)) as client:
        for what, columns in lists.items():
            request = List(what=what, columns=list(columns), vhost="/")  # type: ignore[arg-type]  # a name of a listing
            client.request(request, Rows)


def test_a_compaction_shows_what_it_copies(
    node: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-q", "compact", "/", "--store", "transient"]) == 0
    assert capsys.readouterr().out == "vhost\tstore\tfiles\tgarbage_bytes\n/\ttransient\t0\t0\n"
    assert main(["-s", "compact"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["compact", "--store", "x"]) != 0
    assert "persistent, transient" in capsys.readouterr().err


def test_a_process_of_its_own(node: BrokerProcess) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout, done.stderr

    assert run("-s", "list_vhosts") == (0, "/\n", "")
    assert run("-q", "delete_user", "nobody") == (
        67,
        "",
        'Error:\nUser "nobody" does not exist\n',
    )
    assert run("add_user")[0] == 64


def test_a_reader_may_stop_early() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as stdout:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, "help"],
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_user_reaches_the_node_by_its_uri(
    node: BrokerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["add_user", "watcher", "pw"]) == 0
    assert main(["set_permissions", "watcher", "", "", ""]) == 0
    assert main(["set_user_tags", "watcher", "monitoring"]) == 0
    where = f"127.0.0.1:{node.port}"
    monkeypatch.setenv("WARREN_URI", f"amqp://watcher:pw@{where}")
    monkeypatch.delenv("WARREN_DATA_DIR")
    capsys.readouterr()
    assert main(["-s", "list_vhosts"]) == 0
    assert capsys.readouterr().out == "/\n"
    assert main(["-q", "delete_user", "watcher"]) == 69
    assert "administrator" in capsys.readouterr().err
    # An option on the command line overrides the environment.
    assert main(["--uri", f"amqp://watcher:wrong@{where}", "list_vhosts"]) == 69
    capsys.readouterr()
    assert main(["--data-dir", str(node.directory / "data"), "-q", "delete_user", "watcher"]) == 0


def test_without_a_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WARREN_DATA_DIR", raising=False)
    with nobody() as port:
        places = [["--data-dir", str(tmp_path)], ["--uri", f"amqp://guest:guest@127.0.0.1:{port}"]]
        for place in places:
            for words in (["list_queues"], ["add_user", "a", "b"], ["check_running"], ["status"]):
                assert main([*place, *words]) == 69
                printed = capsys.readouterr()
                assert printed.out == ""
                assert printed.err.startswith("Error: unable to perform an operation on node ")
                assert "--uri" in place or f"no node runs on {tmp_path}\n" in printed.err
    # The message has the absolute paths of all directories that were tried.
    monkeypatch.chdir(tmp_path)
    assert main(["status"]) == 69
    tried = f"no node runs on /var/lib/warren or {tmp_path / 'warren-data'}\n"
    assert tried in capsys.readouterr().err
    assert main(["--uri", "http://x", "list_queues"]) == 64


def test_a_banner_names_the_node_of_the_control_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when that node does not answer."""
    with nobody() as port:
        control = ControlFile("rabbit@there", f"127.0.0.1:{port}", "token", 1)
        write_control_file(tmp_path, control)
        assert main(["--data-dir", str(tmp_path), "ping"]) == 69
    printed = capsys.readouterr()
    assert printed.out.startswith("Will ping rabbit@there. ")
    assert "rabbit@there" in printed.err


def test_the_help_of_an_unknown_command_has_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "lst_queues"]) == 64
    assert capsys.readouterr().err == (
        "Error:\n\nCommand 'lst_queues' not found. \nDid you mean 'list_queues'? \n\n"
    )


def test_json_on_a_command_line_may_be_lenient(
    node: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands and values of public scripts for RabbitMQ."""
    for words in (
        ["set_policy", "-p", "lenient", "ha-all", ".", "{'ha-mode':'all'}"],
        ["set_operator_policy", "-p", "lenient", "ttl", ".", "{'message-ttl':60000,}"],
        ["set_vhost_limits", "-p", "lenient", "{'max-connections':5}"],
        ["set_user_limits", "guest", "{'max-connections':5}"],
        ["set_global_parameter", "mqtt", "{'a':[1,],}"],
    ):
        if words[0] == "set_policy":
            assert main(["-q", "add_vhost", "lenient"]) == 0
        assert main(["-q", *words]) == 0, words
    assert main(["-s", "list_policies", "-p", "lenient"]) == 0
    assert main(["-s", "list_vhost_limits", "-p", "lenient"]) == 0
    printed = capsys.readouterr().out
    assert '{"ha-mode":"all"}' in printed and '{"max-connections":5}' in printed
    assert main(["-q", "delete_vhost", "lenient"]) == 0
    assert main(["-q", "clear_user_limits", "guest", "all"]) == 0
    assert main(["-q", "clear_global_parameter", "mqtt"]) == 0


def test_the_node_must_be_the_expected_one(
    node: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    name = read_control_file(node.directory / "data").node
    assert main(["-n", name, "ping"]) == 0
    assert main(["-n", name.partition("@")[0], "ping"]) == 0
    capsys.readouterr()
    assert main(["-n", "other", "list_queues"]) == 69
    assert name in capsys.readouterr().err


def test_definitions_go_through_standard_streams(
    node: BrokerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["export_definitions", "-"]) == 0
    exported = json.loads(capsys.readouterr().out)
    exported["vhosts"].append({"name": "piped"})
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(exported))
    assert main(["import_definitions", str(file), "--dry-run"]) == 0
    assert "piped" in capsys.readouterr().out
    assert main(["-s", "list_vhosts"]) == 0
    assert "piped" not in capsys.readouterr().out
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "import_definitions"],
        stdin=file.open(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith("Importing definitions in JSON from standard input ...\n")
    assert main(["-s", "list_vhosts"]) == 0
    assert "piped" in capsys.readouterr().out
    assert main(["-q", "delete_vhost", "piped"]) == 0


def test_the_report_has_all_listings(
    node: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report"]) == 0
    text = capsys.readouterr().out
    for title in ("Status of node", "Cluster status", "Listing queues", "Listing policies"):
        assert title in text


def test_settings_with_their_sources(
    node: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-q", "environment", "--sources", "--formatter", "json"]) == 0
    told = {each["key"]: each for each in json.loads(capsys.readouterr().out)}
    assert told["data_dir"] == {
        "key": "data_dir",
        "value": str(node.directory / "data"),
        "source": "--data-dir",
        "change_takes_effect": "restart",
        "pending": "",
        "pending_source": "",
        "waits_for": "",
    }
    assert told["default_pass"]["value"] == "(hidden)"
    assert main(["-q", "set_vm_memory_high_watermark", "0.3"]) == 0
    assert main(["-q", "environment", "--sources"]) == 0
    printed = capsys.readouterr().out
    assert (
        "vm_memory_high_watermark.relative\t0.3\truntime\treload\t0.4\tdefault\trestart" in printed
    )
    assert main(["-q", "set_vm_memory_high_watermark", "0.4"]) == 0


def test_the_log_of_a_node_without_a_log_file(
    node: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-q", "log_location"]) == 0
    assert capsys.readouterr().out == "<stderr>\n"
    assert main(["-q", "log_tail", "-N", "1000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5 and set(lines) <= set(node.log_path.read_text().splitlines())
    streaming = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "-q", "log_tail_stream"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert streaming.stdout is not None
        for share in ("0.3", "0.4") * 60:
            # The stream begins when the command has found the node.
            assert main(["-q", "set_vm_memory_high_watermark", share]) == 0
            if select.select([streaming.stdout], [], [], 0.5)[0]:
                break
        assert "memory high watermark set to" in streaming.stdout.readline()
    finally:
        streaming.kill()
        streaming.wait()
        assert main(["-q", "set_vm_memory_high_watermark", "0.4"]) == 0


def test_the_end_of_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "node.log"
    process = BrokerProcess(tmp_path / "node", f"log.file={log}", "log.file.level=info")
    place = ["--data-dir", str(tmp_path / "node" / "data")]
    for words in (["stop"], ["shutdown"]):
        process.start()
        assert process.process is not None
        pid = process.process.pid
        assert main([*place, "wait", "--pid", str(pid)]) == 0
        assert main([*place, "await_startup"]) == 0
        capsys.readouterr()
        assert main([*place, "-q", "log_location"]) == 0
        assert capsys.readouterr().out == f"{log}\n"
        assert main([*place, "-q", "log_tail", "-N", "2"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 2
        assert main([*place, *words]) == 0
        assert process.process.wait(60) == 0
        process.kill()
        assert main([*place, "wait", "--pid", str(pid)]) == 69
    assert f"running at PID {pid} successfully shut down" in capsys.readouterr().out
    assert main([*place, "stop"]) == 69
    assert main([*place, "stop", "--idempotent"]) == 0


def test_checks_of_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = TlsBroker(tmp_path / "node")
    process.start()
    place = ["--data-dir", str(tmp_path / "node" / "data")]
    try:
        assert main(["--uri", process.tls_uri, "-s", "list_vhosts"]) == 0
        assert capsys.readouterr().out == "/\n"
        assert main([*place, "check_protocol_listener", "amqp/ssl"]) == 0
        assert main([*place, "check_port_connectivity"]) == 0
    finally:
        process.stop()
