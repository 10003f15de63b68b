"""Names of Spark's Kafka source and sink, and what has their place here: hints for errors.

Options of Kafka are not taken as aliases. A program for Kafka reads without consuming, so one that
ran here unchanged would take messages out of queues without its author's knowledge.
docs/spark/from-kafka.md has the same tables.
"""

from typing import Final

# Options in lower case, and the options here that do the same, the best one first.
OPTIONS_INSTEAD: Final = {
    "assign": ("queues", "queue"),
    "subscribe": ("queues", "queue"),
    "subscribepattern": ("queuesPattern", "queue"),
    "kafka.bootstrap.servers": ("uri",),
    "startingoffsetsbytimestamp": ("startingTimestamp",),
    "endingoffsetsbytimestamp": ("endingTimestamp",),
    "maxoffsetspertrigger": ("maxMessagesPerTrigger",),
    "minoffsetspertrigger": ("minMessagesPerTrigger",),
    "maxrecordsperpartition": ("minPartitions",),
    "kafka.group.id": ("group",),
    "group.id": ("group",),
    "groupid": ("group",),
    "groupidprefix": ("group",),
    "kafkaconsumer.polltimeoutms": ("retryTimeoutMs",),
    "fetchoffset.numretries": ("retryTimeoutMs",),
    "fetchoffset.retryintervalms": ("retryTimeoutMs",),
    "topic": ("routingKey", "queues", "queue"),
}
# Options in lower case that have no place here, and why.
OPTIONS_WITHOUT: Final = {
    "startingoffsetsbytimestampstrategy": "not needed: a time behind the end of a queue is its end",
}
_CLIENT_PREFIX: Final = "kafka."
_CLIENT_HINT: Final = "of Kafka's client; user, password and TLS are parts of the option 'uri'"

# Columns of Kafka's sink, and the columns here that have their place.
COLUMNS_INSTEAD: Final = {"key": "routing_key", "value": "body", "topic": "routing_key"}


def option_hint(name: str, known: tuple[str, ...]) -> str:
    """What to say of option `name`, in lower case, where `known` are taken; "" if nothing."""
    meant = [each for each in OPTIONS_INSTEAD.get(name, ()) if each in known]
    if meant:
        return f"did you mean {meant[0]}?"
    if name.startswith(_CLIENT_PREFIX) and name not in OPTIONS_INSTEAD:
        return _CLIENT_HINT
    return OPTIONS_WITHOUT.get(name, "")
