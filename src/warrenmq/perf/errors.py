"""The one error the load generator ends a run with; its text is what the user reads."""


class PerfError(Exception):
    """A run that cannot go on: the broker closed a channel or connection, or sent what is not AMQP 0-9-1."""
