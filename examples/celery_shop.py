"""A Celery application: charging is retried while the bank is away, bad parcels are set aside."""

import os

from celery import Celery, Task
from celery.exceptions import Reject
from kombu.entity import Queue

TASKS = "shop"
FAILED = "shop.failed"

app = Celery("shop", broker=os.environ.get("SHOP_BROKER"), backend="rpc://")
app.conf.update(
    task_default_queue=TASKS,
    task_queues=[
        Queue(
            TASKS,
            queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": FAILED},
        )
    ],
    # A task is acked when it is done, so that one of a worker that dies is done by another.
    task_acks_late=True,
    broker_connection_retry_on_startup=True,
)


class BankUnavailable(Exception):
    """The bank does not answer at the moment."""


@app.task(bind=True, autoretry_for=(BankUnavailable,), max_retries=5, default_retry_delay=0.1)
def charge(self: Task, amount: int, failures: int) -> dict[str, int]:
    """Charge `amount`; the bank of this example does not answer the first `failures` times."""
    if self.request.retries < failures:
        raise BankUnavailable
    return {"charged": amount, "retries": self.request.retries}


@app.task
def send(parcel: dict[str, str]) -> str:
    """Send a parcel; one without an address goes to the queue FAILED, with the task's arguments."""
    if not parcel.get("address"):
        raise Reject("no address", requeue=False)
    return f"sent to {parcel['address']}"
