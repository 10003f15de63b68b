"""How a client's socket becomes a connection: listeners, PROXY headers and TLS.

`listeners.py` accepts a socket, reads its PROXY header (`proxy_protocol.py`), waits for its TLS
handshake (`tls.py`), and then gives it a protocol. `certificate_name.py`
finds the user's name in a client's certificate.
"""
