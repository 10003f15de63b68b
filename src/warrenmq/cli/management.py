"""`warren management`: the HTTP API of a node, in a process of its own.

`warren server` runs it beside the node; alone it serves a node elsewhere.
"""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from warrenmq.admin.client.control_file import ControlFileError
from warrenmq.admin.client.local_node import find_local_node
from warrenmq.cli.output import fail
from warrenmq.server.config.options.http_listeners import (
    OFF,
    ManagementOptions,
    MetricsOptions,
    SiteOptions,
)


def management_command(
    uri: Annotated[
        str | None,
        typer.Option(metavar="URI", help="The node: amqp[s]://host:port. (default: the local one)"),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The data directory of a node on this machine."),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the API listens.")
    ] = "127.0.0.1:15672",
    metrics: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where metrics are, for all who reach the port."),
    ] = None,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Serve the HTTP API of a running node; each request brings its own user and password.

    A supervised process is a node's own: a line of its standard input has its options.
    """
    try:
        from warrenmq.management.process import place_of_directory, place_of_uri, serve
    except ModuleNotFoundError as error:
        fail(f"the HTTP API needs pip install 'warrenmq[management]' ({error})")
    if supervised:
        options = SiteOptions.from_line(sys.stdin.buffer.readline())
    else:
        options = SiteOptions(
            ManagementOptions(listen=_address("--listen", listen)),
            MetricsOptions(listen=OFF if metrics is None else _address("--metrics", metrics)),
        )
    try:
        if uri is not None:
            place = place_of_uri(uri)
        elif data_dir is not None:
            place = place_of_directory(data_dir)
        else:
            place = place_of_directory(find_local_node().path.parent)
    except (ValueError, ControlFileError) as error:
        fail(error)
    asyncio.run(serve(place, options, _announce, _refusal_of, supervised))


def _refusal_of(words: list[str]) -> str:
    # Imported here, because few processes start jobs.
    from warrenmq.cli.pipeline.words import refusal_of

    return refusal_of(words)


def _address(option: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal():
        fail(f"{option}: expected HOST:PORT, got '{text}'")
    return host.strip("[]"), int(port)


def _announce(line: str) -> None:
    print(line, flush=True)
