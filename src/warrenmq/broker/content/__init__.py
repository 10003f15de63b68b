"""A published message while its frames arrive: `assembly.py` takes method, header and body in their order.

`properties.py` reads what the broker has to know of the header, `body.py` gathers the body.
"""
