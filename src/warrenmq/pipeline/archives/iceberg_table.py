"""An Iceberg table that its directory alone defines, as Iceberg's Hadoop catalog lays it out.

    metadata/v3.metadata.json     the third version of the table
    metadata/version-hint.text    3
    data/                         files that versions name

A commit makes the file of the next version, and fails when somebody else has made it. So two
programs on one disk cannot make the same version. pyarrow has no such creation in object stores,
and a commit there looks for the file first: as with Iceberg's own Hadoop catalog, only one program
at a time may write to a table in an object store.

pyiceberg has catalogs that need a server or a database, and reads this layout without writing it.
So the two methods that differ are here, and the rest is pyiceberg's.
"""

import re
from typing import Any, Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromByteStream
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from warrenmq.pipeline.places import LocalPlace, Place, RemotePlace, pyarrow_system

METADATA: Final = "metadata"
_VERSION: Final = re.compile(rf"{METADATA}/v(\d+)\.metadata\.json")
_HINT: Final = f"{METADATA}/version-hint.text"


def location_of(place: Place) -> str:
    """The location of a table at `place`, as its metadata names it."""
    return f"file://{place}" if isinstance(place, LocalPlace) else str(place)


class _PlaceIO(PyArrowFileIO):
    """Reaches files as the rest of the job does."""

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> Any:
        return pyarrow_system(scheme, netloc or "")


class TableDirectory(NoopCatalog):
    """The catalog of the one table at `place`."""

    def __init__(self, place: LocalPlace | RemotePlace) -> None:
        super().__init__("warren")
        self._place = place

    def load_table(self, identifier: str | tuple[str, ...] = "table") -> Table:
        """The table's newest version. NoSuchTableError when there is none."""
        version = self._newest()
        if version is None:
            raise NoSuchTableError(f"{self._place} is no Iceberg table")
        with self._place.input(_metadata_name(version)) as file:
            metadata = FromByteStream.table_metadata(file)
        return Table(
            identifier=("warren", "table"),
            metadata=metadata,
            metadata_location=f"{location_of(self._place)}/{_metadata_name(version)}",
            io=_PlaceIO(),
            catalog=self,
        )

    def create(self, schema: Schema, spec: PartitionSpec, properties: dict[str, str]) -> Table:
        """Create the table, empty. CommitFailedException when somebody else has created one."""
        metadata = new_table_metadata(
            schema, spec, UNSORTED_SORT_ORDER, location_of(self._place), dict(properties)
        )
        self._make(1, metadata)
        return self.load_table()

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Make the next version. CommitFailedException when it is there, or the table changed."""
        current = self.load_table()
        for requirement in requirements:
            requirement.validate(current.metadata)
        metadata = update_table_metadata(
            current.metadata, updates, metadata_location=current.metadata_location
        )
        self._sync_manifests(updates)
        version = _version_of(current.metadata_location) + 1
        self._make(version, metadata)
        location = f"{location_of(self._place)}/{_metadata_name(version)}"
        return CommitTableResponse.model_validate(
            {"metadata": metadata, "metadata-location": location}
        )

    def _make(self, version: int, metadata: TableMetadata) -> None:
        content = metadata.model_dump_json(exclude_none=True).encode()
        if not self._place.create(_metadata_name(version), content):
            raise CommitFailedException(f"somebody else has made version {version}")
        # Only a hint where to look first: after a crash here, readers find the newer version.
        self._place.replace(_HINT, str(version).encode())

    def _newest(self) -> int | None:
        """The newest version. The hint is not asked: after a crash it is older, or missing."""
        found = [
            _VERSION.fullmatch(f"{METADATA}/{file.name}")
            for file in self._place.joined(METADATA).files()
        ]
        return max([int(each[1]) for each in found if each is not None], default=None)

    def _sync_manifests(self, updates: tuple[TableUpdate, ...]) -> None:
        """Make the files durable that a new snapshot names; pyiceberg has only closed them."""
        names = []
        for update in updates:
            if isinstance(update, AddSnapshotUpdate):
                snapshot = update.snapshot
                manifests = snapshot.manifests(_PlaceIO())
                names.append(snapshot.manifest_list)
                names += [
                    each.manifest_path
                    for each in manifests
                    if each.added_snapshot_id == snapshot.snapshot_id
                ]
        base = f"{location_of(self._place)}/"
        relative = [name.removeprefix(base) for name in names]
        for name in relative:
            self._place.sync(name)
        self._place.sync_names(relative)


def _metadata_name(version: int) -> str:
    return f"{METADATA}/v{version}.metadata.json"


def _version_of(location: str) -> int:
    found = _VERSION.search(location)
    if found is None:
        raise ValueError(f"'{location}' is no version of a table")
    return int(found[1])
