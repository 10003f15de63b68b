"""Sequences of steps by seed.

Each sequence uses some of the features only, chosen anew, and those often: a sequence with a bit of
everything would hardly bring two features together. Queues and exchanges come first. Few steps are
illegal, since most of those close a channel and end what was going on.
"""

import random
from collections.abc import Callable

from tests.differential.steps import Step, Typed, Values, step

QUEUES = ("q1", "q2", "q3", "q4")
EXCHANGES = ("x1", "x2", "x3")
# Exchanges that choose one destination, each by rules of its own: all bindings lead to one queue.
CHOOSING = (("h1", "x-consistent-hash", "q1"), ("r1", "x-random", "q2"))
KEYS = ("", "a", "a.b", "a.b.c", "b", *QUEUES)
PATTERNS = ("", "a", "a.b", "#", "*", "a.#", "*.b", "#.b", "a.*.c", "*.*", "b")
TAGS = ("t1", "t2", "t3")
# Nothing expires by it while a sequence runs.
LONG_MS = 600_000
# Time (ms) that passes after each step of a timed sequence, and one that is over by then.
PAUSE_MS = 120
SHORT_MS = 40
STEPS = (8, 30)
# Probability that a sequence is a timed one.
TIMED = 0.03
# Probability that the queues of a sequence are quorum queues.
QUORUM = 0.06


class Generator:
    """Makes the steps of one sequence."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._messages = 0
        # Most steps name what an earlier one has declared.
        self._queues: list[str] = []
        self._exchanges: list[str] = []
        self._choosing: list[str] = []
        self._transactional: set[int] = set()
        self.is_timed = self._random.random() < TIMED
        self._is_quorum = not self.is_timed and self._random.random() < QUORUM
        self._queue_keys = self._some(
            list(self._quorum_arguments() if self._is_quorum else self._queue_arguments()), 0.25
        )
        self._policy_keys = self._some(self._possible(list(self._policy_values())), 0.3)
        self._kinds = self._weights()
        # A routing key for dead letters comes with an exchange for them.
        self._has_dead_letters = (
            any(key.startswith("x-dead-letter-") for key in self._queue_keys)
            or "dead-letter-exchange" in self._policy_keys
        )
        # RabbitMQ forgets the original expiration of a dead letter that it reads from disk.
        self._is_lazy = "x-queue-mode" in self._queue_keys or "queue-mode" in self._policy_keys
        # Queues work side by side, so a burst lets chance mix dead letters of several queues.
        self._burst = (1, 1, 1, 1, 1, 3) if self._has_dead_letters else (1, 1, 1, 2, 3, 6)
        # RabbitMQ keeps the overflow of a policy that is gone, and lets the limit of a policy
        # drop messages by the overflow from before that policy.
        self._sets_overflow = "overflow" in self._policy_keys

    def steps(self) -> list[Step]:
        """The sequence."""
        found = [self._declare() for _ in range(self._random.randint(1, 4))]
        for _ in range(self._random.randint(0, 3)):
            found += [self._exchange(), self._bind()]
        makers = list(self._kinds)
        weights = list(self._kinds.values())
        for _ in range(self._random.randint(*STEPS)):
            found.append(self._random.choices(makers, weights)[0]())
        return found

    def _weights(self) -> dict[Callable[[], Step], float]:
        always: dict[Callable[[], Step], float] = {
            self._publish: 30, self._get: 6, self._consume: 8, self._settle: 16, self._declare: 3, self._illegal: 1,
        }  # fmt: skip
        perhaps: dict[Callable[[], Step], float] = {
            self._bind: 4, self._exchange: 3, self._cancel: 3, self._qos: 4, self._recover: 3, self._purge: 1,
            self._delete: 1.5, self._delete_exchange: 1, self._unbind: 2, self._bind_exchange: 2,
            self._unbind_exchange: 1, self._close: 2, self._passive: 3, self._confirm: 3, self._transact: 6,
            self._policy: 4, self._redeclare: 2, self._drain: 1, self._choosing_exchange: 4,
        }  # fmt: skip
        return always | {maker: perhaps[maker] for maker in perhaps if self._random.random() < 0.45}

    # -- choices -----------------------------------------------------------------------------------

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _some(self, options: list[str], probability: float) -> list[str]:
        return [option for option in options if self._chance(probability)]

    def _channel(self) -> int:
        return self._random.choice((1, 1, 1, 2, 2, 3, 4))

    def _queue(self) -> str:
        if self._chance(0.02):
            return self._random.choice(("", "amq.gen-#1"))
        known = self._queues and self._chance(0.95)
        return self._random.choice(self._queues if known else QUEUES)

    def _source(self) -> str:
        if self._chance(0.1):
            return "amq.topic"
        known = self._exchanges and self._chance(0.95)
        return self._random.choice(self._exchanges if known else EXCHANGES)

    def _exchange_name(self) -> str:
        if self._chance(0.25):
            return self._random.choice(("", "amq.direct", "amq.fanout", "amq.topic", "amq.headers"))
        if self._choosing and self._chance(0.3):
            return self._random.choice(self._choosing)
        return self._source()

    def _time(self) -> int:
        times = [0, LONG_MS, LONG_MS]
        return self._random.choice([*times, SHORT_MS, SHORT_MS] if self.is_timed else times)

    def _body(self) -> str:
        self._messages += 1
        if self._chance(0.5):
            return f"m{self._messages}"
        return f"m{self._messages}:{self._random.choice((0, 5, 50, 200, 5000))}"

    # -- queues and exchanges ----------------------------------------------------------------------

    def _queue_arguments(self) -> dict[str, Callable[[], object]]:
        choice = self._random.choice
        return {
            "x-message-ttl": self._time,
            "x-expires": lambda: choice((LONG_MS, PAUSE_MS * 2)) if self.is_timed else LONG_MS,
            "x-max-length": lambda: choice((0, 1, 2, 3, 5)),
            "x-max-length-bytes": lambda: choice((0, 3, 10, 60, 300)),
            "x-overflow": lambda: choice(("drop-head", "reject-publish", "reject-publish-dlx")),
            "x-dead-letter-exchange": lambda: choice(("", "", *EXCHANGES, "amq.fanout", "none")),
            "x-dead-letter-routing-key": lambda: choice(KEYS),
            "x-max-priority": lambda: choice((0, 1, 2, 5, 255)),
            "x-single-active-consumer": lambda: self._chance(0.8),
            "x-queue-mode": lambda: choice(("default", "lazy")),
            "x-queue-version": lambda: choice((1, 2)),
            "x-queue-type": lambda: "classic",
        }

    def _quorum_arguments(self) -> dict[str, Callable[[], object]]:
        choice = self._random.choice
        classic = self._queue_arguments()
        shared = ("x-max-length", "x-dead-letter-exchange", "x-dead-letter-routing-key")
        return {key: classic[key] for key in shared} | {
            "x-single-active-consumer": classic["x-single-active-consumer"],
            "x-delivery-limit": lambda: choice((0, 1, 2)),
            # With reject-publish, RabbitMQ's quorum queues take some more than their limit.
            "x-overflow": lambda: "drop-head",
        }

    def _arguments(self) -> Values:
        makers = self._quorum_arguments() if self._is_quorum else self._queue_arguments()
        found = {key: makers[key]() for key in self._queue_keys if self._chance(0.6)}
        if self._is_quorum:
            found["x-queue-type"] = "quorum"
        if "x-dead-letter-routing-key" in found and self._chance(0.95):
            found.setdefault("x-dead-letter-exchange", "")
        return {
            key: Typed(self._random.choice("IlsbuBiL"), value)
            if isinstance(value, int)
            and not isinstance(value, bool)
            and value < 128
            and self._chance(0.1)
            else value
            for key, value in found.items()
        }

    def _declare(self) -> Step:
        queue = "" if self._chance(0.03) else self._random.choice(QUEUES)
        self._queues += [queue] if queue else []
        return step(
            "QueueDeclare",
            self._channel(),
            queue=queue,
            durable=self._chance(0.98 if self._is_quorum else 0.5),
            exclusive=self._chance(0.01 if self._is_quorum else 0.07),
            auto_delete=self._chance(0.01 if self._is_quorum else 0.1),
            nowait=self._chance(0.03),
            arguments=self._arguments(),
        )

    def _redeclare(self) -> Step:
        return step(
            "QueueDeclare",
            self._channel(),
            queue=self._queue(),
            durable=self._chance(0.5),
            arguments=self._arguments(),
        )

    def _passive(self) -> Step:
        if self._chance(0.8):
            return step("QueueDeclare", self._channel(), queue=self._queue(), passive=True)
        return step(
            "ExchangeDeclare", self._channel(), exchange=self._exchange_name(), passive=True
        )

    def _purge(self) -> Step:
        return step("QueuePurge", self._channel(), queue=self._queue())

    def _delete(self) -> Step:
        return step(
            "QueueDelete",
            self._channel(),
            queue=self._queue(),
            if_unused=self._chance(0.3),
            if_empty=self._chance(0.3),
        )

    def _exchange(self) -> Step:
        kinds = ("direct", "fanout", "topic", "topic", "headers")
        exchange = self._random.choice(EXCHANGES)
        self._exchanges.append(exchange)
        values: Values = {
            "exchange": exchange,
            "type": self._random.choice(kinds),
            "durable": self._chance(0.3),
            "auto_delete": self._chance(0.1),
            "internal": self._chance(0.08),
        }
        if self._chance(0.15):
            values["arguments"] = {"alternate-exchange": self._random.choice((*EXCHANGES, "none"))}
        return step("ExchangeDeclare", self._channel(), **values)

    def _delete_exchange(self) -> Step:
        return step(
            "ExchangeDelete",
            self._channel(),
            exchange=self._random.choice(EXCHANGES),
            if_unused=self._chance(0.4),
        )

    def _bind(self) -> Step:
        return step("QueueBind", self._channel(), queue=self._queue(), **self._binding("exchange"))

    def _unbind(self) -> Step:
        return step(
            "QueueUnbind", self._channel(), queue=self._queue(), **self._binding("exchange")
        )

    def _bind_exchange(self) -> Step:
        return step(
            "ExchangeBind",
            self._channel(),
            destination=self._source(),
            **self._binding("source"),
        )

    def _unbind_exchange(self) -> Step:
        return step(
            "ExchangeUnbind",
            self._channel(),
            destination=self._source(),
            **self._binding("source"),
        )

    def _binding(self, source: str) -> Values:
        values: Values = {
            source: self._source(),
            "routing_key": self._random.choice(PATTERNS),
        }
        if self._chance(0.3):
            arguments = self._headers()
            if self._chance(0.7):
                arguments["x-match"] = self._random.choice(
                    ("all", "any", "all-with-x", "any-with-x")
                )
            values["arguments"] = arguments
        return values

    def _choosing_exchange(self) -> Step:
        name, kind, queue = self._random.choice(CHOOSING)
        if name not in self._choosing:
            self._choosing.append(name)
            arguments: Values = {}
            if kind == "x-consistent-hash" and self._chance(0.5):
                name_of_value = self._random.choice(("hash-header", "hash-property"))
                arguments[name_of_value] = "message_id" if name_of_value == "hash-property" else "h"
            return step(
                "ExchangeDeclare", self._channel(), exchange=name, type=kind, arguments=arguments
            )
        binding = {"queue": queue, "exchange": name, "routing_key": self._random.choice("1112")}
        kind = "QueueBind" if self._chance(0.8) else "QueueUnbind"
        return step(kind, self._channel(), **binding)

    # -- messages ----------------------------------------------------------------------------------

    def _headers(self) -> Values:
        values: tuple[object, ...] = (
            1, 2, "1", "a", True, None, 1.0, Typed("l", 1), Typed("b", 2), Typed("x", b"a"), [1, "a"], {"in": 1},
        )  # fmt: skip
        keys = ("h", "i", "x-h")
        return {key: self._random.choice(values) for key in keys if self._chance(0.5)}

    def _properties(self) -> Values:
        found: Values = {}
        if self._chance(0.4):
            found["delivery_mode"] = self._random.choice((1, 2, 2))
        if self._chance(0.4 if "x-max-priority" in self._queue_keys else 0.05):
            found["priority"] = self._random.choice((0, 1, 2, 3, 9, 255))
        if self._chance(0.12) and not (self._has_dead_letters and self._is_lazy):
            found["expiration"] = str(self._time())
        if self._chance(0.2):
            headers = self._headers()
            if self._chance(0.4):
                # RabbitMQ sends dead letters to the keys of BCC as well.
                name = "CC" if self._has_dead_letters else self._random.choice(("CC", "BCC"))
                headers[name] = self._some(list(KEYS), 0.3)
            found["headers"] = headers
        if self._chance(0.05):
            found |= {
                "content_type": "text/plain",
                "correlation_id": "c",
                "message_id": "id",
                "timestamp": 1_600_000_000,
                "type": "t",
                "app_id": "app",
                "user_id": "guest",
                "reply_to": "r",
            }
        return found

    def _publish(self) -> Step:
        return step(
            "Publish",
            self._channel(),
            exchange=self._exchange_name() if self._chance(0.45) else "",
            key=self._random.choice(KEYS) if self._chance(0.4) else self._queue(),
            mandatory=self._chance(0.15),
            properties=self._properties(),
            bodies=[self._body() for _ in range(self._random.choice(self._burst))],
        )

    def _get(self) -> Step:
        # RabbitMQ counts a channel that has got a message of a quorum queue among its consumers.
        no_ack = self._is_quorum or self._chance(0.3)
        return step("BasicGet", self._channel(), queue=self._queue(), no_ack=no_ack)

    def _drain(self) -> Step:
        return step("Drain", self._channel(), queue=self._queue())

    def _consume(self) -> Step:
        arguments = {"x-priority": self._random.choice((-1, 0, 1, 5))} if self._chance(0.2) else {}
        return step(
            "BasicConsume",
            self._channel(),
            queue=self._queue(),
            consumer_tag="" if self._chance(0.1) else self._random.choice(TAGS),
            no_ack=self._chance(0.2),
            exclusive=self._chance(0.08),
            arguments=arguments,
        )

    def _cancel(self) -> Step:
        return step("BasicCancel", self._channel(), consumer_tag=self._random.choice(TAGS))

    def _qos(self) -> Step:
        return step(
            "BasicQos",
            self._channel(),
            prefetch_count=self._random.choice((0, 1, 1, 2, 3, 10)),
            global_=self._chance(0.3),
        )

    def _settle(self) -> Step:
        place: object = self._random.randrange(8)
        if self._chance(0.1):
            place = "all"
        return step(
            "Settle",
            self._channel(),
            how=self._random.choice(("ack", "ack", "nack", "nack", "reject")),
            place=place,
            multiple=place == "all" or self._chance(0.3),
            requeue=self._chance(0.5),
        )

    def _recover(self) -> Step:
        return step(
            self._random.choice(("BasicRecover", "BasicRecoverAsync")),
            self._channel(),
            requeue=True,
        )

    def _confirm(self) -> Step:
        return step("ConfirmSelect", self._channel())

    def _transact(self) -> Step:
        if not self._transactional or self._chance(0.2):
            channel = self._channel()
            self._transactional.add(channel)
            return step("TxSelect", channel)
        kind = self._random.choice(("TxCommit", "TxCommit", "TxRollback"))
        return step(kind, self._random.choice(sorted(self._transactional)))

    def _close(self) -> Step:
        kinds = ("CloseChannel", "CloseChannel", "CloseConnection", "DropConnection")
        return step(self._random.choice(kinds), self._channel())

    # -- policies ----------------------------------------------------------------------------------

    def _policy_values(self) -> dict[str, Callable[[], object]]:
        choice = self._random.choice
        return {
            "message-ttl": self._time,
            "expires": lambda: LONG_MS,
            "max-length": lambda: choice((0, 1, 2, 5)),
            "max-length-bytes": lambda: choice((3, 10, 60)),
            "overflow": lambda: choice(("drop-head", "reject-publish", "reject-publish-dlx")),
            "dead-letter-exchange": lambda: choice(("", *EXCHANGES)),
            "dead-letter-routing-key": lambda: choice(KEYS),
            "alternate-exchange": lambda: choice(EXCHANGES),
            "queue-mode": lambda: choice(("default", "lazy")),
        }

    def _possible(self, keys: list[str]) -> list[str]:
        """Those keys of policies whose effect compares."""
        if not self._is_quorum:
            return keys
        # Of messages that leave together, RabbitMQ's quorum queues drop the newest one first.
        return [key for key in keys if not key.startswith("max-length")]

    def _policy(self) -> Step:
        component = "operator_policy" if self._chance(0.2) else "policy"
        name = self._random.choice(("p1", "p2"))
        makers = self._policy_values()
        if component == "operator_policy":
            keys = self._possible(["message-ttl", "expires", "max-length", "max-length-bytes"])
            definition = {key: makers[key]() for key in keys if self._chance(0.6)}
        elif self._sets_overflow:
            keys = [key for key in self._policy_keys if not key.startswith("max-length")]
            definition = {key: makers[key]() for key in keys}
        else:
            definition = {key: makers[key]() for key in self._policy_keys if self._chance(0.6)}
        keeps_one = self._sets_overflow and component == "policy"
        if self._chance(0.3) and not keeps_one:
            return step("ClearPolicy", component=component, name=name)
        patterns = (".*",) if keeps_one else ("^q", "q1", "q[12]", ".*", "^x", "^q3$")
        targets = ("all",) if keeps_one else ("queues", "exchanges", "all", "all")
        value: Values = {
            "pattern": self._random.choice(patterns),
            "definition": definition,
            # No two policies have the same one: chance would decide between them.
            "priority": 1 if name == "p1" else 2,
            "apply-to": self._random.choice(targets),
        }
        return step("SetPolicy", component=component, name=name, value=value)

    # -- what a broker refuses ---------------------------------------------------------------------

    def _illegal(self) -> Step:
        kind, values = self._random.choice(ILLEGAL_STEPS)
        return step(kind, self._channel(), **values)


def _declared(**arguments: object) -> tuple[str, Values]:
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    return "QueueDeclare", {"queue": "bad", "arguments": named}


def _published(**properties: object) -> tuple[str, Values]:
    return "Publish", {"key": "q1", "properties": properties, "bodies": ["bad", "worse"]}


def _step(kind: str, **values: object) -> tuple[str, Values]:
    return kind, values


ILLEGAL_STEPS: tuple[tuple[str, Values], ...] = (
    *(
        _step("Settle", how=how, place=place, multiple=multiple, requeue=True)
        for how in ("ack", "nack")
        for place in ("settled", "unknown", "all")
        for multiple in (False, True)
    ),
    ("Settle", {"how": "reject", "place": "settled", "requeue": False}),
    ("Publish", {"key": "q1", "immediate": True, "bodies": ["bad"]}),
    ("Publish", {"exchange": "none", "key": "q1", "bodies": ["bad", "worse"]}),
    ("Publish", {"exchange": "amq.rabbitmq.trace", "key": "q1", "bodies": ["bad"]}),
    _published(expiration="bad"),
    _published(expiration=""),
    _published(expiration="-1"),
    _published(expiration="12x"),
    _published(expiration="999999999999999"),
    _published(expiration="315360000000"),
    _published(delivery_mode=3),
    _published(user_id="somebody"),
    _published(headers={"CC": "q1"}),
    _published(headers={"BCC": 1}),
    _published(headers={"CC": ["q1", 1, "q2"]}),
    ("BasicQos", {"prefetch_size": 1}),
    ("BasicRecover", {"requeue": False}),
    ("ChannelFlow", {"active": False}),
    ("ChannelOpen", {}),
    ("BasicGetEmpty", {}),
    ("BasicGet", {"queue": "none"}),
    ("BasicConsume", {"queue": "none"}),
    ("BasicConsume", {"queue": "q1", "arguments": {"x-priority": "high"}}),
    ("BasicConsume", {"queue": "q1", "arguments": {"x-cancel-on-ha-failover": 1}}),
    ("BasicConsume", {"queue": "q1", "arguments": {"x-stream-offset": 1}}),
    ("QueuePurge", {"queue": "none"}),
    ("QueueDelete", {"queue": "none"}),
    ("QueueBind", {"queue": "none", "exchange": "x1"}),
    ("QueueBind", {"queue": "q1", "exchange": "none"}),
    ("QueueBind", {"queue": "q1", "exchange": ""}),
    ("QueueBind", {"queue": "q1", "exchange": "amq.headers", "arguments": {"x-match": "none"}}),
    ("QueueBind", {"queue": "q1", "exchange": "amq.headers", "arguments": {"x-match": 1}}),
    ("QueueUnbind", {"queue": "none", "exchange": "x1"}),
    ("ExchangeBind", {"destination": "x1", "source": ""}),
    ("ExchangeBind", {"destination": "none", "source": "x1"}),
    ("ExchangeDeclare", {"exchange": "bad", "type": "no-such-type"}),
    *(
        _step("ExchangeDeclare", exchange="bad", type="x-consistent-hash", arguments=arguments)
        for arguments in (
            {"hash-header": "h", "hash-property": "message_id"},
            {"hash-header": 1},
            {"hash-property": "none"},
            {"hash-property": "message_id"},
        )
    ),
    *(
        _step("QueueBind", queue="q1", exchange="h1", routing_key=key)
        for key in ("", "a", "0", "-1")
    ),
    ("ExchangeDeclare", {"exchange": "amq.bad", "type": "direct"}),
    ("ExchangeDeclare", {"exchange": "", "type": "direct"}),
    ("ExchangeDeclare", {"exchange": "amq.direct", "type": "direct", "durable": True}),
    ("ExchangeDeclare", {"exchange": "bad", "type": "direct", "arguments": {"alternate-exchange": 1}}),
    ("ExchangeDelete", {"exchange": "amq.direct"}),
    ("ExchangeDelete", {"exchange": ""}),
    ("ExchangeDelete", {"exchange": "none"}),
    ("QueueDeclare", {"queue": "amq.bad"}),
    ("QueueDeclare", {"queue": "", "passive": True}),
    ("BasicCancel", {"consumer_tag": "none"}),
    _declared(message_ttl="1"),
    _declared(message_ttl=-1),
    _declared(message_ttl=Typed("l", 315_360_000_001)),
    _declared(message_ttl=Typed("d", 1.0)),
    _declared(expires=0),
    _declared(expires=True),
    _declared(max_length=-1),
    _declared(max_length="1"),
    _declared(max_length_bytes=-1),
    _declared(max_length_bytes=Typed("l", 1 << 40)),
    _declared(overflow="none"),
    _declared(overflow=1),
    _declared(dead_letter_exchange=1),
    _declared(dead_letter_routing_key="k"),
    _declared(dead_letter_exchange="x1", dead_letter_routing_key=1),
    _declared(max_priority=256),
    _declared(max_priority=-1),
    _declared(max_priority="1"),
    _declared(single_active_consumer=1),
    _declared(single_active_consumer="true"),
    _declared(queue_mode="none"),
    _declared(queue_mode=1),
    _declared(queue_version=3),
    _declared(queue_version="1"),
    _declared(queue_type="none"),
    _declared(queue_type=1),
    _declared(delivery_limit=1),
    _declared(max_age="1D"),
    _declared(dead_letter_strategy="at-most-once"),
    _declared(queue_master_locator="min-masters"),
    _declared(unknown="argument"),
)  # fmt: skip
