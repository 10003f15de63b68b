"""The supervisor: starts, watches and stops the workers, and has the definitions they share.

The first start of any worker must succeed, or all are stopped. One that ends later is started
again, at once and then after growing pauses, while the others serve on. All workers are stopped at
the same time; the definitions stay until the last one has ended, since mirrored queues tell there
which copies are complete.

The supervisor holds the ports of all by sockets that do not listen: so they stay the workers' while
these are down. A second supervisor does not share them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from typing import Final

import msgspec

from warrenmq.cluster.errors import ClusterError
from warrenmq.cluster.key_store.disk import KeyStoreFile
from warrenmq.cluster.key_store.server import USER, KeyStoreServer
from warrenmq.cluster.membership.identity import read_identity
from warrenmq.server.config.errors import ConfigError
from warrenmq.server.config.load import Loaded
from warrenmq.server.config.options.log import LogOptions
from warrenmq.server.config.settings import Config
from warrenmq.server.listening.listeners import ListenError, bound_listener
from warrenmq.server.listening.steering import Relay
from warrenmq.server.log.output import open_log
from warrenmq.server.log.ready_line import announce
from warrenmq.server.service_manager import ServiceManager
from warrenmq.server.startup.definitions_file import DATABASE_NAME, DataDirectoryError
from warrenmq.server.workers.directories import check_count, keys_path, lock_workers
from warrenmq.server.workers.process import WorkerProcess, how_it_ended
from warrenmq.server.workers.worker import WorkerPlace, log_of

logger = logging.getLogger("warren.workers")

START_FAILED_EXIT: Final = 1
CONFIGURATION_EXIT: Final = 2
# Pauses before a worker is started again that has ended (s): the first is none, the second this
# one, and each later one is twice as long, up to the longest. After a run of STEADY_S they begin
# anew.
PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
STEADY_S: Final = 60.0

Address = tuple[str, int]


class Supervisor:
    """The supervisor of `config.workers` nodes, each started with `arguments`.

    `read` reads the configuration again.
    """

    def __init__(self, config: Config, read: Callable[[], Loaded], arguments: list[str]) -> None:
        self._config = config
        self._read = read
        self._arguments = arguments
        self._manager = ServiceManager()
        self._workers: list[WorkerProcess] = []
        self._keeping: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        # The ports of the workers, held by sockets that do not listen.
        self._held: list[socket.socket] = []
        self._status = 0

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT; returns the exit status.

        Raises DataDirectoryError, ListenError, ClusterError and OSError if it cannot start.
        """
        config = self._config
        lock = lock_workers(config.data_dir)
        try:
            check_count(config.data_dir, config.workers)
            tcp = tuple(self._hold(each, False) for each in config.tcp_listeners)
            ssl = tuple(self._hold(each, True) for each in config.ssl_listeners)
            names = tuple(_name(config.node_name, each) for each in range(config.workers))
            if config.cluster.name:
                await self._run_workers(WorkerPlace(0, names, "", "", "", tcp, ssl))
            else:
                store = KeyStoreServer(KeyStoreFile(keys_path(config.data_dir)))
                url = await store.start()
                place = WorkerPlace(0, names, url, USER, store.password, tcp, ssl)
                try:
                    await self._run_workers(place)
                finally:
                    await store.stop()
        finally:
            for each in self._held:
                each.close()
            os.close(lock)
        return self._status

    def _hold(self, address: Address, is_tls: bool) -> Address:
        """Keep an address for the workers; returns it with its port."""
        # Nobody else may have it, not even one that would share it.
        alone = bound_listener(address, is_tls)
        port = alone.address[1]
        alone.socket.close()
        self._held.append(bound_listener((address[0], port), is_tls, shares_port=True).socket)
        return address[0], port

    # -- the life of the workers -------------------------------------------------------------------

    async def _run_workers(self, place: WorkerPlace) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number.name)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        relay = Relay(loop)
        self._workers = [
            WorkerProcess(msgspec.structs.replace(place, number=number), self._arguments, relay)
            for number in range(self._config.workers)
        ]
        ready = [loop.create_future() for _ in self._workers]
        # A node that ran alone makes the cluster, with its definitions; so it comes first.
        directory = self._config.data_dir
        is_first = (directory / DATABASE_NAME).exists() and read_identity(directory) is None
        for worker, future in zip(self._workers, ready, strict=True):
            self._keeping.append(loop.create_task(self._keep(worker, future)))
            if is_first:
                await self._unless_stopped(future)
                is_first = False
        lines = [await self._unless_stopped(each) for each in ready]
        if not self._stopping.is_set():
            listeners = lines[0].partition(" nodes=")[0]
            announce(f"warren is ready: {listeners} workers={len(lines)}")
            self._manager.ready()
        await self._stopping.wait()
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        await asyncio.gather(*self._keeping)
        logger.info("all workers have ended")

    async def _unless_stopped(self, ready: asyncio.Future[str]) -> str:
        """The ready line of a worker; "" if the supervisor is to stop before it comes."""
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((ready, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        return ready.result() if ready.done() else ""

    async def _keep(self, worker: WorkerProcess, ready: asyncio.Future[str]) -> None:
        """Run a worker, again and again, until the supervisor is to stop."""
        loop = asyncio.get_running_loop()
        pause_s = 0.0
        while not self._stopping.is_set():
            line, status = "", START_FAILED_EXIT
            began_s = loop.time()
            try:
                line = await worker.start()
            except OSError as error:
                # The system has no process or no descriptor left, and may have some later.
                how = f"cannot be started: {error.strerror}"
            else:
                self._greet(worker, line, ready)
                began_s = loop.time()
                status = await worker.wait()
                how = how_it_ended(status)
            if self._stopping.is_set():
                return
            if not ready.done():
                self._fail(f"worker {worker.number} cannot start: it {how}", status)
                return
            if line and loop.time() - began_s > STEADY_S:
                pause_s = 0.0
            again = f"in {pause_s:g} s" if pause_s else "at once"
            logger.error("worker %d %s; it is tried again %s", worker.number, how, again)
            await self._pause(pause_s)
            pause_s = min(max(2 * pause_s, PAUSE_S), PAUSE_MAX_S)

    def _greet(self, worker: WorkerProcess, line: str, ready: asyncio.Future[str]) -> None:
        """Take note of a worker's ready line, "" if it has ended instead."""
        if self._stopping.is_set():
            worker.send_signal(signal.SIGTERM)
        elif line and not ready.done():
            ready.set_result(line)
        elif line:
            logger.info("worker %d runs again", worker.number)

    async def _pause(self, seconds: float) -> None:
        """Wait, for less if the supervisor is to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    def _fail(self, text: str, status: int) -> None:
        logger.error("%s; all workers are stopped", text)
        # Status 2 and 3 tell systemd that a restart does not help.
        self._status = status if status > 0 else START_FAILED_EXIT
        self._stopping.set()

    def _stop(self, why: str) -> None:
        if not self._stopping.is_set():
            logger.info("stopping %d workers: %s", len(self._workers), why)
            self._manager.stopping(why)
            self._stopping.set()

    def _reload(self) -> None:
        """Let all workers read the configuration again; each says in its log what it takes."""
        self._manager.reloading()
        loaded = self._read()
        if not loaded.errors:
            try:
                open_log(_own_log(loaded.config))
            except ConfigError as error:
                logger.error("configuration not reloaded: %s", error)
            if loaded.config.workers != self._config.workers:
                logger.warning("changes that take effect with a restart only: workers")
        for worker in self._workers:
            # One that starts reads the configuration anyway, and knows no signals yet.
            if worker.is_ready:
                worker.send_signal(signal.SIGHUP)
        self._manager.ready()


def _name(first: str, number: int) -> str:
    """The name of a worker, given that of the first."""
    name, _, host = first.partition("@")
    return f"{name}-{number}@{host}" if number else first


def _own_log(config: Config) -> LogOptions:
    return log_of(config.log, "supervisor", "supervisor")


def supervise(config: Config, read: Callable[[], Loaded], arguments: list[str]) -> int:
    """Run `config.workers` nodes with `arguments` until SIGTERM or SIGINT; returns the exit status.

    0 workers are refused: a node must not run alone on the directory of workers.
    """
    try:
        open_log(_own_log(config))
    except ConfigError as error:
        logger.error("cannot start: %s", error)
        return CONFIGURATION_EXIT
    try:
        if config.workers == 0:
            check_count(config.data_dir, 0)
        return asyncio.run(Supervisor(config, read, arguments).run())
    except (DataDirectoryError, ListenError, ClusterError, OSError) as error:
        logger.error("cannot start: %s", error)
        return START_FAILED_EXIT
