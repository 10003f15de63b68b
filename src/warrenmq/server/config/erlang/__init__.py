"""RabbitMQ's classic configuration and the arguments of Erlang's machine, as settings of keys.

May import: what a setting is, and how its key is found. Start with `classic.py`.
"""
