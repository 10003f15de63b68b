"""HTTP for the applications of the management process: sockets, clients, middleware.

`sites.py`        runs: which application listens where, and the end
`protocol.py`     one client: the time and the room that it may take
`compression.py`  gzip
`cors.py`         pages of other sites
`request_log.py`  a line for each request
"""
