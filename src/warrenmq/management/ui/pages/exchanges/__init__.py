"""Exchanges: the list, and one with its rates, bindings and ways of messages."""
