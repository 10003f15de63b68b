"""The job `report`: writes the contents of a store as an HTML file with charts, and as JSON.

The store is the data directory of a stopped node, a backup, or a snapshot that a running node
makes.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warrenmq.admin.client.backup import BackupFailedError
from warrenmq.admin.client.client import (
    RETRY_TIMEOUT_S,
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.protocol.figures import (
    DescribeNode,
    ListQueues,
    NodeStatus,
    QueueList,
    QueueStatus,
)
from warrenmq.pipeline.broker import address_of, must_be_reachable
from warrenmq.pipeline.engine import Engine, require_engine, require_modules, sharing_for
from warrenmq.pipeline.progress import Progress, Silent, Step
from warrenmq.pipeline.result import FOUND_EXIT, JobError, JobResult, json_value
from warrenmq.spark import node_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from warrenmq.pipeline.reports.figures import QueueForms, ReportFigures


@dataclasses.dataclass
class ReportResult(JobResult):
    """The files that were written, and the figures in them."""

    html: Path
    json: Path
    figures: "ReportFigures"

    @property
    def exit_code(self) -> int:
        """1 when the store has damage."""
        return FOUND_EXIT if self.figures.damage_count else super().exit_code

    def as_json(self) -> dict[str, Any]:
        """The paths of both files, and the figures."""
        return {"html": str(self.html), "json": str(self.json), **json_value(self.figures)}

    def lines(self) -> list[str]:
        """The figures as text for people."""
        figures = self.figures
        found = [
            f"{figures.messages:,} messages in {figures.queue_count:,} queues of {figures.source}"
        ]
        if figures.damage_count:
            found.append(f"{figures.damage_count:,} damaged places")
        return [*found, f"written: {self.html} and {self.json}"]


def report(
    html: str | Path,
    *,
    directory: str | Path | None = None,
    uri: str | None = None,
    snapshots: str | Path | None = None,
    metrics: str | Path | None = None,
    headers: bool = True,
    retry_timeout_s: float = RETRY_TIMEOUT_S,
    master: str | None = None,
    spark: "SparkSession | None" = None,
    engine: Engine = "auto",
    progress: Progress | None = None,
) -> ReportResult:
    """Write a report on a store to the file `html`, and the same as JSON beside it.

    `directory` is a stopped node's data directory or a backup. `uri` instead names a running node,
    as an administrator; the node makes a snapshot below `snapshots` on its own machine. `metrics`
    is a directory of the job `metrics`, whose figures the report shows over time. Without `headers`
    the report has no dead letters, and no task reads the properties of each message. A report waits
    up to `retry_timeout_s` seconds while the node does not answer. JobError when no report can be
    made.
    """
    page_path = Path(html).absolute()
    json_path = page_path.with_suffix(".json")
    progress = progress or Silent()
    if (directory is None) == (uri is None):
        raise JobError("name a data directory, or the URI of a running node")
    if uri is not None:
        address_of(uri)
    if page_path.suffix.lower() not in (".html", ".htm"):
        raise JobError(f"{page_path} must end in .html")
    if page_path.is_dir():
        raise JobError(f"{page_path} is a directory")
    for place in (page_path.parent, *[Path(each) for each in (snapshots, metrics) if each]):
        if not place.is_dir():
            raise JobError(f"there is no directory {place}")
    require_engine(engine, master, spark)
    require_modules("pyarrow", "numpy", "jinja2", "vl_convert")
    if uri is not None:
        must_be_reachable(uri, "warren report", retry_timeout_s)
    from warrenmq.pipeline.reports.figures import read_figures
    from warrenmq.pipeline.reports.metric_figures import read_metrics
    from warrenmq.pipeline.reports.page import page

    history = None if metrics is None else read_metrics(Path(metrics))
    with (
        _store(directory, uri, snapshots, progress) as (store, source, forms),
        sharing_for("report", engine, master, spark, progress) as sharing,
        tempfile.TemporaryDirectory(prefix="warren-report-") as scratch,
    ):
        made_at = datetime.datetime.now(datetime.UTC)
        figures = read_figures(
            sharing, store, Path(scratch), made_at, headers, source, forms, progress
        )
        figures = dataclasses.replace(figures, metrics=history)
        progress.show(Step("writing"))
        _replace(page_path, page(figures))
        _replace(json_path, json.dumps(json_value(figures), indent=2) + "\n")
    return ReportResult(page_path, json_path, figures)


@contextlib.contextmanager
def _store(
    directory: str | Path | None, uri: str | None, snapshots: str | Path | None, progress: Progress
) -> Iterator[tuple[Path, str, "list[QueueForms]"]]:
    """Yield the directory to read, its name in the report, and the queues of a running node."""
    if uri is None:
        assert directory is not None
        yield Path(directory).absolute(), str(directory), []
        return
    with contextlib.ExitStack() as stack:
        try:
            name, forms = _forms(NodeAddress(uri))
            progress.show(Step("making a snapshot"))
            path = stack.enter_context(node_snapshot(uri, snapshots))
        except (AdminRefusedError, BackupFailedError, NodeUnreachableError) as error:
            raise JobError(str(error)) from error
        yield path, name, forms


def _forms(address: NodeAddress) -> tuple[str, "list[QueueForms]"]:
    """The node's name, and the queues of all its vhosts that this user may enter."""
    from warrenmq.pipeline.reports.figures import QueueForms

    with AdminClient(address, "warren report") as client:
        status = client.request(DescribeNode(), NodeStatus)
    forms = []
    for vhost in [vhost.vhost for vhost in status.vhosts]:
        address.vhost = vhost
        with contextlib.suppress(AdminRefusedError):
            for queue in _queues(address):
                forms.append(
                    QueueForms(
                        vhost,
                        queue.name,
                        queue.alpha.count,
                        queue.beta.count,
                        queue.gamma.count,
                        queue.delta.count,
                        queue.unacked,
                    )
                )
    return status.node, forms


def _queues(address: NodeAddress) -> list[QueueStatus]:
    with AdminClient(address, "warren report") as client:
        page = client.request(ListQueues(), QueueList)
        found = list(page.queues)
        while not page.is_last:
            page = client.request(ListQueues(found[-1].id), QueueList)
            found.extend(page.queues)
    return found


def _replace(path: Path, content: str) -> None:
    """Replace a file as a whole; its mode follows the process's umask."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(content, encoding="utf-8", errors="backslashreplace")
    os.rename(draft, path)
