"""Judges the recorded history of a workload: what a broker promised, and whether it kept it.

A history (`events.py`) says what clients sent and received, which faults happened, and, if nodes
report it, who was master in which epoch. `history.py` writes and reads histories as JSON lines, so
that a run can be judged again: `python -m simulator.check_history FILE`. `verdict.py` judges
a history by these rules:

| rule | name | says | module |
|---|---|---|---|
| 1 | lost | a confirmed message is delivered, or there at the final drain | `losses.py` |
| 2 | ghost | nothing is delivered that was not sent, or differs from what was sent | `losses.py` |
| 3 | answer | one answer each; what was nacked may appear, what was returned not | `losses.py` |
| 4 | order | first deliveries agree with each publisher and between consumers | `order.py` |
| 5 | flag | what was handed out comes again as redelivered, and nothing else does | `repeats.py` |
| 6 | again | what was acked before a successful call never comes again | `repeats.py` |
| 7 | settled | no message is settled by the ack of another one | `losses.py` |
| 8 | master | an epoch has one master; none confirms after a newer one has | `copies.py` |
| 9 | copies | after quiet, all copies in sync are equal in content, order and flags | `copies.py` |
| 10 | gap | the longest time without a confirm is within the limit of each fault | `gaps.py` |
| 11 | fence | a master that is replaced hands nothing out for longer than a bound | `fences.py` |
| 12 | single | a single active consumer is alone but for that bound | `fences.py` |
| 13 | moves | a fault moves the master of a queue once at most | `fences.py` |
| 14 | removed | what was purged or deleted does not come | `removals.py` |

Rules 11 to 13 are judged on demand, where nodes keep to a bound.

The checker never complains about a correct broker, whatever the clients could not see: a message
may have been handed out to a connection that broke before the client read it. It assumes consumers
that ack, persistent messages and durable queues, and publishers that send each message once.
"""
