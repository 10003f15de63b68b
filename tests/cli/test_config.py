"""`warren config`: every fault at once, and what is in force with its source."""

from pathlib import Path

from tests.support.command_line import warren, warren_json


def test_check_reports_all_faults(tmp_path: Path) -> None:
    path = tmp_path / "rabbitmq.conf"
    path.write_text("heartbeat = x\nnonsense\nlisteners.tpc.1 = 5672\nframe_max = 1\n")
    done = warren("config", "check", path, environment={"WARREN_CONF__channel_max": "-"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"warren: {path}:2: expected KEY = VALUE",
        f"warren: {path}:1: heartbeat: expected an integer, got 'x'",
        f"warren: {path}:3: unknown key 'listeners.tpc.1'; did you mean listeners.tcp.1?",
        f"warren: {path}:4: frame_max: 1 is not between 4096 and 2147483647",
        "warren: WARREN_CONF__channel_max: channel_max: expected an integer, got '-'",
    ]
    path.write_text("heartbeat = 5\nqueue_leader_locator = balanced\n")
    done = warren("config", "check", path)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "warning: these keys are checked but wait for a later version of warren: queue_leader_locator",
        "the configuration is valid",
    ]


def test_show_names_the_source_of_each_value_and_hides_passwords(tmp_path: Path) -> None:
    path = tmp_path / "rabbitmq.conf"
    path.write_text(
        "heartbeat = 5\nchannel_max = 5\nlisteners.tcp.1 = 1111\nmax_message_size = 1MiB\n"
        "default_pass = s3cret\nmanagement.ssl.password = s3cret\ndisk_free_limit.relative = 1.5\n"
    )
    rows = warren_json(
        "config", "show", "--effective", "--config", path, "--set", "channel_max=7",
        "--listen", "127.0.0.1:0", "--set", "loopback_users.bob=true",
    )  # fmt: skip
    shown = {row["key"]: (row["value"], row["source"], row["effect"]) for row in rows}
    connect = "reload, for new connections"
    assert shown["heartbeat"] == ("5", f"{path}:1", connect)
    assert shown["channel_max"] == ("7", "--set", connect)
    assert shown["frame_max"] == ("131072", "default", connect)
    assert shown["max_message_size"] == ("1048576", f"{path}:4", connect)
    assert shown["default_pass"] == ("(hidden)", f"{path}:5", "first start")
    assert shown["management.ssl.password"][0] == "(hidden)"
    assert shown["listeners.tcp.default"] == ("127.0.0.1:0", "--listen", "restart")
    assert shown["loopback_users.bob"] == ("true", "--set", connect)
    assert shown["disk_free_limit.relative"] == ("1.5", f"{path}:7", "reload")
    superseded = ("listeners.tcp", "listeners.tcp.1", "disk_free_limit.absolute")
    assert not shown.keys() & {*superseded, "loopback_users", "loopback_users.guest"}
    table = warren("config", "show", "--effective", environment={"RABBITMQ_NODE_PORT": "99"}).stdout
    assert "s3cret" not in table
    lines = [line.split() for line in table.splitlines()]
    assert ["listeners.tcp.default", "99", "RABBITMQ_NODE_PORT", "restart"] in lines
    assert ["connection_max", "infinity", "default", "reload"] in lines
