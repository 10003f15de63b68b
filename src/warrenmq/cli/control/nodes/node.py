"""The node: start and stop, limits, log, and waiting for it."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, get_args

from warrenmq.admin.protocol import control
from warrenmq.admin.protocol.cluster import DescribeMember, MemberDescription
from warrenmq.cli.control.command import Command, Run
from warrenmq.cli.control.exits import SOFTWARE, CommandError, UsageError, bad_argument
from warrenmq.cli.control.formats.output import Output, Text
from warrenmq.cli.control.link import NoNodeError
from warrenmq.cli.control.parsing import Option

GROUP: Final = "Nodes"
_SETTINGS: Final = "Configuration and environment"
_Level = Literal["debug", "info", "warning", "error", "critical"]
_LEVELS: Final[tuple[_Level, ...]] = get_args(_Level)
_START_TIMEOUT_S: Final = 300
_PAUSE_S: Final = 0.05


def _status(run: Run) -> control.ControlStatus:
    return run.ask(control.DescribeControl(), control.ControlStatus)


# -- start and stop --------------------------------------------------------------------------------


def _set_running(run: Run, is_on: bool) -> Output:
    run.do(control.SetRunning(is_on=is_on))
    return None


def _reset(run: Run, is_forced: bool) -> Output:
    run.do(control.ResetNode(is_forced=is_forced))
    return None


def _stop(run: Run) -> Output:
    pid = _status(run).pid
    run.do(control.StopNode())
    if run.link.is_local:
        _await_end(pid)
    return None


def _stop_idempotently(run: Run) -> Output:
    try:
        return _stop(run)
    except NoNodeError:
        if not run.flag("idempotent"):
            raise
    return Text(f"Node {run.link.expected_name} is no longer running")


def _shutdown(run: Run) -> Output:
    status = _status(run)
    run.do(control.StopNode())
    where = f"RabbitMQ node {status.node} running at PID {status.pid}"
    if not run.flag("wait") and run.has("wait"):
        return Text(f"Shutting down {where}")
    if run.link.is_local:
        print(f"Waiting for PID {status.pid} to terminate", flush=True)
        _await_end(status.pid)
    return Text(f"{where} successfully shut down")


def _await_end(pid: int) -> None:
    """Return when the process `pid` has ended."""
    while _is_alive(pid):
        time.sleep(_PAUSE_S)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # A process whose parent has not fetched its status is still there.
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


# -- waiting ---------------------------------------------------------------------------------------


def _await(run: Run, is_there: Callable[[], bool], failure: CommandError) -> Output:
    """Return when `is_there`. Raises CommandError after --timeout."""
    seconds = _START_TIMEOUT_S if run.timeout_s is None else run.timeout_s
    deadline = time.monotonic() + seconds
    while True:
        try:
            if is_there():
                return None
        except NoNodeError as error:
            failure = error
            run.link.close()
        if time.monotonic() >= deadline:
            raise failure
        time.sleep(_PAUSE_S)


def _await_running(run: Run) -> Output:
    """Return when the broker runs in the node."""
    return _await(
        run, lambda: _status(run).is_running, CommandError("Error:\nrabbit_is_not_running")
    )


def _await_nodes(run: Run) -> Output:
    """Return when the node is linked with enough other nodes, and runs itself."""

    def are_there() -> bool:
        links = run.ask(DescribeMember(), MemberDescription).links
        return len(links) + 1 >= int(run[0]) and _status(run).is_running

    text = f"Error: timed out while waiting. Not enough nodes joined {run.node}'s cluster."
    return _await(run, are_there, CommandError(f"Error:\n{text}", SOFTWARE))


def _check_count(run: Run) -> None:
    if not run[0].isdecimal() or int(run[0]) < 1:
        raise bad_argument("count must be a positive integer")


def _await_nodes_banner(run: Run) -> str:
    seconds = _START_TIMEOUT_S if run.timeout_s is None else run.timeout_s
    return (
        f"Will wait for at least {run[0]} nodes to join the cluster of {run.node}. "
        f"Timeout: {seconds} seconds."
    )


# RabbitMQ's name for all that a node starts; scripts search the output of `wait` for it.
_APPLICATIONS: Final = "Applications 'rabbit_and_plugins'"


def _wait(run: Run) -> Output:
    """Return when the broker runs in the process, with RabbitMQ's messages for each step."""
    pid = run.number("pid")
    if not run.has("pid"):
        pid = _pid_of_file(run)
        _say(run, f"pid is {pid}")
        _say(run, _wait_text(run, pid))
    is_there = False
    while True:
        if not _is_alive(pid):
            raise CommandError("Error:\nprocess_not_running")
        try:
            is_running = _status(run).is_running
            if not is_there:
                is_there = True
                _say(run, f"Waiting for a{_APPLICATIONS[1:]} to start on node '{run.node}'")
            if is_running:
                text = f"{_APPLICATIONS} are running on node '{run.node}'"
                return Text(text, hidden_by="quiet")
        except NoNodeError:
            run.link.close()
        time.sleep(_PAUSE_S)


def _wait_text(run: Run, pid: int) -> str:
    where = run.link.expected_name
    return f"Waiting for erlang distribution on node '{where}' while OS process '{pid}' is running"


def _say(run: Run, text: str) -> None:
    """Print a message about a step of a command that waits."""
    if not run.is_quiet:
        print(text, flush=True)


def _pid_of_file(run: Run) -> int:
    """The pid in the file of the first argument, as soon as there is one."""
    while True:
        with suppress(OSError, ValueError):
            return int(Path(run[0]).read_text())
        time.sleep(_PAUSE_S)


def _check_wait(run: Run) -> None:
    if bool(run.arguments) == run.has("pid"):
        raise UsageError('"No pid or pidfile specified"')


def _wait_banner(run: Run) -> str:
    if run.has("pid"):
        return _wait_text(run, run.number("pid"))
    return f"Waiting for pid file '{run[0]}' to appear"


# -- limits and log --------------------------------------------------------------------------------


def _size(text: str) -> int:
    """Bytes of a size as rabbitmq.conf has it. Raises UsageError."""
    from warrenmq.server.config.errors import ConfigError
    from warrenmq.server.config.values import size

    try:
        return int(str(size(0, 1 << 60)(text)))
    except ConfigError:
        raise bad_argument() from None


def _fraction(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise bad_argument() from None


def _check_memory(run: Run) -> None:
    if run[0] == "absolute":
        if len(run.arguments) == 1:
            raise UsageError("not enough arguments.")
        _size(run[1])
        return
    if len(run.arguments) > 1:
        raise UsageError("too many arguments.")
    if not 0 <= _fraction(run[0]) <= 1:
        raise bad_argument("The threshold should be a fraction between 0.0 and 1.0")


def _set_memory(run: Run) -> Output:
    is_absolute = run[0] == "absolute"
    run.do(
        control.SetMemoryLimit(absolute=_size(run[1]))
        if is_absolute
        else control.SetMemoryLimit(relative=_fraction(run[0]))
    )
    return None


def _memory_banner(run: Run) -> str:
    limit = f"{run[1]} bytes" if run[0] == "absolute" else run[0]
    return f"Setting memory threshold on {run.node} to {limit} ..."


def _check_disk(run: Run) -> None:
    if run[0] == "mem_relative":
        if len(run.arguments) == 1:
            raise UsageError("not enough arguments.")
        if _fraction(run[1]) < 0:
            raise bad_argument()
        return
    if len(run.arguments) > 1:
        raise UsageError("too many arguments.")
    _size(run[0])


def _set_disk(run: Run) -> Output:
    is_relative = run[0] == "mem_relative"
    run.do(
        control.SetDiskLimit(relative=_fraction(run[1]))
        if is_relative
        else control.SetDiskLimit(absolute=_size(run[0]))
    )
    return None


def _disk_banner(run: Run) -> str:
    limit = f"{run[1]} times the total RAM" if run[0] == "mem_relative" else f"{run[0]} bytes"
    return f"Setting disk free limit on {run.node} to {limit} ..."


def _level(run: Run) -> _Level | None:
    return next((level for level in _LEVELS if level == run[0]), None)


def _set_log_level(run: Run) -> Output:
    level = _level(run)
    if level is None:
        known = ", ".join(_LEVELS)
        raise CommandError(f"Error:\nlevel {run[0]} is not supported. Try one of {known}")
    run.do(control.SetLogLevel(level=level))
    return None


def _rotate_logs(run: Run) -> Output:
    run.do(control.RotateLogs())
    return None


COMMANDS: Final = (
    Command(
        "await_startup", GROUP, "Waits until the broker runs", _await_running,
        needs="nothing", takes_timeout=True, waits_itself=True,
    ),
    Command(
        "await_online_nodes", "Cluster", "Waits until so many nodes run", _await_nodes,
        "<count>", (1, 1), takes_timeout=True, needs="node", waits_itself=True,
        banner=_await_nodes_banner, check=_check_count,
    ),
    Command(
        "force_reset", GROUP, "Does as reset, also when etcd does not answer",
        lambda run: _reset(run, True),
        needs="stopped", banner=lambda run: f"Forcefully resetting node {run.node} ...",
    ),
    Command(
        "reset", GROUP, "Leaves the cluster, deletes all definitions and messages",
        lambda run: _reset(run, False), needs="stopped", banner=lambda run: f"Resetting node {run.node} ...",
    ),
    Command(
        "rotate_logs", GROUP, "Begins a new log file", _rotate_logs, needs="node",
        banner=lambda run: f"Rotating logs for node {run.node} ...",
    ),
    Command(
        "shutdown", GROUP, "Stops the node and waits for its end", _shutdown,
        options=(Option("wait", "flag", help="--no-wait returns at once"),),
        takes_timeout=True, needs="node",
        banner=lambda run: (
            f"Shutting down RabbitMQ node {run.node} running at PID {_status(run).pid}"
        ),
    ),
    Command(
        "start_app", GROUP, "Starts the broker in a node where stop_app has stopped it",
        lambda run: _set_running(run, True), needs="node",
        banner=lambda run: f"Starting node {run.node} ...",
    ),
    Command(
        "stop", GROUP, "Stops the node and waits for its end", _stop_idempotently,
        "[<pidfile>]", (0, 1), needs="nothing",
        options=(Option("idempotent", "flag", help="no error when no node runs"),),
        banner=lambda run: f"Stopping and halting node {run.link.expected_name} ...",
    ),
    Command(
        "stop_app", GROUP, "Stops the broker and leaves the node running, for reset",
        lambda run: _set_running(run, False), needs="node",
        banner=lambda run: f"Stopping rabbit application on node {run.node} ...",
    ),
    Command(
        "wait", GROUP, "Waits until the broker runs in a process", _wait, "[<pidfile>]", (0, 1),
        options=(Option("pid", "integer", "P", "the process"),),
        takes_timeout=True, needs="nothing", banner=_wait_banner, check=_check_wait,
    ),
    Command(
        "set_disk_free_limit", _SETTINGS, "Sets the disk limit until the next start", _set_disk,
        "<disk_limit> | mem_relative <fraction>", (1, 2), banner=_disk_banner, check=_check_disk,
    ),
    Command(
        "set_log_level", _SETTINGS, "Sets the log level until the next start", _set_log_level,
        "<log_level>", (1, 1),
        banner=lambda run: "" if _level(run) is None else f'Setting log level to "{run[0]}" ...',
    ),
    Command(
        "set_vm_memory_high_watermark", _SETTINGS, "Sets the memory limit until the next start",
        _set_memory, "<fraction> | absolute <value>", (1, 2),
        banner=_memory_banner, check=_check_memory,
    ),
)  # fmt: skip
