"""What a node lists, as objects of RabbitMQ's HTTP API: a file for each kind of object.

Typed clients decode these, so a field has one JSON type: counters are numbers at all times, and
`arguments`, `message_stats` and the like are objects.
"""
