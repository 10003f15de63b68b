"""Reads an archive as other programs do, which know its format and nothing of archives."""

import os
from typing import Any

from warrenmq.pipeline import places
from warrenmq.pipeline.places import LocalPlace, place_of


def lake_rows(where: str, format: str) -> list[dict[str, Any]]:
    """All rows of the archive at a path or URI, by `seq`."""
    place = place_of(where)
    if format == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(str(place)).to_pyarrow_table().to_pylist()
    elif format == "iceberg":
        from pyiceberg.table import StaticTable

        location = f"file://{place}" if isinstance(place, LocalPlace) else str(place)
        properties = {
            "s3.endpoint": os.environ.get("AWS_ENDPOINT_URL", ""),
            "s3.region": os.environ.get("AWS_REGION", ""),
        }
        found = StaticTable.from_metadata(location, properties).scan().to_arrow().to_pylist()
    else:
        import pyarrow.dataset as ds
        from pyarrow.fs import LocalFileSystem

        if isinstance(place, LocalPlace):
            path, system = str(place), LocalFileSystem()
        else:
            path = f"{place.authority}/{place.path}"
            system = places.pyarrow_system(place.scheme, place.authority)
        found = ds.dataset(path, filesystem=system, partitioning="hive").to_table().to_pylist()
    return sorted(found, key=lambda row: row["seq"])
