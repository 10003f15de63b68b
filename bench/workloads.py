"""The workloads: the load that each puts on a broker, and the figures that it takes.

A workload is a function from a `Setting` to the results of one broker in one round. Throughput
counts only messages that have finished everything the workload asks: a run publishes for some
seconds, then waits until all messages are consumed, and divides the count by the time up to the
last message. A broker that accepts quickly and delivers late gains nothing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.brokers import Broker
from bench.measure import MeasureError, Result, Sample, delete_queues, run_perf
from warrenmq.perf.client import Client
from warrenmq.perf.errors import PerfError
from warrenmq.perf.options import parse_uri
from warrenmq.wire.methods import QueueDeclare, QueueDeclareOk

RATE = "msg/s"
# How long the messages wait that are to expire: longer than both brokers take to get them.
TTL_MS = 30000
DEAD_LETTERS_S = 180.0
DRAIN_S = "60"
COLD_QUEUES = 100
# Messages that a consumer with prefetch 1 takes.
TURNS = 50_000
# Share of `Setting.backlog_messages` that each of them gets.
COLD_SHARE = 20


@dataclass
class Setting:
    """The setting of a run: broker, round, cores of the load generator, and sizes."""

    broker: Broker
    round: int
    generator_cores: set[int]
    seconds: float
    backlog_messages: int
    restart_messages: int

    def perf(self, *arguments: str, uri: str = "") -> Sample:
        return run_perf(self.broker, list(arguments), self.generator_cores, uri=uri)

    def result(self, workload: str, value: float, unit: str, sample: Sample | None) -> Result:
        if sample is None:
            return Result(workload, self.broker.name, self.round, value, unit)
        return Result(
            workload,
            self.broker.name,
            self.round,
            value,
            unit,
            cpu_us_per_message=sample.cpu_us_per_message,
            rss_mib=sample.rss_bytes / 2**20,
            generator_ns_per_message=float(sample.summary["generator_cpu_ns_per_message"]),
            detail=sample.summary,
        )


@dataclass
class Workload:
    """A workload; `run` returns one result for each of `rows`, in that order (one or two)."""

    name: str
    rows: list[str]
    description: str
    run: Callable[["Workload", Setting], list[Result]]
    arguments: list[str]


def run_flow(workload: Workload, setting: Setting, uri: str = "") -> list[Result]:
    """Publish and consume at the same time, to the last message; the figure is the receive rate."""
    delete_queues(setting.broker, [f"bench-{number}" for number in range(1, 5)])
    sample = setting.perf(
        *("--queue-pattern", "bench-%d", "--time", str(setting.seconds), "--drain", DRAIN_S),
        *workload.arguments,
        uri=uri,
    )
    if not sample.summary["is_drained"]:
        raise MeasureError(
            f"{sample.summary['received']} of {sample.summary['published']} messages arrived"
        )
    return [setting.result(workload.rows[0], float(sample.summary["receive_rate"]), RATE, sample)]


def run_tls_flow(workload: Workload, setting: Setting) -> list[Result]:
    """The same as `run_flow`, over the TLS listener."""
    if not setting.broker.tls_uri:
        raise MeasureError("there is no certificate: openssl is not installed")
    return run_flow(workload, setting, setting.broker.tls_uri)


def run_backlog(workload: Workload, setting: Setting) -> list[Result]:
    """Fill a queue without consumers, then drain it without publishers; one rate for each."""
    count = str(setting.backlog_messages)
    queue = ["--queue", "bench-backlog", "--no-auto-delete", *workload.arguments]
    delete_queues(setting.broker, ["bench-backlog"])
    try:
        published = setting.perf(
            *queue, "--consumers", "0", "--pmessages", count, "--confirm", "1000"
        )
        drained = setting.perf(
            *queue,
            "--producers",
            "0",
            "--cmessages",
            count,
            "--qos",
            "1000",
            "--multi-ack-every",
            "100",
        )
    finally:
        delete_queues(setting.broker, ["bench-backlog"])
    return [
        setting.result(workload.rows[0], float(published.summary["publish_rate"]), RATE, published),
        setting.result(workload.rows[1], float(drained.summary["receive_rate"]), RATE, drained),
    ]


def run_cold(workload: Workload, setting: Setting) -> list[Result]:
    """Fill 100 lazy queues at the same time, and drain one of them; the figure is its rate.

    The messages of the queue lie far apart in files that all queues share, and nothing of these
    files is in the system's page cache.
    """
    names = [f"bench-cold-{number}" for number in range(1, COLD_QUEUES + 1)]
    count = str(setting.backlog_messages // COLD_SHARE)
    delete_queues(setting.broker, names)
    try:
        setting.perf(
            *("--queue-pattern", "bench-cold-%d", "--queue-pattern-to", str(COLD_QUEUES)),
            *("--producers", str(COLD_QUEUES), "--consumers", "0", "--pmessages", count),
            *("--no-auto-delete", "--confirm", "20", *workload.arguments),
        )
        setting.broker.forget_pages()
        drained = setting.perf(
            *("--queue", names[COLD_QUEUES // 2], "--predeclared", "--producers", "0"),
            *("--cmessages", count, *BATCH_ACK),
        )
    finally:
        delete_queues(setting.broker, names)
    return [setting.result(workload.rows[0], float(drained.summary["receive_rate"]), RATE, drained)]


def run_round_trip(workload: Workload, setting: Setting) -> list[Result]:
    """Publish one message at a time, each after the confirm of the last; the figure is the rate."""
    delete_queues(setting.broker, ["bench-1"])
    sample = setting.perf(
        "--queue",
        "bench-1",
        "--consumers",
        "0",
        "--time",
        str(setting.seconds),
        *workload.arguments,
    )
    delete_queues(setting.broker, ["bench-1"])
    return [setting.result(workload.rows[0], float(sample.summary["publish_rate"]), RATE, sample)]


def run_turns(workload: Workload, setting: Setting) -> list[Result]:
    """Drain a queue one message at a time, each after the last ack; the figure is the rate."""
    queue = ["--queue", "bench-turns", "--no-auto-delete", *workload.arguments]
    delete_queues(setting.broker, ["bench-turns"])
    try:
        setting.perf(*queue, "--consumers", "0", "--pmessages", str(TURNS), "--confirm", "1000")
        drained = setting.perf(
            *(*queue, "--producers", "0", "--cmessages", str(TURNS)),
            *("--qos", "1", "--write-each-ack"),
        )
    finally:
        delete_queues(setting.broker, ["bench-turns"])
    return [setting.result(workload.rows[0], float(drained.summary["receive_rate"]), RATE, drained)]


def run_paced(workload: Workload, setting: Setting) -> list[Result]:
    """Publish at a rate that both brokers keep easily; the figures are median and p99 latency."""
    delete_queues(setting.broker, ["bench-1"])
    sample = setting.perf("--queue", "bench-1", "--time", str(setting.seconds), *workload.arguments)
    latency = sample.summary["consumer_latency_us"]
    return [
        setting.result(row, float(latency[name]) / 1000, "ms", sample)
        for row, name in zip(workload.rows, ("median", "p99"), strict=True)
    ]


def run_restart(workload: Workload, setting: Setting) -> list[Result]:
    """SIGKILL the broker with confirmed messages on disk, and time its restart.

    The time runs from the start of the process until the queue reports all of the messages.
    """
    count = setting.restart_messages
    delete_queues(setting.broker, ["bench-restart"])
    setting.perf(
        "--queue",
        "bench-restart",
        "--no-auto-delete",
        "--consumers",
        "0",
        "--pmessages",
        str(count),
        *workload.arguments,
    )
    setting.broker.kill()
    started = time.monotonic()
    setting.broker.start()
    found = message_count(setting.broker, "bench-restart")
    elapsed = time.monotonic() - started
    if found != count:
        raise MeasureError(f"{found} of {count} confirmed messages are there after the restart")
    usage = setting.broker.usage()
    delete_queues(setting.broker, ["bench-restart"])
    result = setting.result(workload.rows[0], elapsed, "s", None)
    result.cpu_us_per_message = usage.cpu_s * 1e6 / count
    result.rss_mib = usage.rss_bytes / 2**20
    return [result]


def run_full_queue(workload: Workload, setting: Setting) -> list[Result]:
    """Publish into a queue that has as many messages as it may have; the figure is the rate."""
    delete_queues(setting.broker, ["bench-full"])
    queue = ["--queue", "bench-full", "--no-auto-delete", "--consumers", "0"]
    try:
        sample = setting.perf(*queue, "--time", str(setting.seconds), *workload.arguments)
    finally:
        delete_queues(setting.broker, ["bench-full"])
    return [setting.result(workload.rows[0], float(sample.summary["publish_rate"]), RATE, sample)]


def run_dead_letters(workload: Workload, setting: Setting) -> list[Result]:
    """Let the messages of a queue expire, and time how they become dead letters.

    The time runs from the first to the last one that has reached the queue of dead letters.
    """
    count = setting.backlog_messages
    client = Client(parse_uri(setting.broker.uri), "bench", 60.0)
    names = ["bench-expiring", "bench-dead"]
    try:
        delete_queues(setting.broker, names)
        client.request(QueueDeclare(queue=b"bench-dead", durable=True))
        arguments = (
            f"x-message-ttl={TTL_MS},x-dead-letter-exchange=,x-dead-letter-routing-key=bench-dead"
        )
        queue = ["--queue", names[0], "--no-auto-delete", "--queue-args", arguments]
        setting.perf(*queue, "--consumers", "0", "--pmessages", str(count), *workload.arguments)
        before = setting.broker.usage()
        started, first = time.monotonic(), 0
        while (dead := _ready(client, "bench-dead")) < count:
            if time.monotonic() - started > DEAD_LETTERS_S:
                raise MeasureError(f"{dead} of {count} messages became dead letters")
            if first == 0 and dead > 0:
                started, first = time.monotonic(), dead
            time.sleep(0.005)
        elapsed = time.monotonic() - started
        usage = setting.broker.usage()
    finally:
        client.close()
        delete_queues(setting.broker, names)
    result = setting.result(workload.rows[0], (count - first) / elapsed, RATE, None)
    result.cpu_us_per_message = (usage.cpu_s - before.cpu_s) * 1e6 / count
    result.rss_mib = usage.rss_bytes / 2**20
    return [result]


def _ready(client: Client, queue: str) -> int:
    reply = client.request(QueueDeclare(queue=queue.encode(), passive=True))
    assert isinstance(reply, QueueDeclareOk)
    return reply.message_count


def message_count(broker: Broker, queue: str) -> int:
    """Return the number of ready messages of a queue; MeasureError when it does not exist."""
    client = Client(parse_uri(broker.uri), "bench", 60.0)
    try:
        reply = client.request(QueueDeclare(queue=queue.encode(), passive=True))
    except PerfError as error:
        raise MeasureError(f"{queue} after the restart: {error}") from None
    finally:
        client.close()
    assert isinstance(reply, QueueDeclareOk)
    return reply.message_count


BATCH_ACK = ["--qos", "1000", "--multi-ack-every", "100"]
CONFIRMED = ["--flag", "persistent", "--confirm", "1000"]
FOUR = ["--producers", "4", "--consumers", "4", "--queue-pattern-to", "4"]

WORKLOADS = [
    Workload(
        "transient",
        ["transient 100 B, manual ack"],
        "1 producer, 1 consumer, 1 queue; prefetch 1000, one ack for 100 messages",
        run_flow,
        ["--size", "100", *BATCH_ACK],
    ),
    Workload(
        "autoack",
        ["transient 100 B, auto-ack"],
        "the same without acks",
        run_flow,
        ["--size", "100", "--autoack"],
    ),
    Workload(
        "single-ack",
        ["transient 100 B, every message acked singly"],
        "the same, one ack a message, prefetch 1000; the acks of a read leave together",
        run_flow,
        ["--size", "100", "--qos", "1000"],
    ),
    Workload(
        "written-ack",
        ["transient 100 B, single acks, one write each"],
        "the same, and each ack leaves with a write of its own, as with most clients",
        run_flow,
        ["--size", "100", "--qos", "1000", "--write-each-ack"],
    ),
    Workload(
        "prefetch-1",
        ["round trip of a message and its ack, prefetch 1"],
        "a queue of 100 B is drained; each message comes after the ack of the last one",
        run_turns,
        ["--size", "100"],
    ),
    Workload(
        "persistent-1k",
        ["persistent + confirm 1 KiB"],
        "durable queue, window of 1000 confirms, one ack for 100 messages",
        run_flow,
        ["--size", "1024", *CONFIRMED, *BATCH_ACK],
    ),
    Workload(
        "tls",
        ["persistent + confirm 1 KiB, TLS"],
        "the 1 KiB workload over TLS",
        run_tls_flow,
        ["--size", "1024", *CONFIRMED, *BATCH_ACK],
    ),
    Workload(
        "persistent-8k",
        ["persistent + confirm 8 KiB"],
        "the 1 KiB workload with 8 KiB, which both brokers store outside of the queue's index",
        run_flow,
        ["--size", "8192", *CONFIRMED, *BATCH_ACK],
    ),
    Workload(
        "four",
        ["persistent + confirm 1 KiB, 4 producers, consumers, queues"],
        "the 1 KiB workload four times side by side",
        run_flow,
        ["--size", "1024", *CONFIRMED, *BATCH_ACK, *FOUR],
    ),
    Workload(
        "backlog",
        ["publish into a backlog, 1 KiB", "drain the backlog, 1 KiB"],
        "persistent with confirms and no consumer; then one consumer and no publisher",
        run_backlog,
        ["--size", "1024", "--flag", "persistent"],
    ),
    Workload(
        "lazy",
        ["publish into a lazy queue, 1 KiB", "drain the lazy queue, 1 KiB"],
        "the same with x-queue-mode=lazy",
        run_backlog,
        ["--size", "1024", "--flag", "persistent", "--queue-args", "x-queue-mode=lazy"],
    ),
    Workload(
        "cold",
        ["drain one of 100 interleaved queues, cold, 1 KiB"],
        "100 lazy queues are filled at the same time; one is read back, from the disk",
        run_cold,
        ["--size", "1024", "--flag", "persistent", "--queue-args", "x-queue-mode=lazy"],
    ),
    Workload(
        "round-trip",
        ["confirm round trip"],
        "persistent, 12 B, window of 1: every publish waits for its confirm",
        run_round_trip,
        ["--size", "12", "--flag", "persistent", "--confirm", "1"],
    ),
    Workload(
        "paced",
        ["5,000 msg/s paced, median latency", "5,000 msg/s paced, p99 latency"],
        "transient 100 B, one ack a message, latency from publish to delivery",
        run_paced,
        ["--size", "100", "--rate", "5000", "--qos", "1000"],
    ),
    Workload(
        "priorities",
        ["priority queue of 10 levels, persistent + confirm 1 KiB"],
        "the 1 KiB workload with x-max-priority=10 and messages of ten priorities in turn",
        run_flow,
        [
            *("--size", "1024", *CONFIRMED, *BATCH_ACK),
            *("--queue-args", "x-max-priority=10", "--priorities", "10"),
        ],
    ),
    Workload(
        "max-length",
        ["publish into a queue at its max-length, 1 KiB"],
        "persistent with confirms and no consumer, x-max-length=1000, overflow drop-head",
        run_full_queue,
        ["--size", "1024", *CONFIRMED, "--queue-args", "x-max-length=1000"],
    ),
    Workload(
        "dead-letters",
        ["expired messages that become dead letters, 1 KiB"],
        "persistent messages of one durable queue expire into another one",
        run_dead_letters,
        ["--size", "1024", *CONFIRMED],
    ),
    Workload(
        "restart",
        ["restart after SIGKILL"],
        "persistent 1 KiB messages in one durable queue; start of the process to the first answer that counts them all",
        run_restart,
        ["--size", "1024", *CONFIRMED],
    ),
]
