"""Definitions in RabbitMQ's JSON: parsed, converted, exported from a node, imported into one."""
