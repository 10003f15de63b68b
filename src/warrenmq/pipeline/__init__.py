"""Jobs on queues, stores and archives: each a typed function, and a command `warren pipeline NAME` that calls it.

A job is a file that ends in `job.py`, in a folder with what it alone needs; it returns a `JobResult` (result.py), raises `JobError` when it
could not be done, and tells a `Progress` (progress.py) how far it is. Whatever needs Spark, pyarrow or numpy is imported
when a job runs and not before, so that this package costs nothing to those who only want to know which jobs there are.
"""

from warrenmq.pipeline.archives.job import ArchiveResult, archive
from warrenmq.pipeline.backups.job import BackupResult, backup
from warrenmq.pipeline.backups.restore_job import RestoreResult, restore
from warrenmq.pipeline.backups.restore_live_job import (
    LiveRestoreResult,
    QueueDifference,
    restore_live,
)
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
    "ImportResult",
    "JobError",
    "JobResult",
    "JsonProgress",
    "LiveRestoreResult",
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
    "import_rabbitmq",
    "rebuild_index",
    "replay",
    "report",
    "restore",
    "restore_live",
    "verify",
]
