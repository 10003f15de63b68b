"""The calls that the golden outputs record: families in order, each call in the state before it.

The recorder makes them with RabbitMQ's tools on a RabbitMQ, the golden test with `warrenctl` on a
warren node. A line is what a shell would get, without the tool; a line that begins with
`diagnostics` belongs to rabbitmq-diagnostics.
"""

import shlex
from dataclasses import dataclass
from typing import Final

DIAGNOSTICS: Final = "diagnostics"


@dataclass(frozen=True)
class Call:
    """One run of a tool: `arguments` may name {dir} and {pid}, see runner.py."""

    line: str
    stdin: str = ""

    @property
    def tool(self) -> str:
        """The RabbitMQ tool that has the command."""
        is_diagnostics = self.line.startswith(f"{DIAGNOSTICS} ")
        return "rabbitmq-diagnostics" if is_diagnostics else "rabbitmqctl"

    @property
    def arguments(self) -> list[str]:
        """The arguments as the shell splits them."""
        return shlex.split(self.line.removeprefix(f"{DIAGNOSTICS} "))


def _calls(lines: str) -> list[Call]:
    return [Call(line.strip()) for line in lines.strip().splitlines()]


def _formatted(line: str) -> list[Call]:
    """`line` in all formats."""
    ways = (
        "", "-q", "-s", "--no-table-headers", "--formatter=table", "--formatter json",
        "--formatter csv", "--formatter=pretty_table", "-s --formatter csv",
        "-q --formatter pretty_table", "--no-table-headers --formatter csv",
    )  # fmt: skip
    return [Call(f"{line} {way}".strip()) for way in ways]


QUEUE_COLUMNS: Final = (
    "name durable auto_delete arguments policy exclusive messages messages_ready "
    "messages_unacknowledged messages_persistent message_bytes message_bytes_ready "
    "message_bytes_unacknowledged message_bytes_persistent consumers state type "
    "exclusive_consumer_tag slave_pids synchronised_slave_pids leader members online"
)

FAMILIES: Final[dict[str, list[Call]]] = {
    "usage": [
        *_calls(
            """
            nosuch
            lst_queues
            list_queue name
            list_queues bogus
            list_queues name bogus messages wrong
            list_queues --bogus
            list_queues --bogus=1 name
            list_queues -t abc
            list_queues --formatter nosuch
            list_queues name, messages
            list_queues name,messages
            -p / list_queues name
            list_queues --vhost / name
            list_queues --vhost=/ name
            -q list_queues name
            --quiet --silent list_queues name
            list_queues -t 5 name
            list_queues -t 0 name
            list_queues --timeout=5 name
            --dry-run list_queues
            list_queues -p
            add_user
            add_user one two three
            delete_user
            set_permissions alice a b
            set_permissions alice a b c d
            set_policy only-name
            delete_queue
            purge_queue
            purge_queue one two
            close_connection one
            set_vhost_limits
            set_user_tags
            list_users extra
            status extra
            ping extra
            list_vhosts bogus
            list_connections bogus
            list_channels bogus
            list_exchanges bogus
            list_bindings bogus
            list_consumers bogus
            help nosuch
            version
            version --formatter json
            diagnostics nosuch
            -n nosuch@localhost list_queues
            -n nosuch@localhost -q add_user a b
            diagnostics -n nosuch@localhost ping
            """
        )
    ],
    "users": [
        *_formatted("list_users"),
        *_calls(
            """
            add_user alice s3cret
            add_user alice s3cret
            -q add_user alice s3cret
            add_user "" secret
            add_user dora ""
            delete_user dora
            -s add_user carol pw
            add_user "o'neil" 'p w'
            list_users
            -q add_user frank pw
            --formatter json add_user gina pw
            delete_user frank
            delete_user gina
            authenticate_user alice s3cret
            -q authenticate_user alice s3cret
            authenticate_user alice wrong
            authenticate_user nobody wrong
            authenticate_user alice
            change_password alice newer
            change_password nobody newer
            authenticate_user alice newer
            clear_password alice
            clear_password nobody
            authenticate_user alice newer
            set_user_tags alice management monitoring
            set_user_tags alice
            set_user_tags alice policymaker custom-tag
            set_user_tags nobody management
            """
        ),
        *_formatted("list_users"),
        *_calls(
            """
            list_user_limits --user alice
            set_user_limits alice '{"max-connections": 3}'
            set_user_limits alice '{"max-channels": 20}'
            set_user_limits alice '{"max-bogus": 3}'
            set_user_limits alice '{"max-channels": "many"}'
            set_user_limits alice 'no json'
            set_user_limits nobody '{"max-channels": 20}'
            list_user_limits --user alice
            list_user_limits --user nobody
            list_user_limits
            list_user_limits --global
            list_user_limits --global --formatter json
            list_user_limits --user alice --formatter csv
            clear_user_limits alice max-channels
            clear_user_limits alice max-bogus
            list_user_limits --user alice
            clear_user_limits alice all
            clear_user_limits nobody all
            list_user_limits --global
            delete_user carol
            add_user frank pw
            -q delete_user frank
            delete_user nobody
            """
        ),
        Call("add_user bert", "from stdin\n"),
        Call("authenticate_user bert", "from stdin\n"),
        Call("change_password bert", "changed\n"),
        Call("authenticate_user bert changed"),
    ],
    "permissions": [
        *_calls(
            """
            list_permissions
            set_permissions alice "^app-.*" ".*" ".*"
            set_permissions -p / bert "" "^$" "a|b"
            -q set_permissions -p / bert "" "^$" "a|b"
            set_permissions -p nosuch alice a b c
            set_permissions nobody a b c
            set_permissions alice "(" b c
            set_permissions alice a b "[z"
            """
        ),
        *_formatted("list_permissions"),
        *_calls(
            """
            list_permissions -p nosuch
            list_user_permissions alice
            list_user_permissions alice --formatter json
            list_user_permissions alice --formatter csv
            list_user_permissions nobody
            list_user_permissions
            set_topic_permissions alice amq.topic "^w" "^r"
            set_topic_permissions -p / alice other "{username}" ".*"
            set_topic_permissions nobody amq.topic "^w" "^r"
            set_topic_permissions -p nosuch alice amq.topic "^w" "^r"
            set_topic_permissions alice amq.topic "(" "^r"
            set_topic_permissions alice amq.topic "^r"
            list_topic_permissions
            list_topic_permissions --formatter json
            list_topic_permissions --formatter csv
            list_topic_permissions -p nosuch
            list_user_topic_permissions alice
            list_user_topic_permissions alice --formatter json
            list_user_topic_permissions nobody
            clear_topic_permissions alice amq.topic
            clear_topic_permissions alice amq.topic
            list_topic_permissions
            clear_topic_permissions alice
            clear_topic_permissions nobody
            clear_topic_permissions -p nosuch alice
            list_topic_permissions
            clear_permissions bert
            clear_permissions bert
            clear_permissions nobody
            clear_permissions -p nosuch alice
            -q clear_permissions alice
            list_permissions
            """
        ),
    ],
    "vhosts": [
        *_formatted("list_vhosts"),
        *_calls(
            """
            add_vhost app
            add_vhost app
            add_vhost
            add_vhost described --description "what it is for" --tags one,two
            add_vhost typed --default-queue-type classic
            add_vhost wrong-type --default-queue-type bogus
            -q add_vhost quiet
            list_vhosts name description tags tracing default_queue_type
            list_vhosts name tags --formatter json
            list_vhosts name tags --formatter csv
            list_vhosts name description tags --formatter pretty_table
            set_vhost_tags app blue green
            set_vhost_tags app
            set_vhost_tags nosuch blue
            list_vhosts name tags
            set_vhost_limits -p app '{"max-connections": 10, "max-queues": 50}'
            set_vhost_limits -p app '{"max-bogus": 10}'
            set_vhost_limits -p app '{"max-queues": "many"}'
            set_vhost_limits -p app 'no json'
            set_vhost_limits -p nosuch '{"max-connections": 10}'
            list_vhost_limits
            list_vhost_limits -p app
            list_vhost_limits -p nosuch
            list_vhost_limits --global
            list_vhost_limits --global --formatter json
            list_vhost_limits -p app --formatter csv
            clear_vhost_limits -p app
            clear_vhost_limits -p app
            list_vhost_limits -p app
            trace_on -p app
            list_vhosts name tracing
            trace_on -p app
            -q trace_on -p app
            trace_off -p app
            trace_off --formatter json
            trace_on -p nosuch
            list_vhosts name tracing
            restart_vhost -p app
            restart_vhost -p nosuch
            delete_vhost nosuch
            delete_vhost
            -q delete_vhost quiet
            delete_vhost typed
            delete_vhost described
            list_vhosts
            """
        ),
    ],
    "policies": [
        *_calls(
            r"""
            list_policies
            list_policies --formatter json
            list_policies -q
            set_policy ttl "^short\." '{"message-ttl":60000}' --priority 5 --apply-to queues
            set_policy capped "^lazy" '{"max-length":10000, "overflow":"reject-publish"}'
            set_policy --priority -2 --apply-to exchanges alternate "^alt" '{"alternate-exchange":"amq.fanout"}'
            set_policy -p app everything ".*" '{"max-length-bytes":1000000,"message-ttl":5}'
            set_policy -p nosuch ttl "^x" '{"message-ttl":1}'
            set_policy bad "^x" '{"nonsense":1}'
            set_policy bad "^x" '{"message-ttl":"soon"}'
            set_policy bad "^x" '{"message-ttl":-1}'
            set_policy bad "^x" '{"overflow":"explode"}'
            set_policy bad "^x" '{}'
            set_policy bad "(" '{"message-ttl":1}'
            set_policy bad "^x" 'no json'
            set_policy bad "^x" '[1]'
            set_policy bad "^x" '{"message-ttl":1}' --priority high
            set_policy bad "^x" '{"message-ttl":1}' --apply-to bogus
            set_policy bad "^x" '{"message-ttl":1}' --apply-to bogus --priority 1.5
            set_policy "" "^x" '{"message-ttl":1}'
            -q set_policy quiet "^x" '{"expires":1000}'
            """
        ),
        *_formatted("list_policies"),
        *_calls(
            """
            list_policies -p app
            list_policies -p nosuch
            list_queues name policy
            list_exchanges name policy
            set_operator_policy bound "^lazy" '{"max-length":500}' --priority 1 --apply-to queues
            set_operator_policy bound2 "^x" '{"dead-letter-exchange":"dlx"}'
            set_operator_policy -p nosuch bound "^x" '{"max-length":500}'
            list_operator_policies
            list_operator_policies --formatter json
            list_operator_policies --formatter csv
            list_operator_policies -p nosuch
            list_queues name policy
            clear_operator_policy bound
            clear_operator_policy bound
            clear_operator_policy -p nosuch bound
            clear_policy quiet
            clear_policy quiet
            clear_policy -p nosuch quiet
            clear_policy
            list_policies
            list_operator_policies
            """
        ),
    ],
    "parameters": _calls(
        """
        list_parameters
        list_parameters -p nosuch
        set_parameter nosuch-component name '{"a":1}'
        set_parameter -p nosuch nosuch-component name '{"a":1}'
        set_parameter nosuch-component name 'no json'
        set_parameter nosuch-component name
        clear_parameter nosuch-component name
        clear_parameter nosuch-component
        list_global_parameters -q
        set_global_parameter my_key '{"a":1,"b":[true,null,"x"]}'
        set_global_parameter my_text '"text"'
        set_global_parameter my_number 12
        set_global_parameter my_key2 'no json'
        list_global_parameters
        list_global_parameters --formatter json
        list_global_parameters --formatter csv
        clear_global_parameter my_text
        clear_global_parameter my_number
        clear_global_parameter my_key
        clear_global_parameter nosuch
        set_cluster_name golden
        set_cluster_name
        list_global_parameters
        """
    ),
    "queues": [
        *_formatted("list_queues"),
        *_formatted(f"list_queues {QUEUE_COLUMNS}"),
        *_calls(
            """
            list_queues --formatter erlang
            list_queues name durable exclusive messages policy --formatter json
            list_queues name arguments --formatter json
            list_queues name consumer_capacity
            list_queues messages name
            list_queues name name
            list_queues -p app
            list_queues -p app --formatter json
            list_queues -p app --formatter csv
            list_queues -p app --formatter pretty_table
            list_queues -p nosuch
            list_queues --online name
            list_queues --offline name
            list_queues --local name
            list_queues pid owner_pid name
            list_queues messages_ram messages_ready_ram messages_unacknowledged_ram message_bytes_ram name
            list_queues head_message_timestamp consumer_utilisation exclusive_consumer_pid name
            list_unresponsive_queues
            list_unresponsive_queues name
            """
        ),
    ],
    "listings": [
        *_formatted("list_exchanges"),
        *_calls(
            """
            list_exchanges name type durable auto_delete internal arguments policy
            list_exchanges name type durable auto_delete internal arguments policy --formatter json
            list_exchanges name type durable auto_delete internal arguments policy --formatter csv
            list_exchanges name type durable auto_delete internal policy --formatter json
            list_exchanges -p app name
            list_exchanges -p nosuch
            """
        ),
        *_formatted("list_bindings"),
        *_calls(
            """
            list_bindings source_name destination_name routing_key --formatter json
            list_bindings source_name destination_name arguments
            list_bindings -p app
            list_bindings -p nosuch
            list_bindings -p app --formatter json
            """
        ),
        *_formatted("list_consumers"),
        *_calls(
            """
            list_consumers queue_name consumer_tag
            list_consumers queue_name consumer_tag prefetch_count active --formatter json
            list_consumers arguments
            list_consumers -p app
            list_consumers -p nosuch
            """
        ),
        *_formatted("list_connections"),
        *_calls(
            """
            list_connections pid name port host peer_port peer_host
            list_connections name ssl ssl_protocol ssl_cipher ssl_hash ssl_key_exchange
            list_connections peer_cert_subject peer_cert_issuer peer_cert_validity
            list_connections user state channels protocol auth_mechanism vhost timeout frame_max channel_max send_pend
            list_connections user state channels auth_mechanism vhost --formatter json
            list_connections user channels protocol auth_mechanism vhost timeout frame_max --formatter json
            list_connections client_properties
            list_connections client_properties --formatter json
            """
        ),
        *_formatted("list_channels"),
        *_calls(
            """
            list_channels pid connection name number user vhost transactional confirm
            list_channels number consumer_count messages_unacknowledged messages_uncommitted acks_uncommitted messages_unconfirmed prefetch_count global_prefetch_count
            list_channels number user confirm prefetch_count --formatter json
            """
        ),
    ],
    "checks": _calls(
        """
        diagnostics ping
        diagnostics check_running
        diagnostics check_local_alarms
        diagnostics check_alarms
        diagnostics alarms
        diagnostics alarms --formatter json
        diagnostics check_port_connectivity
        diagnostics check_port_listener 1
        diagnostics check_port_listener {port}
        diagnostics check_port_listener abc
        diagnostics check_port_listener
        diagnostics -s check_alarms
        diagnostics -q check_running
        diagnostics check_alarms --formatter json
        diagnostics check_protocol_listener amqp
        diagnostics check_protocol_listener amqp/ssl
        diagnostics check_protocol_listener https
        diagnostics check_protocol_listener bogus
        diagnostics check_virtual_hosts
        diagnostics is_running
        diagnostics is_booting
        diagnostics is_running --formatter json
        diagnostics listeners
        diagnostics listeners --formatter json
        diagnostics server_version
        diagnostics memory_breakdown
        diagnostics memory_breakdown --unit mb
        diagnostics memory_breakdown --formatter json
        diagnostics memory_breakdown --unit bogus
        diagnostics check_certificate_expiration --within 1 --unit months
        diagnostics check_certificate_expiration --within 0 --unit months
        diagnostics check_certificate_expiration --within 1 --unit bogus
        diagnostics check_if_node_is_mirror_sync_critical
        diagnostics check_if_node_is_quorum_critical
        diagnostics log_location
        diagnostics log_location --all
        diagnostics certificates
        diagnostics tls_versions
        diagnostics tls_versions --formatter json
        diagnostics cipher_suites --format openssl
        diagnostics command_line_arguments
        diagnostics os_env
        diagnostics runtime_thread_stats --sample-interval 1
        set_vm_memory_high_watermark 0.00001
        diagnostics check_alarms
        diagnostics check_local_alarms
        diagnostics alarms
        diagnostics alarms --formatter json
        status -s
        set_vm_memory_high_watermark 0.4
        diagnostics check_alarms
        """
    ),
    "node": _calls(
        """
        ping
        -q ping
        await_startup
        await_online_nodes 1
        await_online_nodes 2 -t 1
        status
        -s status
        status --formatter json
        status --unit mb
        status --unit bogus
        cluster_status
        cluster_status --formatter json
        environment
        environment --formatter json
        set_vm_memory_high_watermark 0.5
        set_vm_memory_high_watermark 1.5
        set_vm_memory_high_watermark -1
        set_vm_memory_high_watermark abc
        set_vm_memory_high_watermark
        set_vm_memory_high_watermark absolute 4GB
        set_vm_memory_high_watermark absolute 5000000000
        set_vm_memory_high_watermark absolute abc
        set_vm_memory_high_watermark absolute
        set_vm_memory_high_watermark 0.4
        set_disk_free_limit 50MB
        set_disk_free_limit 60000000
        set_disk_free_limit 1GiB
        set_disk_free_limit mem_relative 0.001
        set_disk_free_limit mem_relative abc
        set_disk_free_limit mem_relative
        set_disk_free_limit abc
        set_disk_free_limit
        set_disk_free_limit 50MB
        set_log_level debug
        set_log_level bogus
        set_log_level info
        rotate_logs
        list_hashes
        list_hashes --formatter json
        list_ciphers
        list_feature_flags
        list_feature_flags name state --formatter json
        list_node_auth_attempt_stats
        list_node_auth_attempt_stats --by-source
        force_gc
        suspend_listeners
        resume_listeners
        reset
        sync_queue orders
        sync_queue nosuch
        cancel_sync_queue orders
        join_cluster other@localhost
        forget_cluster_node other@localhost
        force_reset
        """
    ),
    "definitions": _calls(
        """
        export_definitions
        export_definitions {dir}/exported.json
        export_definitions {dir}/nosuch/exported.json
        -q export_definitions {dir}/exported.json
        export_definitions {dir}/exported.json --format bogus
        import_definitions {dir}/exported.json
        -q import_definitions {dir}/exported.json
        import_definitions {dir}/missing.json
        import_definitions {dir}/broken.json
        import_definitions {dir}/wrong.json
        import_definitions {dir}/small.json
        list_users
        list_queues -p imported name durable arguments
        delete_vhost imported
        delete_user imported
        """
    ),
    "closing": _calls(
        """
        purge_queue with-messages
        purge_queue with-messages
        -q purge_queue with-messages
        purge_queue nosuch
        purge_queue with-messages -p nosuch
        delete_queue orders --if-unused
        delete_queue orders --if-empty
        delete_queue nosuch
        delete_queue nosuch -p nosuch
        delete_queue full
        delete_queue full
        -q delete_queue empty --if-empty --if-unused
        close_connection {pid} "golden reason"
        close_connection {pid} "golden reason"
        close_connection "<nosuch@localhost.1.2.3>" reason
        close_connection nonsense reason
        close_all_connections --limit 1 "limited"
        close_all_user_connections guest bye
        close_all_user_connections nobody bye
        close_all_connections -p app bye
        close_all_connections -p nosuch bye
        close_all_connections
        close_all_connections bye
        close_all_connections --global bye
        close_all_connections --global --limit 3 bye
        --formatter json close_all_connections bye
        list_connections
        list_channels
        list_consumers
        """
    ),
    "stopping": _calls(
        """
        stop_app
        stop_app
        diagnostics check_running
        diagnostics is_running
        diagnostics check_local_alarms
        diagnostics check_port_connectivity
        list_queues
        list_users
        add_user late pw
        diagnostics listeners
        await_startup -t 1
        ping
        status -s
        cluster_status -s
        reset
        start_app
        start_app
        diagnostics check_running
        list_users
        list_vhosts
        list_queues
        """
    ),
}  # fmt: skip
