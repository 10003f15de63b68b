"""The steps of the demo: publish, kill, restart, verify, publish the rest, consume.

The demo keeps account of every message: confirmed before the kill, in flight at the kill, published
afterwards. A confirmed message is never published again. So a duplicate can only be a message that
was in flight, had reached the disk before its confirm reached the publisher, and was published
again; their number is known before the second publish. From then on the contents of each queue are
known exactly, in order, and every reader of a queue is compared with them.
"""

from dataclasses import dataclass

from rich.console import Console

from demo.broker import Broker
from demo.checks import Checks
from demo.corpus import Corpus, SourceFile, find_files, read_corpus, sample
from demo.processes import Processes
from demo.publisher import Published, Publisher, declare
from demo.reading import Contents, message_count, read_queue
from demo.report import megabytes, show_checks, show_kinds
from demo.spark_records import Row, SparkResults
from demo.spark_run import SparkRun, why_no_spark
from demo.steps import Steps
from warrenmq import __version__
from warrenmq.build import build_name

SIGKILL_EXIT = -9


@dataclass
class Story:
    """One run of the demo."""

    console: Console
    processes: Processes
    checks: Checks
    file_limit: int | None

    def tell(self) -> None:
        """Run all steps; the findings are in `checks`. DemoError when the demo cannot continue."""
        self._steps = Steps(self.console)
        spark_missing = why_no_spark(self.processes.directory)
        root, paths = find_files()
        paths = sample(paths, self.file_limit)
        with self._steps.step("reading the standard library", len(paths)) as bar:
            corpus = read_corpus(root, paths, bar.advance)
        self._by_message_id = {file.message_id: file for file in corpus.files}
        self._introduce(corpus)
        broker = Broker(self.processes)
        broker.start()
        declare(broker.parameters, corpus)
        address, queues_shown = broker.ask_api()
        self.checks.expect(
            queues_shown == len(corpus.plan.queues),
            f"The HTTP API at {address} shows {queues_shown} queues.",
            f"the HTTP API at {address} shows {queues_shown} of {len(corpus.plan.queues)} queues",
        )

        before = self._publish_and_kill(broker, corpus)
        restart_s = broker.start()
        survivors = self._look_after_restart(broker, corpus, before, restart_s)
        remaining = self._publish_rest(broker, corpus, before, survivors)
        queues = {
            queue: survivors[queue] + corpus.in_queue(queue, remaining)
            for queue in corpus.plan.queues
        }

        if spark_missing is None:
            self._consume(broker, queues, [corpus.plan.consumed])
            results = self._drain_with_spark(broker, corpus, queues[corpus.plan.streamed])
            self._report_with_spark(broker, corpus, queues[corpus.plan.reported], results)
        else:
            self._consume(broker, queues, list(corpus.plan.queues))
        status = broker.stop()
        self.checks.expect(
            status == 0,
            "SIGTERM stopped the broker cleanly.",
            f"after SIGTERM the broker ended with {status}",
        )
        self.console.print()
        show_checks(self.console, self.checks, self._steps.elapsed_s, spark_missing)

    def _introduce(self, corpus: Corpus) -> None:
        self.console.print(
            f"warren {__version__} ({build_name()}): {len(corpus.files):,} files, "
            f"{megabytes(corpus.total_bytes)}, from {corpus.root}",
            style="bold",
            markup=False,
            soft_wrap=True,
        )
        if corpus.left_out:
            self.console.print(
                f"left out, too large for Spark: {', '.join(corpus.left_out)}",
                markup=False,
                soft_wrap=True,
            )

    # -- publish, kill, restart --------------------------------------------------------------------

    def _publish_and_kill(self, broker: Broker, corpus: Corpus) -> Published:
        kill_at = len(corpus.files) // 2
        with self._steps.step("publishing with confirms, then kill -9", len(corpus.files)) as bar:
            publisher = Publisher(corpus.files, bar.advance, kill_at, broker.kill)
            published = publisher.run(broker.parameters)
        status = broker.end()
        self.checks.expect(
            status == SIGKILL_EXIT and bool(published.in_flight),
            f"kill -9 hit the broker in the middle: {len(published.confirmed):,} of {len(corpus.files):,} messages "
            f"were confirmed, {len(published.in_flight)} in flight.",
            f"the kill did not hit the broker while it was publishing: it ended with {status}, "
            f"{len(published.in_flight)} messages in flight",
        )
        return published

    def _look_after_restart(
        self, broker: Broker, corpus: Corpus, before: Published, restart_s: float
    ) -> dict[str, list[SourceFile]]:
        """Compare all messages in the queues with the files, without consuming them.

        Returns the files of each queue, in order.
        """
        with self._steps.step("restarted: comparing with the files", None) as bar:
            contents = {
                queue: read_queue(
                    broker.parameters, queue, self._by_message_id, bar.advance, is_acking=False
                )
                for queue in corpus.plan.queues
            }
        found = [file for content in contents.values() for file in content.files]
        numbers = {file.number for file in found}
        confirmed = {file.number for file in before.confirmed}
        in_flight = {file.number for file in before.in_flight}
        missing = [file.name for file in before.confirmed if file.number not in numbers]
        damaged = [name for content in contents.values() for name in content.damaged]
        self.checks.expect(
            not missing and not damaged,
            f"Restarted in {restart_s:.1f} s, it had every confirmed message ({len(confirmed):,}, "
            f"{megabytes(sum(file.size for file in before.confirmed))}), byte for byte.",
            f"after the restart {_some(missing)} of the confirmed messages were missing, {_some(damaged)} damaged",
        )
        in_order = all(_is_increasing(content.files) for content in contents.values())
        self.checks.expect(
            in_order and len(found) == len(numbers) and numbers <= confirmed | in_flight,
            "It had each of them once, in the order of publishing. "
            f"Of those in flight {len(numbers & in_flight)} were there too, whole.",
            "after the restart messages were there twice, out of order, or never published",
        )
        return {queue: content.files for queue, content in contents.items()}

    def _publish_rest(
        self,
        broker: Broker,
        corpus: Corpus,
        before: Published,
        survivors: dict[str, list[SourceFile]],
    ) -> list[SourceFile]:
        """Publish every unconfirmed message, as a publisher must; survivors become duplicates."""
        confirmed = {file.number for file in before.confirmed}
        remaining = [file for file in corpus.files if file.number not in confirmed]
        with self._steps.step("publishing what was not confirmed", len(remaining)) as bar:
            rest = Publisher(remaining, bar.advance).run(broker.parameters)
        twice = {file.number for files in survivors.values() for file in files} - confirmed
        self.checks.expect(
            len(rest.confirmed) == len(remaining),
            f"The {len(remaining):,} without a confirm were published now, and confirmed: "
            + (
                f"{len(twice)} are there twice, under one message-id."
                if twice
                else "0 are there twice."
            ),
            f"only {len(rest.confirmed)} of {len(remaining)} messages were confirmed",
        )
        return remaining

    # -- pika --------------------------------------------------------------------------------------

    def _consume(
        self, broker: Broker, queues: dict[str, list[SourceFile]], names: list[str]
    ) -> None:
        total = sum(len(queues[name]) for name in names)
        with self._steps.step(
            f"pika consumes {names[0] if len(names) == 1 else 'all queues'}", total
        ) as bar:
            contents = {
                name: read_queue(
                    broker.parameters, name, self._by_message_id, bar.advance, is_acking=True
                )
                for name in names
            }
        for name, content in contents.items():
            self.checks.expect(
                _is_exactly(content, queues[name]),
                f"{name}: pika consumed exactly the {len(queues[name]):,} messages that must be there, in order, "
                "equal to their files; acked, the queue is empty.",
                f"{name}: pika consumed {len(content.files)} messages, {len(queues[name])} must be there; "
                f"{_some(content.damaged)} damaged, {content.left_behind} left behind",
            )

    # -- Spark -------------------------------------------------------------------------------------

    def _drain_with_spark(
        self, broker: Broker, corpus: Corpus, expected: list[SourceFile]
    ) -> SparkResults:
        queue = corpus.plan.streamed
        spark = SparkRun(self.processes, broker, corpus.plan, len(expected))
        with self._steps.step("Spark starts", len(expected)) as bar:
            committed = spark.drain_until_killed(bar.show)
            bar.show(f"Spark drains {queue}, then kill -9", committed)
        with self._steps.step("Spark starts again", len(expected)) as bar:
            results = spark.run_to_the_end(bar.show)
            bar.show("Spark goes on, runs again, reports", len(expected))
        self.checks.expect(
            0 < committed < len(expected),
            f"{queue}: kill -9 hit Spark {results.spark_version} inside a batch, with {committed:,} of "
            f"{len(expected):,} messages committed to Parquet.",
            f"{queue}: the kill did not hit Spark inside the drain ({committed} of {len(expected)} committed)",
        )
        group = spark.group()
        left = message_count(broker.parameters, queue)
        self.checks.expect(
            _is_the_same(results.drained, expected) and results.again == 0,
            f"{queue}: started again, Spark went on from there. Parquet has every message exactly once "
            f"({len(expected):,} rows, distinct seq ids, SHA-256 equal); a third run added none.",
            f"{queue}: Parquet has {len(results.drained)} rows, {len(expected)} must be there with other contents; "
            f"a third run added {results.again}",
        )
        self.checks.expect(
            left == 0 and group.held == 0 and group.lag == 0,
            f"{queue}: the broker has let go of all of them: the queue is empty, the reader group has no lag.",
            f"{queue}: {left} messages ready, {group.held} held and {group.lag} not acked by the reader group",
        )
        return results

    def _report_with_spark(
        self, broker: Broker, corpus: Corpus, expected: list[SourceFile], results: SparkResults
    ) -> None:
        queue = corpus.plan.reported
        self.console.print()
        show_kinds(self.console, queue, results.kinds)
        left = message_count(broker.parameters, queue)
        counted = sum(kind.count for kind in results.kinds)
        self.checks.expect(
            _is_the_same(results.reported, expected) and counted == left == len(expected),
            f"{queue}: Spark's batch reader saw exactly the {len(expected):,} messages that are there "
            f"({megabytes(sum(file.size for file in expected))}, SHA-256 equal), and they stayed.",
            f"{queue}: Spark's batch reader saw {len(results.reported)} messages and counted {counted}, "
            f"{len(expected)} must be there, {left} are",
        )


def _is_increasing(files: list[SourceFile]) -> bool:
    return all(files[index].number < files[index + 1].number for index in range(len(files) - 1))


def _is_exactly(content: Contents, expected: list[SourceFile]) -> bool:
    return content.files == expected and not content.damaged and content.left_behind == 0


def _is_the_same(rows: list[Row], expected: list[SourceFile]) -> bool:
    """True when the rows, in order, are these messages with their published bodies and hashes.

    The seq ids must be distinct.
    """
    if len({row.seq for row in rows}) != len(rows):
        return False
    return [(row.message_id, row.size, row.sha256, row.sha256_header) for row in rows] == [
        (file.message_id, file.size, file.sha256, file.sha256) for file in expected
    ]


def _some(names: list[str]) -> str:
    return f"{len(names)} ({', '.join(names[:3])} ...)" if names else "none"
