"""Process ids in RabbitMQ's look, as listings show them; listings/pids.py makes them."""


def node_of_pid(pid: str) -> str:
    """The node that a pid names."""
    return pid.removeprefix("<").rsplit(".", 3)[0]
