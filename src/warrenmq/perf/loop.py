"""The sockets of one process: opens its publishers and consumers and runs them, turn by turn.

A turn publishes as much as the publishers' limits allow, waits for sockets, then reads and writes
the ready ones. It waits only when no publisher could publish. A saturated publisher thus costs one
send and one select a batch, and a paced one sleeps until its next message is due, to the
microsecond (epoll alone counts in milliseconds).
"""

import resource
import select
import time
from typing import Final, final

from mypy_extensions import i64

from warrenmq.perf import snapshot
from warrenmq.perf.client import Client
from warrenmq.perf.connection import AgentConnection
from warrenmq.perf.consumer import Consumer
from warrenmq.perf.errors import PerfError
from warrenmq.perf.options import NANOSECONDS, PerfOptions, parse_uri
from warrenmq.perf.publisher import Publisher, PublishFrames
from warrenmq.perf.topology import Target, basic_properties
from warrenmq.wire.methods import BasicQos, ConfirmSelect

CONNECT_TIMEOUT_S: Final = 20.0
CLOSE_TIMEOUT_NS: Final = 10 * NANOSECONDS
READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
# Events of a closed or broken connection: a read tells which.
ENDED: Final = select.EPOLLHUP | select.EPOLLERR


@final
class PerfLoop:
    """The publishers and consumers of one process.

    Agent `i` of a role uses target `i` modulo the number of targets.
    """

    def __init__(
        self,
        options: PerfOptions,
        targets: list[Target],
        producers: list[int],
        consumers: list[int],
    ) -> None:
        self.publishers: list[Publisher] = []
        self.consumers: list[Consumer] = []
        self._epoll: select.epoll = select.epoll()
        self._agents: dict[int, AgentConnection] = {}
        self._cpu_start_ns: i64 = 0
        self._may_publish: bool = False
        try:
            # Open consumers first, so that they are connected when the first message is published.
            for number in consumers:
                self._open_consumer(options, targets[number % len(targets)], number)
            for number in producers:
                self._open_publisher(options, targets[number % len(targets)], number)
        except BaseException:
            self.abort()
            raise
        self._cpu_start_ns = cpu_ns()

    def _open_consumer(self, options: PerfOptions, target: Target, number: int) -> None:
        client = Client(parse_uri(options.uri), f"perf-consumer-{number}", CONNECT_TIMEOUT_S)
        if options.qos > 0:
            client.request(BasicQos(prefetch_count=options.qos))
        ack_every = 0 if options.autoack else options.multi_ack_every
        consumer = Consumer(
            client.sock, target.queue, ack_every, options.cmessages, options.write_each_ack
        )
        self.consumers.append(consumer)
        self._register(consumer)

    def _open_publisher(self, options: PerfOptions, target: Target, number: int) -> None:
        client = Client(parse_uri(options.uri), f"perf-producer-{number}", CONNECT_TIMEOUT_S)
        if options.confirm > 0:
            client.request(ConfirmSelect())
        priorities = range(options.priorities) if options.priorities > 0 else [None]
        frames = [
            PublishFrames(
                target.exchange,
                target.routing_key,
                basic_properties(options.persistent, priority),
                options.mandatory,
                options.size,
                client.frame_max,
            )
            for priority in priorities
        ]
        publisher = Publisher(client.sock, frames, options.confirm, options.pmessages, options.rate)
        self.publishers.append(publisher)
        self._register(publisher)

    def _register(self, agent: AgentConnection) -> None:
        agent.sock.setblocking(False)
        agent.interest = READ
        self._epoll.register(agent.sock, READ)
        self._agents[agent.sock.fileno()] = agent

    def start_consuming(self) -> None:
        """Send every basic.consume and wait for the answers; deliveries are counted meanwhile."""
        deadline_ns: i64 = time.monotonic_ns() + i64(CONNECT_TIMEOUT_S * NANOSECONDS)
        for consumer in self.consumers:
            consumer.start()
        for consumer in self.consumers:
            while not consumer.is_consuming:
                self.turn(NANOSECONDS // 10)
                if time.monotonic_ns() > deadline_ns:
                    raise PerfError("the broker did not answer basic.consume in time")

    def start_publishing(self, start_ns: i64) -> None:
        """Let turns publish from here on; rates count from `start_ns`."""
        self._may_publish = True
        for publisher in self.publishers:
            publisher.start(start_ns)

    def stop_publishing(self) -> None:
        """Publish no new messages. Half-sent ones are finished and confirms still counted."""
        for publisher in self.publishers:
            publisher.is_stopped = True

    def turn(self, wait_ns_max: i64) -> None:
        """Publish, then handle ready sockets.

        Waits for a socket at most `wait_ns_max`, or until a paced message is due.
        """
        wait_ns: i64 = wait_ns_max
        if self._may_publish:
            for publisher in self.publishers:
                now_ns: i64 = time.monotonic_ns()
                if publisher.publish(now_ns):
                    self._watch(publisher)
                    if publisher.credit(now_ns) > 0 and not publisher.wants_write():
                        wait_ns = 0
                if wait_ns > 0:
                    due_ns = publisher.next_due_ns()
                    if due_ns > 0:
                        wait_ns = max(min(wait_ns, due_ns - now_ns), 0)
        if 0 < wait_ns < wait_ns_max:
            # An epoll object is itself a descriptor that becomes readable, and select() counts in
            # microseconds.
            if not select.select([self._epoll], [], [], float(wait_ns) / NANOSECONDS)[0]:
                return
            wait_ns = 0
        for descriptor, events in self._epoll.poll(float(wait_ns) / NANOSECONDS):
            agent = self._agents[descriptor]
            if events & WRITE:
                agent.flush()
            if events & (READ | ENDED):
                agent.on_readable()
            self._watch(agent)

    def _watch(self, agent: AgentConnection) -> None:
        """Register the socket for the events that the agent waits for.

        A consumer with acks to send reads nothing until they are sent. A publisher must always
        read, or its broker could wait for it to take confirms while it waits for the broker. A
        closed agent is unregistered before its socket reads as ended.
        """
        if agent.is_closed:
            if agent.interest:
                agent.interest = 0
                self._epoll.unregister(agent.sock)
            return
        if not agent.wants_write():
            interest = READ
        elif agent.reads_while_writing:
            interest = READ | WRITE
        else:
            interest = WRITE
        if interest != agent.interest:
            agent.interest = interest
            self._epoll.modify(agent.sock, interest)

    def snapshot(self) -> snapshot.Snapshot:
        """Counters since the start, and latencies since the last call."""
        taken = snapshot.Snapshot()
        now_ns: i64 = time.monotonic_ns()
        for publisher in self.publishers:
            publisher.settle_blocked_time(now_ns)
            taken.add(snapshot.PUBLISHED, publisher.published)
            taken.add(snapshot.CONFIRMED, publisher.confirmed_count)
            taken.add(snapshot.NACKED, publisher.nacked_count)
            taken.add(snapshot.RETURNED, publisher.returned_count)
            taken.add(snapshot.UNSETTLED, publisher.unsettled())
            taken.add(snapshot.PUBLISH_LATEST_NS, publisher.latest_ns)
            taken.add(snapshot.BLOCKED_NS, publisher.blocked_ns)
            taken.add(snapshot.BEHIND_NS_MAX, publisher.behind_ns_max)
            taken.add(snapshot.PUBLISHERS_OPEN, 0 if publisher.is_done() else 1)
            taken.confirm_latency.take(publisher.confirm_latency)
        for consumer in self.consumers:
            taken.add(snapshot.RECEIVED, consumer.received)
            taken.add(snapshot.RECEIVE_LATEST_NS, consumer.latest_ns)
            taken.add(snapshot.CONSUMERS_OPEN, 0 if consumer.is_done() else 1)
            taken.latency.take(consumer.latency)
        taken.add(snapshot.CPU_NS, cpu_ns() - self._cpu_start_ns)
        return taken

    def close(self) -> None:
        """Send the acks still due and close all connections in good order.

        Closes the sockets even when that fails or takes longer than CLOSE_TIMEOUT_NS.
        """
        self._may_publish = False
        deadline_ns: i64 = time.monotonic_ns() + CLOSE_TIMEOUT_NS
        try:
            for consumer in self.consumers:
                consumer.finish()
                consumer.close()
                self._watch(consumer)
            for publisher in self.publishers:
                publisher.close()
                self._watch(publisher)
            while self._open_count() > 0 and time.monotonic_ns() < deadline_ns:
                self.turn(NANOSECONDS // 10)
        finally:
            self.abort()

    def _open_count(self) -> int:
        closed = [agent for agent in self.publishers if agent.is_closed]
        closed_consumers = [agent for agent in self.consumers if agent.is_closed]
        return len(self.publishers) + len(self.consumers) - len(closed) - len(closed_consumers)

    def abort(self) -> None:
        """Close all sockets at once."""
        for publisher in self.publishers:
            publisher.sock.close()
        for consumer in self.consumers:
            consumer.sock.close()
        self._epoll.close()


def cpu_ns() -> i64:
    """CPU time of this process so far (ns), user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return i64((usage.ru_utime + usage.ru_stime) * NANOSECONDS)
