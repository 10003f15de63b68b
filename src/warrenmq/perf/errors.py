"""The one error that ends a run of the load generator; its text is what the user reads."""


class PerfError(Exception):
    """The run cannot continue: the broker closed a channel or connection, or sent no AMQP 0-9-1."""
