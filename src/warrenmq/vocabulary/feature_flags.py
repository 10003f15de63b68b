"""RabbitMQ's names of features, by which tools decide what a broker can do."""

from typing import Final

# Whether a node has the feature; those that it has are always enabled.
FEATURE_FLAGS: Final = {
    "classic_mirrored_queue_version": True,
    "implicit_default_bindings": True,
    "maintenance_mode_status": True,
    "quorum_queue": True,
    "stream_queue": False,
    "user_limits": True,
    "virtual_host_metadata": True,
}


def flag_state(is_on: bool) -> str:
    """The state of a feature as RabbitMQ names it."""
    return "enabled" if is_on else "unavailable"
