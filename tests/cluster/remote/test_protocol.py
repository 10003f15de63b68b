"""The tests of the protocol, by a client of a node that has none of the queues."""

from collections.abc import Callable

from tests.protocol import (
    test_clean_up,
    test_confirms,
    test_consume,
    test_dead_letter_routes,
    test_dead_letters,
    test_deleted_queues,
    test_direct_reply_to,
    test_expiry,
    test_fairness,
    test_limits,
    test_priorities,
    test_publish,
    test_qos,
    test_queues,
    test_quorum_queues,
    test_settle,
    test_single_active,
    test_transactions,
)

MODULES = (
    test_clean_up,
    test_confirms,
    test_consume,
    test_dead_letter_routes,
    test_dead_letters,
    test_deleted_queues,
    test_direct_reply_to,
    test_expiry,
    test_fairness,
    test_limits,
    test_priorities,
    test_publish,
    test_qos,
    test_queues,
    test_quorum_queues,
    test_settle,
    test_single_active,
    test_transactions,
)
# Exclusive queues really live where their client is.
EXCLUSIVE = {
    "test_exclusive_queues_go_before_close_ok",
    "test_exclusive_queues_go_with_a_lost_connection",
    "test_exclusive_queues_go_with_a_connection_error",
    "test_an_exclusive_name_is_free_again",
}
# These look into the engine for a queue, or count the calls of one node.
LOOKS_INSIDE = {
    "test_a_queue_keeps_what_its_target_has_not",
    "test_an_ack_costs_the_same_whatever_the_number_of_consumers",
}


def collected() -> dict[str, Callable[..., object]]:
    """The tests of all modules, each under the name of its module."""
    found: dict[str, Callable[..., object]] = {}
    for module in MODULES:
        subject = module.__name__.rpartition("test_")[2]
        for name, value in vars(module).items():
            if name.startswith("test_") and name not in EXCLUSIVE | LOOKS_INSIDE:
                found[f"test_{subject}_{name[5:]}"] = value
    return found


globals().update(collected())
