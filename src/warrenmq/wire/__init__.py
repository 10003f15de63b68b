"""The AMQP 0-9-1 codec: bytes to frames, methods, field tables and properties, and back.

Sans-I/O and compiled; imports nothing of warren but itself. Start at `frames` (bytes in), `methods` (generated from
spec/amqp0-9-1.toml; `method` is its hand-written half) and `encode` (bytes out). Bytes that do not decode raise
`errors.ConnectionException` with the reply the peer gets, and nothing else.
"""
