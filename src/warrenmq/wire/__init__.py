"""The AMQP 0-9-1 codec: bytes to frames, methods, field tables and properties, and back.

The package does no I/O, is compiled, and imports nothing else of warren. Start with `frames` (bytes
in), `methods` (generated from spec/amqp0-9-1.toml; `method` is its hand-written half) and `encode`
(bytes out). Bytes that do not decode always raise `errors.ConnectionException`, with the reply for
the peer.
"""
