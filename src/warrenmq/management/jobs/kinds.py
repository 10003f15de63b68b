"""The jobs that may be started over HTTP, and their fields.

`rebuild-index` and `import-rabbitmq` are left out: they read directories of stopped nodes, which
lie elsewhere, and are done once, by somebody at that machine. `compare-mirrors` is, because other
nodes do not see the directory of jobs, in which their snapshots would be. So are the options
`--master`, which would let HTTP choose the machines that run code, `--where`, as a condition in
Spark's SQL can read any file, and those that name another node or directories of a job's progress.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from warrenmq.management.jobs.places import BadPlace, JobsDirectory

# output, source: a path below the directory of jobs; sources and texts: a list.
FieldKind = Literal[
    "choice", "decimal", "flag", "number", "output", "source", "sources", "text", "texts"
]


@dataclass(frozen=True)
class Field:
    """A field of a job; `option` is the command's, "" for its argument.

    A flag that is set by itself (`default`) has the option that unsets it.
    """

    name: str
    kind: FieldKind
    title: str
    option: str = ""
    is_needed: bool = False
    choices: tuple[str, ...] = ()
    default: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Kind:
    """A job of `warren pipeline`; `report` names the field with its page, "" for none.

    One that `has_snapshot` backs the running node up to read it.
    """

    name: str
    does: str
    fields: tuple[Field, ...]
    report: str = ""
    has_snapshot: bool = False


class BadArguments(Exception):
    """Arguments that the job does not take; the text is one line for their user."""


_ENGINE: Final = Field(
    "engine", "choice", "Engine", "--engine", choices=("auto", "local", "spark"),
    hint="local: this machine, without Java; auto: local for small input, else Spark",
)  # fmt: skip

KINDS: Final = (
    Kind(
        "archive",
        "Move queues into Parquet files or a Delta table, by Spark",
        (
            Field(
                "target", "output", "Archive", is_needed=True,
                hint="a new directory, or an archive to continue",
            ),
            Field("queues", "texts", "Queues", "--queue", hint="durable ones, one on a line"),
            Field(
                "pattern", "text", "Pattern", "--pattern",
                hint="instead of names: all durable queues whose whole names match",
            ),
            Field("group", "text", "Reader group", "--group", hint="one for the archive, if empty"),
            Field("format", "choice", "Format", "--format", choices=("parquet", "delta")),
            Field("follow", "flag", "Continue with new messages until it is stopped", "--follow"),
            Field(
                "interval", "decimal", "Seconds between batches", "--interval",
                hint="while it continues",
            ),
            Field(
                "merge", "number", "Merge small files up to (MiB)", "--merge", hint="0: never"
            ),
            Field(
                "ignore_data_loss", "flag", "Continue after a queue or the group was deleted",
                "--ignore-data-loss",
            ),
        ),
    ),
    Kind(
        "metrics",
        "Keep the figures of nodes and queues over windows of time, by Spark",
        (
            Field(
                "target", "output", "Windows", is_needed=True,
                hint="a new directory, or one to continue",
            ),
            Field("window", "number", "Seconds of a window", "--window"),
            Field("late", "number", "Seconds a window waits for late samples", "--late"),
            Field("metrics", "texts", "Metrics", "--metric", hint="all, if empty; one on a line"),
            Field("format", "choice", "Format", "--format", choices=("parquet", "delta")),
            Field("follow", "flag", "Continue with new samples until it is stopped", "--follow"),
            Field(
                "interval", "decimal", "Seconds between batches", "--interval",
                hint="while it continues",
            ),
        ),
    ),
    Kind(
        "replay",
        "Publish messages from archives, backups and other Parquet files",
        (
            Field(
                "sources", "sources", "Sources", is_needed=True,
                hint="archives, Delta tables, Parquet backups or files, one on a line",
            ),
            Field(
                "exchange", "text", "Exchange", "--exchange", hint="each message's own, if empty"
            ),
            Field(
                "routing_key", "text", "Routing key", "--routing-key",
                hint="each message's own, if empty",
            ),
            Field("rate", "decimal", "Messages a second at most", "--rate"),
            Field(
                "mandatory", "choice", "A message that no queue would get", "--mandatory",
                choices=("fail", "ignore"),
            ),
            Field("dry_run", "flag", "Count the messages, and publish nothing", "--dry-run"),
            _ENGINE,
        ),
    ),
    Kind(
        "report",
        "Report what is in the store of this node",
        (
            Field("html", "output", "Page", is_needed=True, hint="such as reports/today.html"),
            Field(
                "headers", "flag", "Read headers, to report dead letters", "--no-headers",
                default=True,
            ),
            Field(
                "directory", "source", "Backup of files", "--data-dir",
                hint="instead of this node",
            ),
            Field(
                "metrics", "source", "Windows of metrics", "--metrics",
                hint="to be drawn over time",
            ),
            _ENGINE,
        ),
        report="html",
        has_snapshot=True,
    ),
    Kind(
        "verify",
        "Read a backup of files, and verify every checksum and count",
        (
            Field("directory", "source", "Backup of files", is_needed=True),
            Field(
                "damage", "output", "Table of damage", "--damage", hint="a Parquet file to write"
            ),
            _ENGINE,
        ),
    ),
    Kind(
        "backup",
        "Back up the vhost as Parquet",
        (
            Field("target", "output", "Backup", is_needed=True, hint="a new directory"),
            Field(
                "base", "source", "Earlier backup", "--base", hint="write only what is newer"
            ),
            _ENGINE,
        ),
        has_snapshot=True,
    ),
    Kind(
        "restore",
        "Restore a Parquet backup to this node, or to a new data directory",
        (
            Field("backup", "source", "Backup", is_needed=True),
            Field(
                "base", "sources", "Backups that it is based on", "--base",
                hint="if they have moved; one on a line",
            ),
            Field(
                "data_dir", "output", "New data directory", "--data-dir",
                hint="instead of this node",
            ),
            _ENGINE,
        ),
    ),
)  # fmt: skip

BY_NAME: Final[Mapping[str, Kind]] = {kind.name: kind for kind in KINDS}


def kind_of(name: str) -> Kind:
    """The job called so. Raises BadArguments."""
    kind = BY_NAME.get(name)
    if kind is None:
        raise BadArguments(f"there is no job '{name}'; there are: {', '.join(BY_NAME)}")
    return kind


def words(
    kind: Kind, vhost: str, arguments: Mapping[str, Any], places: JobsDirectory, run: str
) -> list[str]:
    """The command line behind `warren pipeline` for a run; parents of what it writes are made.

    Raises BadArguments for a field that the job has not, a value of another type, and a bad place.
    """
    unknown = [name for name in arguments if name not in {field.name for field in kind.fields}]
    if unknown:
        raise BadArguments(f"{kind.name} has no field '{unknown[0]}'")
    options: list[str] = []
    own: list[str] = []
    for field in kind.fields:
        value = arguments.get(field.name)
        if field.is_needed and value in (None, "", []):
            raise BadArguments(f"{kind.name} needs '{field.name}'")
        if value is None:
            continue
        try:
            found = _texts(field, value, places, run)
        except (BadPlace, TypeError) as error:
            raise BadArguments(f"{field.name}: {error}") from None
        if field.kind == "flag":
            options += [field.option] if found else []
        elif field.option:
            options += [f"{field.option}={text}" for text in found]
        else:
            own += found
    if kind.has_snapshot:
        options.append(f"--snapshots={places.scratch(run)}")
    if kind.name == "replay":
        options.append(f"--checkpoint={_checkpoint(vhost, arguments, own[0])}")
    return [kind.name, *options, "--", *own]


def output_of_run(text: str, run: str) -> str:
    """The path of what a run writes: `{run}` in it stands for the run's name."""
    return text.replace("{run}", run)


def _texts(field: Field, value: Any, places: JobsDirectory, run: str) -> list[str]:
    """The values of a field as the command line has them; of a flag something if it is given.

    Raises TypeError and BadPlace.
    """
    match field.kind:
        case "flag":
            return ["given"] if _of(bool, value) != field.default else []
        case "number":
            return [str(_of(int, value))]
        case "decimal":
            return [str(_of(float, value))]
        case "texts":
            return list(_of(list[str], value))
        case "output":
            return [str(places.output(output_of_run(_of(str, value), run)))]
        case "source":
            return [str(places.source(_of(str, value)))]
        case "sources":
            return [str(places.source(each)) for each in _of(list[str], value)]
    return [str(_of(str, value))]


def _of(kind: Any, value: Any) -> Any:
    """`value`, if it is of this type. Raises TypeError."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise TypeError(str(error)[:1].lower() + str(error)[1:]) from None


def _checkpoint(vhost: str, arguments: Mapping[str, Any], source: str) -> str:
    """The directory of a replay's progress: one for the vhost, the sources, and where they go.

    The command's own choice depends on the address of the node, which is another after each start.
    """
    chosen = [vhost, *[arguments.get(name) for name in ("sources", "exchange", "routing_key")]]
    digest = hashlib.sha256(msgspec.json.encode(chosen)).hexdigest()[:16]
    return f"{source}.replay-{digest}"
