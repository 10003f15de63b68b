#!/usr/bin/env python3
"""rabbitmqadmin: works with a broker's HTTP API from the command line.

A script of warren with the commands of RabbitMQ's; it works with both. It needs Python 3.8 and
nothing else: the API serves it for download.
"""

from __future__ import annotations

import argparse
import base64
import configparser
import http.client
import json
import os
import ssl
import sys
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

VERSION = "3.10.8"
FORMATS = ("raw_json", "pretty_json", "tsv", "long", "table", "kvp", "bash")

# Kinds of objects that `list` takes: the path, whether a vhost may follow, and default columns.
LISTS = {
    "connections": ("connections", False, "name,user,channels"),
    "channels": ("channels", False, "name,user"),
    "consumers": ("consumers", False, ""),
    "exchanges": ("exchanges", True, "name,type"),
    "queues": ("queues", True, "name,messages"),
    "bindings": ("bindings", True, "source,destination,routing_key"),
    "users": ("users", False, ""),
    "vhosts": ("vhosts", False, "name,messages"),
    "permissions": ("permissions", False, ""),
    "nodes": ("nodes", False, "name,type,mem_used"),
    "parameters": ("parameters", False, ""),
    "policies": ("policies", True, ""),
    "operator_policies": ("operator-policies", True, ""),
    "vhost_limits": ("vhost-limits", True, ""),
}
OVERVIEW = "rabbitmq_version,cluster_name,queue_totals.messages,object_totals.queues"


class Kind(NamedTuple):
    """What can be declared: its path, the arguments that it needs and takes, and what they are."""

    path: str
    needed: tuple[str, ...]
    # Arguments that may be left out, with the values that are sent then; None: nothing is.
    taken: dict[str, Any] = {}
    # Arguments whose values are JSON.
    json: tuple[str, ...] = ()
    # Arguments that a deletion needs.
    key: tuple[str, ...] = ("name",)


_DURABLE = {"durable": "true", "auto_delete": "false", "arguments": {}}
_POLICY = {"priority": 0, "apply-to": None, "vhost": None}
KINDS = {
    "exchange": Kind(
        "exchanges/{vhost}/{name}",
        ("name", "type"),
        {**_DURABLE, "internal": "false"},
        ("arguments",),
    ),
    "queue": Kind(
        "queues/{vhost}/{name}",
        ("name",),
        {**_DURABLE, "node": None, "queue_type": None},
        ("arguments",),
    ),
    "binding": Kind(
        "bindings/{vhost}/e/{source}/{destination_type}/{destination}",
        ("source", "destination"),
        {"destination_type": "queue", "routing_key": "", "arguments": {}},
        ("arguments",),
        ("source", "destination_type", "destination"),
    ),
    "vhost": Kind("vhosts/{name}", ("name",), {"tracing": None}),
    "user": Kind(
        "users/{name}",
        ("name", "tags"),
        {"password": None, "password_hash": None, "hashing_algorithm": None},
    ),
    "permission": Kind(
        "permissions/{vhost}/{user}",
        ("vhost", "user", "configure", "write", "read"),
        key=("vhost", "user"),
    ),
    "parameter": Kind(
        "parameters/{component}/{vhost}/{name}",
        ("component", "name", "value"),
        {"vhost": None},
        ("value",),
        ("component", "name"),
    ),
    "policy": Kind(
        "policies/{vhost}/{name}", ("name", "pattern", "definition"), _POLICY, ("definition",)
    ),
    "operator_policy": Kind(
        "operator-policies/{vhost}/{name}",
        ("name", "pattern", "definition"),
        _POLICY,
        ("definition",),
    ),
    "vhost_limit": Kind(
        "vhost-limits/{vhost}/{name}",
        ("vhost", "name", "value"),
        json=("value",),
        key=("vhost", "name"),
    ),
}
# Kinds of objects that `close` and `purge` take.
CLOSED = {"connection": Kind("connections/{name}", ("name",))}
PURGED = {"queue": Kind("queues/{vhost}/{name}/contents", ("name",))}

# Columns that stand before all others, and columns whose objects are shown whole.
LEADING = ("vhost", "name", "source", "destination", "type", "routing_key", "exchange")
WHOLE = ("definition", "value")


class Fault(Exception):
    """The command cannot be carried out; the text says why."""


class UsageFault(Fault):
    """The command line names no command, or gives it wrong arguments."""


# -- the API ---------------------------------------------------------------------------------------


class Api:
    """The HTTP API at the place that the options name."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._prefix = "/" + options.path_prefix.strip("/") if options.path_prefix else ""
        host, port = options.host, options.port
        if not str(port).isdigit() or int(port) > 65535:
            raise UsageFault(f"port must be a number, not {port}")
        timeout = float(options.request_timeout)
        self._connection: http.client.HTTPConnection
        if options.ssl:
            context = _tls(options)
            self._connection = http.client.HTTPSConnection(
                host, int(port), timeout=timeout, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
        login = base64.b64encode(f"{options.username}:{options.password}".encode()).decode()
        self._headers = {"authorization": f"Basic {login}", "content-type": "application/json"}

    def __call__(self, method: str, path: str, body: str | None = None) -> str:
        """The body of the reply. Raises Fault."""
        path = f"{self._prefix}/api/{path}"
        try:
            data = None if body is None else body.encode()
            self._connection.request(method, path, data, self._headers)
            reply = self._connection.getresponse()
            text = reply.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            raise Fault(f"*** Could not connect: {error}\n") from None
        if reply.status == 400:
            raise Fault(f"*** {_reason(text)}\n")
        if reply.status in (401, 403):
            raise Fault(f"*** Access refused: {path}\n")
        if reply.status == 404:
            raise Fault(f"*** Not found: {path}\n")
        if not 200 <= reply.status < 300:
            raise Fault(f"*** {reply.status} {reply.reason}: {_reason(text)}\n")
        return text


def _reason(text: str) -> Any:
    try:
        return json.loads(text)["reason"]
    except (ValueError, KeyError, TypeError):
        return text


def _tls(options: argparse.Namespace) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ssl_ca_cert_file or None)
        if options.ssl_cert_file:
            context.load_cert_chain(options.ssl_cert_file, options.ssl_key_file or None)
    except OSError as error:
        raise Fault(f"*** Could not use the certificates: {error}\n") from None
    if options.ssl_insecure or options.ssl_disable_hostname_verification:
        context.check_hostname = False
    if options.ssl_insecure:
        context.verify_mode = ssl.CERT_NONE
    return context


# -- commands --------------------------------------------------------------------------------------


class Commands:
    """The subcommands; each takes the words after its name."""

    def __init__(self, options: argparse.Namespace, api: Api) -> None:
        self._options = options
        self._api = api

    def list_(self, words: list[str]) -> None:
        """Show objects of one kind."""
        if not words or words[0] not in LISTS:
            raise UsageFault(f"Don't know how to list {' '.join(words[:1])}")
        path, has_vhost, columns = LISTS[words[0]]
        if has_vhost and self._options.vhost:
            path += "/" + quote(self._options.vhost, "")
        self._show(path, words[1:], columns, False)

    def show(self, words: list[str]) -> None:
        """Show the overview."""
        if words[:1] != ["overview"]:
            raise UsageFault(f"Don't know how to show {' '.join(words[:1])}")
        self._show("overview", words[1:], OVERVIEW, True)

    def _show(self, path: str, wanted: list[str], columns: str, is_single: bool) -> None:
        options = self._options
        if not wanted and options.depth is None and not options.format.endswith("json"):
            wanted = [name for name in columns.split(",") if name]
        query: dict[str, str] = {}
        if wanted:
            query["columns"] = ",".join(wanted)
        if options.sort:
            query["sort"] = options.sort
        if options.sort_reverse:
            query["sort_reverse"] = "true"
        if query:
            path += "?" + urlencode(query, safe=",")
        text = self._api("GET", path)
        output(f"[{text}]" if is_single else text, wanted, options)

    def declare(self, words: list[str]) -> None:
        """Make an object, or check that it is there."""
        name, kind, given = arguments_of(words, KINDS)
        values = {**kind.taken, **_known(given, kind.needed, tuple(kind.taken))}
        for argument in kind.json:
            if isinstance(values.get(argument), str):
                values[argument] = _parsed(values[argument])
        queue_type = values.pop("queue_type", None)
        if queue_type is not None:
            values["arguments"] = {**values["arguments"], "x-queue-type": queue_type}
        if name == "user" and values["password"] is None and values["password_hash"] is None:
            raise UsageFault('mandatory argument "password" is required')
        path = self._path(kind.path, values)
        body = {key: value for key, value in values.items() if value is not None}
        self._api("POST" if name == "binding" else "PUT", path, json.dumps(body))
        self._say(f"{name} declared")

    def delete(self, words: list[str]) -> None:
        """Delete an object."""
        name, kind, given = arguments_of(words, KINDS)
        values = _known(given, kind.key, ("vhost", "properties_key"))
        path = self._path(kind.path, values)
        if name == "binding":
            path += "/" + quote(values.get("properties_key", "~"), "")
        self._api("DELETE", path)
        self._say(f"{name} deleted")

    def close(self, words: list[str]) -> None:
        """Close a connection."""
        name, kind, given = arguments_of(words, CLOSED)
        self._api("DELETE", self._path(kind.path, _known(given, kind.needed, ())))
        self._say(f"{name} closed")

    def purge(self, words: list[str]) -> None:
        """Remove all ready messages of a queue."""
        name, kind, given = arguments_of(words, PURGED)
        self._api("DELETE", self._path(kind.path, _known(given, kind.needed, ("vhost",))))
        self._say(f"{name} purged")

    def publish(self, words: list[str]) -> None:
        """Publish a message, whose payload may come from standard input."""
        taken = ("payload", "properties", "exchange", "payload_encoding", "vhost")
        values = _known(_pairs(words), ("routing_key",), taken)
        payload = values["payload"] if "payload" in values else sys.stdin.read()
        body = {
            "properties": _parsed(values.get("properties", "{}")),
            "routing_key": values["routing_key"],
            "payload": payload,
            "payload_encoding": values.get("payload_encoding", "string"),
        }
        values.setdefault("exchange", "amq.default")
        path = self._path("exchanges/{vhost}/{exchange}/publish", values)
        reply = json.loads(self._api("POST", path, json.dumps(body)))
        is_routed = reply["routed"]
        self._say("Message published" if is_routed else "Message published but NOT routed")

    def get(self, words: list[str]) -> None:
        """Show messages of a queue, or write one to a file."""
        taken = ("count", "ackmode", "payload_file", "encoding", "truncate", "vhost")
        values = _known(_pairs(words), ("queue",), taken)
        file = values.get("payload_file")
        if file is not None and "count" in values:
            raise UsageFault("Cannot get multiple messages using payload_file")
        body = {
            "count": values.get("count", "1"),
            "ackmode": values.get("ackmode", "ack_requeue_true"),
            "encoding": values.get("encoding", "auto"),
        }
        if "truncate" in values:
            body["truncate"] = values["truncate"]
        path = self._path("queues/{vhost}/{queue}/get", values)
        text = self._api("POST", path, json.dumps(body))
        rows = json.loads(text)
        if file is not None and rows:
            payload = rows[0].pop("payload")
            is_base64 = rows[0].pop("payload_encoding") == "base64"
            content = base64.b64decode(payload) if is_base64 else payload.encode()
            _write(file, content)
            text = json.dumps(rows)
        output(text, [], self._options)

    def export(self, words: list[str]) -> None:
        """Write all definitions, or those of a vhost, to a file."""
        if len(words) != 1:
            raise UsageFault("Exactly one argument required")
        _write(words[0], self._api("GET", self._definitions()).encode())
        self._say(f'Exported definitions for {self._options.host} to "{words[0]}"')

    def import_(self, words: list[str]) -> None:
        """Import the definitions in a file."""
        if len(words) != 1:
            raise UsageFault("Exactly one argument required")
        try:
            with open(words[0], encoding="utf-8") as source:
                definitions = source.read()
        except (OSError, UnicodeDecodeError) as error:
            raise Fault(f"*** Could not read {words[0]}: {error}\n") from None
        self._api("POST", self._definitions(), definitions)
        self._say(f'Imported definitions for {self._options.host} from "{words[0]}"')

    def _definitions(self) -> str:
        vhost = self._options.vhost
        return f"definitions/{quote(vhost, '')}" if vhost else "definitions"

    def _path(self, template: str, values: dict[str, Any]) -> str:
        """`template` with its names replaced, which are quoted."""
        vhost = values.get("vhost") or self._options.vhost or self._options.declare_vhost or "/"
        filled = {**values, "vhost": vhost}
        if filled.get("destination_type"):
            filled["destination_type"] = filled["destination_type"][:1]
        return template.format(**{name: quote(str(value), "") for name, value in filled.items()})

    def _say(self, text: str) -> None:
        if not self._options.quiet:
            print(text)


def arguments_of(words: list[str], kinds: dict[str, Kind]) -> tuple[str, Kind, dict[str, str]]:
    """The kind that `words` begin with, and the NAME=VALUE after it. Raises UsageFault."""
    if not words or words[0] not in kinds:
        raise UsageFault(f"Type {' '.join(words[:1])} not recognised")
    return words[0], kinds[words[0]], _pairs(words[1:])


def _pairs(words: list[str]) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise UsageFault(f'Argument "{word}" not in the name=value format')
    return dict(word.split("=", 1) for word in words)


def _known(
    given: dict[str, str], needed: tuple[str, ...], taken: tuple[str, ...]
) -> dict[str, Any]:
    """`given`, if it has all that is needed and nothing unknown. Raises UsageFault."""
    for name in given:
        if name not in needed and name not in taken:
            raise UsageFault(f'Argument "{name}" is not recognised')
    for name in needed:
        if name not in given:
            raise UsageFault(f'mandatory argument "{name}" is required')
    return dict(given)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise Fault(f"ERROR: Could not parse JSON:\n  {text}") from None


def _write(file: str, content: bytes) -> None:
    try:
        with open(file, "wb") as target:
            target.write(content)
    except OSError as error:
        raise Fault(f"*** Could not write {file}: {error}\n") from None


# -- output ----------------------------------------------------------------------------------------


def output(text: str, wanted: list[str], options: argparse.Namespace) -> None:
    """Print the JSON array `text` in the format of the options."""
    if options.format == "raw_json":
        print(text)
        return
    rows = json.loads(text)
    if options.format == "pretty_json":
        print(json.dumps(rows, indent=2, sort_keys=True, ensure_ascii=False))
        return
    if not wanted:
        rows = [flattened(row, int(options.depth or 1)) for row in rows]
        names = {name for row in rows for name in row}
        wanted = [name for name in LEADING if name in names]
        wanted += sorted(names.difference(wanted))
        cells = [[shown(row.get(name, "")) for name in wanted] for row in rows]
    else:
        cells = [[shown(value_at(row, name)) for name in wanted] for row in rows]
    if options.format == "bash":
        at = wanted.index("name") if "name" in wanted else 0
        print(" ".join([row[at] for row in cells]))
    elif not cells:
        if not options.quiet:
            print("No items")
    else:
        _PRINTERS[options.format](wanted, cells)


def flattened(row: dict[str, Any], depth: int) -> dict[str, Any]:
    """`row` without objects: those down to `depth` become values with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if not isinstance(value, dict) or name in WHOLE:
            flat[name] = value
        elif depth > 1:
            inner = flattened(value, depth - 1)
            flat.update({f"{name}.{key}": each for key, each in inner.items()})
    return flat


def value_at(row: dict[str, Any], name: str) -> Any:
    """The value of a column with a dotted name, "" if there is none."""
    value: Any = row
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return row.get(name, "")
        value = value[part]
    return value


def shown(value: Any) -> str:
    """A value as a cell has it."""
    if isinstance(value, list) and not any(isinstance(each, (dict, list)) for each in value):
        return " ".join(map(str, value))
    if isinstance(value, (dict, list)):
        return json.dumps(value) if value else ""
    return str(value)


def _tsv(names: list[str], rows: list[list[str]]) -> None:
    for row in [names, *rows]:
        print("\t".join(row))


def _kvp(names: list[str], rows: list[list[str]]) -> None:
    for row in rows:
        print(" ".join([f'{name}="{cell}"' for name, cell in zip(names, row)]))


def _long(names: list[str], rows: list[list[str]]) -> None:
    line = "\n" + "-" * 80 + "\n"
    width = max(map(len, names))
    print(line)
    for row in rows:
        for name, cell in zip(names, row):
            print(f"{name:>{width}}: {cell}")
        print(line)


def _table(names: list[str], rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(names, *rows)]
    line = "+".join(["", *["-" * (width + 2) for width in widths], ""])
    print(line)
    print("|".join(["", *[f" {name:^{width}} " for name, width in zip(names, widths)], ""]))
    print(line)
    for row in rows:
        print("|".join(["", *[f" {cell:<{width}} " for cell, width in zip(row, widths)], ""]))
    print(line)


_PRINTERS = {"tsv": _tsv, "kvp": _kvp, "long": _long, "table": _table}


# -- options ---------------------------------------------------------------------------------------

# Default values of options; the configuration file and the command line replace them.
DEFAULTS = {
    "host": "localhost", "port": "", "path_prefix": "", "vhost": "", "declare_vhost": "",
    "username": "guest", "password": "guest", "ssl": False, "ssl_key_file": "",
    "ssl_cert_file": "", "ssl_ca_cert_file": "", "ssl_disable_hostname_verification": False,
    "ssl_insecure": False, "request_timeout": "120",
}  # fmt: skip
CONFIG = "~/.rabbitmqadmin.conf"

SUBCOMMANDS = """\
list WHAT [COLUMN...]     WHAT: {lists}
show overview [COLUMN...]
declare WHAT NAME=VALUE...
delete WHAT NAME=VALUE...
{objects}
close connection name=...
purge queue name=...
export FILE
import FILE
publish routing_key=... [payload=... properties=... exchange=... payload_encoding=...]
    (without payload: standard input)
get queue=... [count=... ackmode=... payload_file=... encoding=...]
    (with payload_file: one message, whose payload goes to the file)"""
CONFIG_HELP = """\
Options of a node may stand in a file, which -c names, in a section that -N names:

  [production]
  hostname = broker.example.com
  port = 15671
  username = admin
  password = secret
  ssl = True
  vhost = /             # for all commands
  declare_vhost = /     # for commands that change something

  rabbitmqadmin -c rabbitmqadmin.conf -N production list queues"""


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser(
        prog="rabbitmqadmin",
        usage="rabbitmqadmin [options] subcommand",
        epilog="'help subcommands' lists the subcommands, 'help config' is about the file.",
        argument_default=argparse.SUPPRESS,
        add_help=False,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--help", "-h", action="help", help="show this help message and exit")
    add("--config", "-c", help=f"configuration file (default: {CONFIG})")
    add("--node", "-N", help="section of the configuration file (default: default)")
    add("--host", "-H", help="host of the API (default: localhost)")
    add("--port", "-P", help="port of the API (default: 15672, with TLS 15671)")
    add("--path-prefix", help="what stands before /api in paths")
    add("--vhost", "-V", help="vhost (default: all to list, / to declare)")
    add("--username", "-u", help="user (default: guest)")
    add("--password", "-p", help="password (default: guest)")
    add("--base-uri", "-U", metavar="URI", help="http[s]://[user:password@]host[:port]")
    add("--quiet", "-q", action="store_true", default=False, help="no messages of success")
    add("--ssl", "-s", action="store_true", help="connect with TLS")
    add("--ssl-key-file", help="the client's key (PEM)")
    add("--ssl-cert-file", help="the client's certificate (PEM)")
    add("--ssl-ca-cert-file", help="the certificates to trust (PEM)")
    add("--ssl-disable-hostname-verification", action="store_true", help="trust any host name")
    add("--ssl-insecure", "-k", action="store_true", help="trust any certificate")
    add("--request-timeout", "-t", help="seconds to wait for a reply (default: 120)")
    add("--format", "-f", default="table", choices=FORMATS, help="of lists (default: table)")
    add("--sort", "-S", default="", help="column to sort by")
    add("--sort-reverse", "-R", action="store_true", default=False, help="sort downwards")
    add("--depth", "-d", default=None, type=int, help="how deep to look into objects (default: 1)")
    add("--version", action="version", version=f"rabbitmqadmin {VERSION}")
    add("words", nargs="*", default=[], help=argparse.SUPPRESS)
    return made


def options_of(arguments: list[str]) -> argparse.Namespace:
    """The options in force: the URI, then the command line, the file, the defaults."""
    options = parser().parse_intermixed_args(arguments)
    given = dict(DEFAULTS)
    given.update(_of_file(options))
    given.update(vars(options))
    if hasattr(options, "base_uri"):
        given.update(_of_uri(options.base_uri))
    if not given["port"]:
        given["port"] = "15671" if given["ssl"] else "15672"
    return argparse.Namespace(**given)


def _of_file(options: argparse.Namespace) -> dict[str, Any]:
    path = getattr(options, "config", None)
    node = getattr(options, "node", "default")
    config = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=("#",))
    try:
        found = config.read(os.path.expanduser(path or CONFIG))
        if path is not None and not found:
            raise UsageFault(f"Could not read config file '{path}'")
        if not config.has_section(node):
            if hasattr(options, "node") and found:
                raise UsageFault(
                    f"Could not read section '{node}' in config file '{path or CONFIG}'"
                )
            return {}
        values: dict[str, Any] = dict(config.items(node))
        for name, default in DEFAULTS.items():
            if isinstance(default, bool) and name in values:
                values[name] = config.getboolean(node, name)
    except (configparser.Error, ValueError) as error:
        raise UsageFault(f"config file: {error}") from None
    if "hostname" in values:
        values["host"] = values.pop("hostname")
    return {name: value for name, value in values.items() if name in DEFAULTS}


def _of_uri(uri: str) -> dict[str, Any]:
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageFault(f"base URI must begin with http:// or https://, not be '{uri}'")
    if parts.path.strip("/"):
        print("WARNING: the path of the base URI is ignored", file=sys.stderr)
    try:
        port = parts.port
    except ValueError:
        raise UsageFault("the port of the base URI is not a number") from None
    values: dict[str, Any] = {"ssl": parts.scheme == "https", "host": parts.hostname}
    if port is not None:
        values["port"] = str(port)
    if parts.username is not None:
        values["username"] = unquote(parts.username)
    if parts.password is not None:
        values["password"] = unquote(parts.password)
    return values


def _help(words: list[str]) -> None:
    if not words:
        parser().print_help()
    elif words == ["subcommands"]:
        objects = []
        for name, kind in KINDS.items():
            needed = " ".join([f"{argument}=..." for argument in kind.needed])
            taken = " ".join([f"{argument}=..." for argument in kind.taken])
            objects.append(f"    {name} {needed} [{taken}]" if taken else f"    {name} {needed}")
        print(SUBCOMMANDS.format(lists=", ".join(LISTS), objects="\n".join(objects)))
    elif words == ["config"]:
        print(CONFIG_HELP)
    else:
        raise UsageFault("help topic must be one of:\n  subcommands\n  config")


def main(arguments: list[str]) -> int:
    """Carry out one command; returns the exit status."""
    try:
        options = options_of(arguments)
        action, words = (options.words or ["help"])[0], options.words[1:]
        if action == "help":
            _help(words)
            return 0
        commands = Commands(options, Api(options))
        actions = {
            "list": commands.list_, "show": commands.show, "declare": commands.declare,
            "delete": commands.delete, "close": commands.close, "purge": commands.purge,
            "publish": commands.publish, "get": commands.get, "export": commands.export,
            "import": commands.import_,
        }  # fmt: skip
        if action not in actions:
            raise UsageFault(f"Action {action} not understood")
        actions[action](words)
    except UsageFault as fault:
        print(f"\nERROR: {fault}\n\nrabbitmqadmin --help for help\n", file=sys.stderr)
        return 1
    except Fault as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:
        sys.exit(1)
