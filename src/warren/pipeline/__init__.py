"""Jobs on queues, stores and archives: each a typed function, and a command `warren pipeline NAME` that calls it.

A job is in `NAME_job.py`, with what it needs beside it; it returns a `JobResult` (result.py), raises `JobError` when it
could not be done, and tells a `Progress` (progress.py) how far it is. Whatever needs Spark, pyarrow or numpy is imported
when a job runs and not before, so that this package costs nothing to those who only want to know which jobs there are.
"""

from warren.pipeline.archive_job import ArchiveResult, archive
from warren.pipeline.backup_job import BackupResult, backup
from warren.pipeline.import_rabbitmq_job import ImportResult, import_rabbitmq
from warren.pipeline.progress import JsonProgress, Progress, Step
from warren.pipeline.rebuild_index_job import RebuildIndexResult, rebuild_index
from warren.pipeline.replay_job import ReplayResult, RouteCount, replay
from warren.pipeline.report_job import ReportResult, report
from warren.pipeline.restore_job import RestoreResult, restore
from warren.pipeline.restore_live_job import LiveRestoreResult, QueueDifference, restore_live
from warren.pipeline.result import JobError, JobResult
from warren.pipeline.verify_job import VerifyResult, verify

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
