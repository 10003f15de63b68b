"""Patterns that come from outside: rights, policies, the rule for passwords, names of queues."""
