"""A connection: frames to channels, handshake, heartbeats, close. Start with `connection.py`."""
