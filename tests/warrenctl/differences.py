"""Calls whose output differs from RabbitMQ's on purpose; docs/differences.md says why."""

from enum import Enum
from typing import Final

from tests.warrenctl.scenario import QUEUE_COLUMNS


class Difference(Enum):
    """The parts of a call's result that differ."""

    NONE = ()
    TEXT = ("stdout", "stderr")
    ALL = ("stdout", "stderr", "exit code")


def _of(difference: Difference, lines: str) -> dict[str, Difference]:
    return {line.strip(): difference for line in lines.strip().splitlines()}


_TEXT: Final = Difference.TEXT
_ALL: Final = Difference.ALL

DIFFERENCES: Final[dict[str, dict[str, Difference]]] = {
    "usage": {
        # RabbitMQ's tool ends with a stack trace of its own.
        **_of(_ALL, "list_queues --formatter nosuch"),
        # The node's own version stands beside RabbitMQ's.
        **_of(_TEXT, "version --formatter json"),
        # The reasons why a node is not reached are others.
        **_of(
            _TEXT,
            """
            -n nosuch@localhost list_queues
            -n nosuch@localhost -q add_user a b
            """,
        ),
    },
    "users": {
        # RabbitMQ prints an Erlang term, or fails to print a text as CSV.
        **_of(
            _TEXT,
            """
            clear_password nobody
            set_user_limits nobody '{"max-channels": 20}'
            list_user_limits --user nobody
            clear_user_limits nobody all
            """,
        ),
        **_of(_ALL, "list_user_limits --user alice --formatter csv"),
        # RabbitMQ's pretty tables have nothing between the tags of a user.
        **_of(
            _TEXT,
            """
            list_users --formatter=pretty_table
            list_users -q --formatter pretty_table
            """,
        ),
        # JSON has the limits themselves instead of a text with JSON in it.
        **_of(_TEXT, "list_user_limits --global --formatter json"),
    },
    "permissions": {
        # RabbitMQ prints an Erlang term.
        **_of(
            _TEXT,
            """
            set_permissions alice "(" b c
            set_permissions alice a b "[z"
            set_topic_permissions alice amq.topic "(" "^r"
            list_user_permissions nobody
            list_user_topic_permissions nobody
            """,
        ),
    },
    "vhosts": {
        # RabbitMQ's add_vhost makes one text of all tags, and JSON hides limits in a text.
        **_of(
            _TEXT,
            """
            list_vhosts name description tags tracing default_queue_type
            list_vhosts name tags --formatter json
            list_vhosts name tags --formatter csv
            list_vhosts name description tags --formatter pretty_table
            list_vhosts name tags
            list_vhost_limits --global --formatter json
            """,
        ),
        # RabbitMQ prints an Erlang term, or fails to print a text as CSV.
        **_of(
            _TEXT,
            """
            add_vhost wrong-type --default-queue-type bogus
            restart_vhost -p nosuch
            """,
        ),
        **_of(_ALL, "list_vhost_limits -p app --formatter csv"),
        # RabbitMQ traces a vhost that does not exist.
        **_of(_ALL, "trace_on -p nosuch"),
    },
    "policies": {
        # JSON has the definition itself instead of a text with JSON in it.
        **_of(
            _TEXT,
            """
            list_policies --formatter json
            list_operator_policies --formatter json
            """,
        ),
        # RabbitMQ prints an Erlang term.
        **_of(_TEXT, "set_policy bad \"^x\" '[1]'"),
    },
    "parameters": {
        # Parameters of components that the node does not have are stored.
        **_of(
            _ALL,
            """
            set_parameter nosuch-component name '{"a":1}'
            set_parameter -p nosuch nosuch-component name '{"a":1}'
            clear_parameter nosuch-component name
            """,
        ),
        # RabbitMQ's node has a parameter of its own.
        **_of(_TEXT, "list_global_parameters -q"),
        # JSON has the value itself.
        **_of(_TEXT, "list_global_parameters --formatter json"),
        # Their names are atoms.
        **_of(_TEXT, "list_global_parameters --formatter erlang"),
    },
    "queues": {
        # Bytes in memory are those of whole messages, and how ready consumers are depends on the
        # time.
        **_of(
            _TEXT,
            """
            list_queues messages_ram messages_ready_ram messages_unacknowledged_ram message_bytes_ram name
            list_queues head_message_timestamp consumer_utilisation exclusive_consumer_pid name
            list_queues name consumer_capacity
            """,
        ),
        # JSON has arguments as an object.
        **_of(_TEXT, "list_queues name arguments --formatter json"),
        **{
            f"list_queues {QUEUE_COLUMNS} {way}": _TEXT
            for way in (
                "--formatter json",
                "--formatter=pretty_table",
                "-q --formatter pretty_table",
            )
        },
    },
    "listings": {
        # JSON has arguments as objects, addresses and pids as texts; pretty tables have Erlang's
        # terms for all of them.
        **_of(
            _TEXT,
            """
            list_exchanges name type durable auto_delete internal arguments policy --formatter json
            list_bindings --formatter json
            list_bindings --formatter=pretty_table
            list_bindings -q --formatter pretty_table
            list_consumers --formatter json
            list_consumers --formatter=pretty_table
            list_consumers -q --formatter pretty_table
            list_connections --formatter json
            list_connections --formatter=pretty_table
            list_connections -q --formatter pretty_table
            list_connections user channels protocol auth_mechanism vhost timeout frame_max --formatter json
            list_connections client_properties --formatter json
            list_channels --formatter json
            list_channels --formatter=pretty_table
            list_channels -q --formatter pretty_table
            list_consumers --formatter erlang
            """,
        ),
    },
    "checks": {
        # What they show is the node's own.
        **_of(
            _TEXT,
            """
            diagnostics memory_breakdown
            diagnostics memory_breakdown --unit mb
            diagnostics memory_breakdown --formatter json
            diagnostics log_location
            diagnostics log_location --all
            diagnostics cipher_suites --format openssl
            diagnostics os_env
            diagnostics os_env --formatter json
            diagnostics os_env --formatter csv
            diagnostics listeners --formatter erlang
            diagnostics tls_versions --formatter erlang
            status -s
            """,
        ),
        # Not available.
        **_of(
            _ALL,
            """
            diagnostics command_line_arguments
            diagnostics runtime_thread_stats --sample-interval 1
            """,
        ),
    },
    "node": {
        # What they show is the node's own.
        **_of(
            _TEXT,
            """
            status
            -s status
            status --formatter json
            status --unit mb
            cluster_status
            cluster_status --formatter json
            environment
            environment --formatter json
            list_feature_flags
            list_feature_flags name state --formatter json
            set_log_level bogus
            """,
        ),
        # The recorder has logged in as well.
        **_of(_TEXT, "list_node_auth_attempt_stats"),
        # RabbitMQ fails to print a text as CSV.
        **_of(_ALL, "list_node_auth_attempt_stats --formatter csv"),
        # RabbitMQ does not rotate logs by a command any more.
        **_of(_ALL, "rotate_logs"),
        **_of(
            _ALL,
            """
            list_hashes
            list_hashes --formatter json
            list_ciphers
            force_gc
            """,
        ),
    },
    "definitions": {
        # JSON is the only format, and an import is over when the command ends.
        **_of(
            _TEXT,
            """
            export_definitions {dir}/exported.json --format bogus
            import_definitions {dir}/exported.json
            import_definitions {dir}/small.json
            """,
        ),
        # Other words for what is wrong with the file.
        **_of(
            _TEXT,
            """
            import_definitions {dir}/broken.json
            import_definitions {dir}/wrong.json
            """,
        ),
    },
    "tools": {
        # RabbitMQ's text also says that the command will be removed.
        **_of(
            _TEXT,
            """
            node_health_check
            diagnostics node_health_check
            """,
        ),
        # There are no streams.
        **_of(_TEXT, "-q list_feature_flags"),
        # What a node has built in cannot be disabled, and it has nothing of the other plug-ins.
        **_of(
            _TEXT,
            """
            plugins -q list -E -m
            plugins list rabbitmq_shovel --formatter json
            plugins list
            plugins list -e
            plugins list -m
            plugins directories
            plugins directories -s
            plugins enable rabbitmq_management
            plugins -q enable rabbitmq_management --online
            plugins enable --offline rabbitmq_management rabbitmq_shovel
            plugins set rabbitmq_management
            plugins set
            plugins disable rabbitmq_management
            plugins disable nosuch
            plugins is_enabled rabbitmq_mqtt
            plugins is_enabled nosuch rabbitmq_mqtt
            """,
        ),
        # RabbitMQ prints an Erlang term.
        **_of(
            _TEXT,
            """
            plugins enable nosuch
            plugins enable nosuch rabbitmq_shovel
            """,
        ),
        # RabbitMQ finds the name similar.
        **_of(_TEXT, "plugins list_users"),
        # Not available.
        **_of(_TEXT, "queues reclaim_quorum_memory nosuch"),
        # A node does not speak AMQP 1.0.
        **_of(_ALL, "diagnostics check_protocol_listener amqp10"),
    },
    # RabbitMQ prints an Erlang term.
    "closing": _of(_TEXT, "close_connection nonsense reason"),
}
