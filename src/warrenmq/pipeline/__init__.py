"""Jobs on queues, stores and archives: typed functions with commands `warren pipeline NAME`.

A job is a file whose name ends in `job.py`, in a folder with the code that only this job needs. A
job returns a `JobResult` (result.py), raises `JobError` when it cannot be done, and reports its
progress to a `Progress` (progress.py). A job imports Spark, pyarrow and numpy only when it runs, so
that this package costs nothing to a program that only lists the jobs.
"""

from warrenmq.pipeline.archives.job import ArchiveResult, archive
from warrenmq.pipeline.backups.job import BackupResult, backup
from warrenmq.pipeline.backups.restore_job import RestoreResult, restore
from warrenmq.pipeline.backups.restore_live_job import (
    LiveRestoreResult,
    QueueDifference,
    restore_live,
)
from warrenmq.pipeline.metrics.job import MetricsResult, metrics
from warrenmq.pipeline.mirrors.job import compare_mirrors
from warrenmq.pipeline.mirrors.result import CompareMirrorsResult, CopyFigures
from warrenmq.pipeline.progress import JsonProgress, Progress, Step
from warrenmq.pipeline.rabbitmq.import_job import ImportResult, import_rabbitmq
from warrenmq.pipeline.rebuild_index_job import RebuildIndexResult, rebuild_index
from warrenmq.pipeline.replays.job import ReplayResult, RouteCount, replay
from warrenmq.pipeline.reports.job import ReportResult, report
from warrenmq.pipeline.result import JobError, JobResult
from warrenmq.pipeline.verify_job import VerifyResult, verify

__all__ = [
    "ArchiveResult",
    "BackupResult",
    "CompareMirrorsResult",
    "CopyFigures",
    "ImportResult",
    "JobError",
    "JobResult",
    "JsonProgress",
    "LiveRestoreResult",
    "MetricsResult",
    "Progress",
    "QueueDifference",
    "RebuildIndexResult",
    "ReplayResult",
    "ReportResult",
    "RestoreResult",
    "RouteCount",
    "Step",
    "VerifyResult",
    "archive",
    "backup",
    "compare_mirrors",
    "import_rabbitmq",
    "metrics",
    "rebuild_index",
    "replay",
    "report",
    "restore",
    "restore_live",
    "verify",
]
