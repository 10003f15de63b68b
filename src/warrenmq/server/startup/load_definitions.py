"""Imports the definitions that the configuration names (`load_definitions`), before clients come.

As in RabbitMQ, each start imports them again. What is there already stays, so a start changes
nothing if nothing was changed meanwhile.
"""

import asyncio
import base64
import hashlib
import json
import logging
from pathlib import Path

from warrenmq.admin.clock import Clock
from warrenmq.admin.definitions.administration import Administration, Refusal
from warrenmq.admin.definitions.export import IMPORTED_HASH
from warrenmq.admin.definitions.importing import DefinitionsImport
from warrenmq.admin.definitions.lenient_json import JsonError, strict_json
from warrenmq.admin.protocol.control import Imported
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import Change, PutParameter
from warrenmq.server.config.settings import Config

logger = logging.getLogger("warren.definitions")


class DefinitionsNotLoaded(Exception):
    """The definitions could not be imported; the text names the file and the reason."""


async def load_definitions(
    config: Config, broker: Broker, administration: Administration, clock: Clock
) -> None:
    """Import `config.load_definitions`, if it is set. Raises DefinitionsNotLoaded."""
    path = config.load_definitions
    if path is None:
        return
    try:
        # A directory is read in order of names, its other files not at all.
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        contents = [(file, file.read_bytes()) for file in files]
    except OSError as error:
        raise DefinitionsNotLoaded(f"{error.filename}: {error.strerror}") from None
    key = (b"", "", IMPORTED_HASH)
    digest = json.dumps(_digest(contents))
    if config.skip_unchanged_definitions and broker.parameters.get(key) == digest:
        logger.info("definitions in %s are those of the last import", path)
        return
    for file, data in contents:
        try:
            strict = strict_json(data)
        except JsonError as error:
            raise DefinitionsNotLoaded(f"{file}: {error}") from None
        await _import(file, strict, broker, administration, clock)
    if config.skip_unchanged_definitions:
        await _store(administration, [PutParameter(*key, digest)])


async def _import(
    file: Path, data: bytes, broker: Broker, administration: Administration, clock: Clock
) -> None:
    done: asyncio.Future[Imported | Refusal] = asyncio.get_running_loop().create_future()
    DefinitionsImport(broker, administration, clock, None, done.set_result).start(data, False)
    outcome = await done
    if isinstance(outcome, Refusal):
        # Some of RabbitMQ's texts have several lines.
        raise DefinitionsNotLoaded(f"{file}: {' '.join(outcome.text.split())}")
    for line in outcome.changes:
        logger.debug("%s: %s", file, line)
    for line in outcome.left_out:
        logger.warning("%s: left out: %s", file, line)
    logger.info("imported definitions from %s, changes: %d", file, len(outcome.changes))


async def _store(administration: Administration, changes: list[Change]) -> None:
    done: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
    administration.run(lambda: changes, done.set_result)
    refusal = await done
    if refusal is not None:
        raise DefinitionsNotLoaded(refusal.text)


def _digest(contents: list[tuple[Path, bytes]]) -> str:
    digest = hashlib.sha256()
    for _, data in contents:
        digest.update(hashlib.sha256(data).digest())
    return base64.b64encode(digest.digest()).decode()
