"""The broker of a job: it is reached before anything costly begins, and what it answers is told in the words of jobs."""

import contextlib
from collections.abc import Iterator
from typing import Final

from warrenmq.admin.client import AdminClient, AdminRefusedError, NodeAddress
from warrenmq.pipeline.result import JobError
from warrenmq.spark.broker_link import connect
from warrenmq.spark.retry import SourceError

# The two names that users know the time-out by: the function's parameter and the command's option.
RETRY_OPTION: Final = "retry_timeout_s, --retry-timeout"
# Options of the data sources, and what they are to a job.
_NAMES_OF_JOBS: Final = {
    "(retryTimeoutMs)": f"({RETRY_OPTION})",
    "(confirmTimeoutMs)": f"({RETRY_OPTION})",
    "failOnDataLoss=false": "fail_on_data_loss=False (--ignore-data-loss)",
}


@contextlib.contextmanager
def as_job_error() -> Iterator[None]:
    """Turn refusals of the data sources and the broker into JobError."""
    try:
        yield
    except (SourceError, AdminRefusedError) as error:
        text = str(error)
        for theirs, ours in _NAMES_OF_JOBS.items():
            text = text.replace(theirs, ours)
        raise JobError(text) from error


def address_of(uri: str) -> NodeAddress:
    """The URI, taken apart; JobError when it cannot be one."""
    try:
        return NodeAddress(uri)
    except ValueError as error:
        raise JobError(f"uri: {error}") from None


def reach(uri: str, purpose: str, retry_timeout_s: float) -> AdminClient:
    """A logged-in client of the node, which is waited for while it does not answer; JobError when it stays away or refuses."""
    if not retry_timeout_s >= 0:
        raise JobError("the retry time-out is a number of seconds")
    with as_job_error():
        return connect(address_of(uri), purpose, retry_timeout_s, RETRY_OPTION)


def must_be_reachable(uri: str, purpose: str, retry_timeout_s: float) -> None:
    """JobError unless the node answers and takes the login: found out before a JVM is started for nothing."""
    reach(uri, purpose, retry_timeout_s).close()
