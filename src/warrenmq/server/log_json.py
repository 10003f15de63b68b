"""One JSON object a line for each event of the log."""

import json
import logging
from datetime import UTC, datetime


class JsonFormatter(logging.Formatter):
    """Formats events with RabbitMQ's names of the fields: time, level, msg, and `domain`."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone()
        fields = {
            "time": time.isoformat(sep=" ", timespec="microseconds"),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            "domain": record.name,
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)
