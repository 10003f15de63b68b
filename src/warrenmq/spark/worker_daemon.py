"""The process that Spark forks the Python workers of a local session from: PySpark's own, without its last words.

When a program ends, its JVM closes the sockets of idle workers, and PySpark's daemon prints a BrokenPipeError with its stack
for each of them after a run in which all went well. Nobody is left whom a worker could tell anything then.
"""

import socket

from pyspark import daemon

_work = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """One worker: the exit code of its process, 1 when the JVM has gone."""
    try:
        return _work(sock, authenticated)
    except BrokenPipeError:
        return 1


def fork_workers() -> None:
    """Fork workers until the JVM goes."""
    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    fork_workers()
