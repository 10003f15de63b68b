"""Histories of messages that leave queues by rule: dead letters, limits, expiry, delays."""
