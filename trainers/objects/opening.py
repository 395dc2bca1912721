"""Opens an object store by its path or URL."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from trainers.errors import StoreNotFound
from trainers.objects.base import ObjectStore
from trainers.objects.bucket import open_bucket
from trainers.objects.credentials import Credentials
from trainers.objects.folder import FolderStore
from trainers.objects.retry import Patience

Root: TypeAlias = ObjectStore | str | Path


def open_store(root: Root, patience: Patience | None = None, credentials: Credentials | None = None) -> ObjectStore:
    """The store of a path, file://PATH or the URL of a bucket; a store is returned unchanged. `patience` and
    `credentials` are for buckets.

    Sends no request and creates nothing. Raises ObjectStoreError.
    """
    if not isinstance(root, str | Path):
        return root
    text = str(root)
    scheme, separator, rest = text.partition("://")
    if not separator or isinstance(root, Path):
        return FolderStore(text)
    if scheme.lower() == "file":
        parts = urlsplit(text)
        if parts.netloc in ("", "localhost") and parts.path and not (parts.query or parts.fragment):
            return FolderStore(unquote(parts.path))
        raise StoreNotFound(f"{text} is not a folder on this machine", hint="write it like this: file:///FOLDER")
    return open_bucket(f"{scheme.lower()}://{rest}", patience, credentials)
