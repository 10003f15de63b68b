"""The process that forks the Python workers of a local session: PySpark's, without false errors.

When a program ends, its JVM closes the sockets of idle workers. PySpark's daemon then prints a
BrokenPipeError with its stack for each worker, after a run without any failure. This daemon prints
nothing in that case, because no reader of a worker's output is left.
"""

import socket

from pyspark import daemon

_work = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run one worker and return the exit code of its process; 1 when the JVM has ended."""
    try:
        return _work(sock, authenticated)
    except BrokenPipeError:
        return 1


def fork_workers() -> None:
    """Fork workers until the JVM ends."""
    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    fork_workers()
