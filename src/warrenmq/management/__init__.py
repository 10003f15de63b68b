"""The management process: RabbitMQ's HTTP API over the admin protocol of a node.

It runs beside the node, and knows it only through its client of the admin protocol: what a page
costs, it costs here. Each HTTP request is carried out with the user and password that came with it,
so the node itself enforces rights. Nothing here is compiled, and nothing of the broker is imported.

`app.py`       the application: middleware, errors, routes
`raw_path.py`  paths with `%2F`, HEAD, OPTIONS and methods that a path does not have
`access.py`    who asks: dependencies that give a `Caller` or refuse
`sessions.py`  `Caller` and the sessions with the node behind it
`rows.py`      sorting, columns and pages of lists
`routes/`      the endpoints, a subject a file
"""
