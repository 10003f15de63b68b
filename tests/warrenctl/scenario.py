"""The calls that the golden outputs record: families in order, each call in the state before it.

The recorder makes them with RabbitMQ's tools on a RabbitMQ, the golden test with `warrenctl` on a
warren node. A family is a file in `calls/`. A line is what a shell would get, without the tool:

* `diagnostics`, `plugins`, `queues` or `upgrade` before a command: it belongs to
  rabbitmq-diagnostics, rabbitmq-plugins and so on;
* `...` at the end: the call in all formats;
* `<<<` and a text at the end: the text is the first line of standard input;
* `{dir}`, `{port}`, `{pid}` and `{os_pid}`: see runner.py.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# RabbitMQ's tools besides rabbitmqctl, as a line names them.
TOOLS: Final = ("diagnostics", "plugins", "queues", "upgrade")
FORMATS: Final = (
    "", "-q", "-s", "--no-table-headers", "--formatter=table", "--formatter json",
    "--formatter csv", "--formatter=pretty_table", "-s --formatter csv",
    "-q --formatter pretty_table", "--no-table-headers --formatter csv", "--formatter erlang",
)  # fmt: skip
QUEUE_COLUMNS: Final = (
    "name durable auto_delete arguments policy exclusive messages messages_ready "
    "messages_unacknowledged message_bytes message_bytes_ready message_bytes_unacknowledged "
    "consumers state type "
    "exclusive_consumer_tag slave_pids synchronised_slave_pids leader members online"
)


@dataclass(frozen=True)
class Call:
    """One run of a tool: `line` may name placeholders, see runner.py."""

    line: str
    stdin: str = ""

    @property
    def tool(self) -> str:
        """The RabbitMQ tool that has the command."""
        word = self.line.partition(" ")[0]
        return f"rabbitmq-{word}" if word in TOOLS else "rabbitmqctl"

    @property
    def arguments(self) -> list[str]:
        """The arguments as the shell splits them."""
        words = shlex.split(self.line)
        return words if self.tool == "rabbitmqctl" else words[1:]


def _calls(family: str) -> list[Call]:
    calls: list[Call] = []
    for line in (
        Path(__file__).with_name("calls").joinpath(f"{family}.txt").read_text().splitlines()
    ):
        command, _, stdin = line.partition(" <<< ")
        if command.endswith(" ..."):
            base = command.removesuffix(" ...")
            calls += [Call(f"{base} {way}".strip()) for way in FORMATS]
        else:
            calls.append(Call(command, f"{stdin}\n" if stdin else ""))
    return calls


FAMILIES: Final[dict[str, list[Call]]] = {
    family: _calls(family)
    for family in (
        "usage", "users", "permissions", "vhosts", "policies", "parameters", "queues", "listings",
        "checks", "node", "definitions", "tools", "closing", "stopping",
    )
}  # fmt: skip
