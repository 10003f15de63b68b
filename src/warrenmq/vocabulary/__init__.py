"""Words that the engine, the admin protocol, the commands and Spark share: error codes and names.

Imports nothing of warren; everybody may import it. `error_codes.py` has the codes of refused
requests, `names.py` and `patterns/` what is done with the names that clients send;
`erlang_text.py` writes JSON values as RabbitMQ's error texts do; `fail_points.py` has places at
which tests let a process die.
"""
