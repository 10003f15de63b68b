"""A metric as data: its name, its kind, its meaning, and how it follows from a reading.

Names have no prefix: `rabbitmq_` and `rabbitmq_detailed_` show metrics of RabbitMQ's names, and
`warren_` and `warren_detailed_` show warren's own.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

Kind = Literal["gauge", "counter"]
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | InfoMetricFamily
# One value of a metric, with the values of its labels.
Sample = tuple[tuple[str, ...], float]
Subject = TypeVar("Subject")

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

RABBITMQ: Final = "rabbitmq"
WARREN: Final = "warren"


class Metric(NamedTuple, Generic[Subject]):
    """A metric of a `Subject`; `value` is None when the subject has none.

    The name of a counter has no `_total`: the format adds it.
    """

    name: str
    kind: Kind
    help: str
    value: Callable[[Subject], float | None]
    owner: str = RABBITMQ

    def full_name(self, infix: str) -> str:
        """The name with its owner; `infix` stands between them."""
        return f"{self.owner}_{infix}{self.name}"


def family(
    name: str, kind: Kind, text: str, labels: tuple[str, ...], samples: Iterable[Sample]
) -> Family:
    """The metric called `name`, which means `text`, with its samples."""
    make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    made = make(name, text, labels=labels)
    for values, value in samples:
        made.add_metric(values, value)
    return made


class ObjectFamily(NamedTuple):
    """A metric of ten thousand objects, as text but for its values: `head` has no samples.

    A sample called `name` has the labels of an object as text, and its value; None is left out.
    """

    head: Family
    name: str
    labels: list[str]
    values: list[float | None]


def object_family(
    name: str, kind: Kind, text: str, labels: list[str], values: list[float | None]
) -> ObjectFamily:
    """The metric called `name`, which means `text`, of objects with these `label_text`s."""
    sample_name = f"{name}_total" if kind == "counter" else name
    return ObjectFamily(family(name, kind, text, (), ()), sample_name, labels, values)


def label_text(names: Iterable[str], values: Iterable[str]) -> str:
    """The labels of an object in the formats of Prometheus, sorted by name."""
    pairs = sorted(zip(names, values, strict=True))
    return ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs])


def histogram(
    name: str, text: str, bounds: Sequence[float], counts: Sequence[int], total: float
) -> Family:
    """The histogram called `name`: `counts` up to each of `bounds`, then above all of them."""
    labels = [f"{bound:g}" for bound in bounds] + ["+Inf"]
    buckets = list(zip(labels, map(float, accumulate(counts)), strict=True))
    return HistogramMetricFamily(name, text, buckets, total)


def of_one(
    metrics: Iterable[Metric[Subject]],
    infix: str,
    subject: Subject,
) -> Iterable[Family]:
    """The metrics of a subject that needs no labels, as far as they have a value."""
    for metric in metrics:
        value = metric.value(subject)
        if value is not None:
            yield family(metric.full_name(infix), metric.kind, metric.help, (), [((), value)])


def of_each(
    metrics: Iterable[Metric[Subject]],
    infix: str,
    labels: tuple[str, ...],
    subjects: Sequence[tuple[tuple[str, ...], Subject]],
) -> Iterable[Family]:
    """The metrics of many subjects, each with the values of its labels."""
    for metric in metrics:
        samples = [
            (values, value)
            for values, subject in subjects
            if (value := metric.value(subject)) is not None
        ]
        yield family(metric.full_name(infix), metric.kind, metric.help, labels, samples)
