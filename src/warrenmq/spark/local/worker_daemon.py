"""The process that forks the Python workers of a local session: PySpark's, without false errors.

When a program or a query ends, its JVM closes the sockets of its workers: of idle ones, and of one
that the daemon is forking at that moment. Each such worker then ends with a BrokenPipeError, and
PySpark's daemon prints the stack after a run without any failure. This daemon prints nothing in
that case, because no reader of a worker's output is left.
"""

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon


def print_exc() -> None:
    """Print the error that has ended a worker, unless the JVM has closed the worker's socket."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        traceback.print_exc()


def fork_workers() -> None:
    """Fork workers until the JVM ends."""
    # The daemon has no other place that hears of all errors.
    daemon.traceback = SimpleNamespace(  # type: ignore[assignment, attr-defined]  # stands in for the module
        print_exc=print_exc, format_exc=traceback.format_exc
    )
    daemon.manager()


if __name__ == "__main__":
    fork_workers()
