"""The broker of a job: connects before costly work begins, and words its errors as jobs do."""

import contextlib
from collections.abc import Iterator
from typing import Final

from warrenmq.admin.client.client import AdminClient, AdminRefusedError, NodeAddress
from warrenmq.pipeline.result import JobError
from warrenmq.spark.broker_link import connect
from warrenmq.spark.retry import SourceError

# The names by which users know the retry time-out: the function's parameter and the command's
# option.
RETRY_OPTION: Final = "retry_timeout_s, --retry-timeout"
# Options that errors of the data sources name, and the job parameters that replace them in the
# text.
_NAMES_OF_JOBS: Final = {
    "(retryTimeoutMs)": f"({RETRY_OPTION})",
    "(confirmTimeoutMs)": f"({RETRY_OPTION})",
    "failOnDataLoss=false": "fail_on_data_loss=False (--ignore-data-loss)",
}


@contextlib.contextmanager
def as_job_error() -> Iterator[None]:
    """Turn errors of the data sources and refusals of the broker into JobError.

    The text names the job's parameters in place of the data sources' options.
    """
    try:
        yield
    except (SourceError, AdminRefusedError) as error:
        raise JobError(in_words_of_jobs(str(error))) from error


def in_words_of_jobs(text: str) -> str:
    """The text of an error of a data source, with the job's parameters in place of its options."""
    for theirs, ours in _NAMES_OF_JOBS.items():
        text = text.replace(theirs, ours)
    return text


def address_of(uri: str) -> NodeAddress:
    """The parsed address of the node at `uri`. JobError when `uri` is malformed."""
    try:
        return NodeAddress(uri)
    except ValueError as error:
        raise JobError(f"uri: {error}") from None


def reach(uri: str, purpose: str, retry_timeout_s: float) -> AdminClient:
    """Return a logged-in client of the node; retry while the node does not answer.

    JobError when the node refuses, or still does not answer after `retry_timeout_s` seconds.
    """
    if not retry_timeout_s >= 0:
        raise JobError("the retry time-out must be a number of seconds, 0 or more")
    with as_job_error():
        return connect(address_of(uri), purpose, retry_timeout_s, RETRY_OPTION)


def must_be_reachable(uri: str, purpose: str, retry_timeout_s: float) -> None:
    """JobError unless the node answers and accepts the login.

    Called before Spark starts, so that no JVM is started in vain.
    """
    reach(uri, purpose, retry_timeout_s).close()
