"""Refuses stores that a later version of warren has written: they could look damaged here."""

from pathlib import Path

from warrenmq.store.disk.files import checkpoint_and_journal_headers
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.records.record import FORMAT_VERSION, file_format_version, file_header_is_whole


class NewerFormatError(Exception):
    """Says in one line which file has a format version that this warren does not know."""


def refuse_newer_formats(vhosts: Path) -> None:
    """Raise NewerFormatError if a store in the directory `vhosts` is of a later format version.

    Each start writes a checkpoint and a journal file of its version, so their headers tell. Changes
    nothing. Raises OSError.
    """
    if not vhosts.is_dir():
        return
    for path in sorted(vhosts.iterdir()):
        if not path.is_dir():
            continue
        files = LocalFileSystem(path)
        try:
            for name, magic, header in checkpoint_and_journal_headers(files):
                if not file_header_is_whole(header) or header[:8] != magic:
                    continue
                version = file_format_version(header)
                if version > FORMAT_VERSION:
                    raise NewerFormatError(
                        f"{path / name} has format version {version}; this warren reads versions up to {FORMAT_VERSION}"
                    )
        finally:
            files.release()
