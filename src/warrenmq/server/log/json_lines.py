"""One JSON object a line for each event of the log."""

import json
import logging

from warrenmq.server.log.stamp import stamp


class JsonFormatter(logging.Formatter):
    """Formats events with RabbitMQ's names of the fields: time, level, msg, and `domain`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": stamp(record.created),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            "domain": record.name,
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)
