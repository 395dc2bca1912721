"""Clients: the obstore clients for the objects of a bucket. One is enough, unless credentials are limited to folders,
which need one client each."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import TYPE_CHECKING, Protocol, TypeAlias
from urllib.parse import quote

from trainers.objects.credentials import Credentials

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import AzureCredential, AzureStore, GCSStore, S3Store

    Client: TypeAlias = AzureStore | GCSStore | S3Store


class Clients(Protocol):
    """Paths are relative to the bucket. Methods raise the errors of obstore and OSError."""

    def of(self, path: str) -> Client:
        """The client of an object."""
        ...

    def listed(self, below: str) -> list[ObjectMeta]:
        """All objects below a folder, "" for the bucket."""
        ...

    def delete(self, path: str) -> None:
        """Delete an object."""
        ...


class OneClient:
    """The client of a bucket that the credentials reach as a whole."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def of(self, path: str) -> Client:  # noqa: ARG002
        """See Clients.of."""
        return self._client

    def listed(self, below: str) -> list[ObjectMeta]:
        """See Clients.listed."""
        import obstore

        return [meta for batch in obstore.list(self._client, below or None) for meta in batch]

    def delete(self, path: str) -> None:
        """See Clients.delete."""
        import obstore

        obstore.delete(self._client, path)


class ClientPerFolder:
    """Clients of an Azure container with access to some folders, each with a shared access signature.

    Such a signature can list one level of a folder. It cannot delete batches of blobs, which obstore uses:
    https://learn.microsoft.com/en-us/rest/api/storageservices/create-user-delegation-sas.
    `make` makes the client of one folder; `endpoint` is the URL of the account, `timeout_s` the timeout of a request.
    """

    def __init__(
        self,
        container: str,
        credentials: Credentials,
        make: Callable[[Callable[[], AzureCredential]], AzureStore],
        endpoint: str,
        timeout_s: float,
    ) -> None:
        self._root, self._container, self._credentials, self._make = f"az://{container}", container, credentials, make
        self._endpoint, self._timeout_s = endpoint.rstrip("/"), timeout_s
        self._made: dict[str, AzureStore] = {}
        self._making = threading.Lock()

    def of(self, path: str) -> Client:
        """See Clients.of."""
        folder = self._folder(path)

        def current() -> AzureCredential:
            lent = self._credentials()
            return {"sas_token": lent.values.get(folder, ""), "expires_at": lent.expires_at}

        with self._making:
            if folder not in self._made:
                self._made[folder] = self._make(current)
            return self._made[folder]

    def listed(self, below: str) -> list[ObjectMeta]:
        """See Clients.listed."""
        import obstore

        found: list[ObjectMeta] = []
        left = [below]
        while left:
            folder = left.pop()
            level = obstore.list_with_delimiter(self.of(folder), folder or None)
            left += level["common_prefixes"]
            found += level["objects"]
        return found

    def delete(self, path: str) -> None:
        """See Clients.delete. Raises FileNotFoundError if there is none."""
        signature = self._credentials().values.get(self._folder(path), "")
        where = f"{self._endpoint}/{quote(f'{self._container}/{path}')}?{signature}"
        request = urllib.request.Request(where, method="DELETE")
        try:
            try:
                urllib.request.urlopen(request, timeout=self._timeout_s).close()
            except urllib.error.HTTPError as error:
                status, text = error.code, error.read(64 << 10).decode(errors="replace")
            else:
                return
        except (OSError, HTTPException) as error:  # HTTPException: the answer is not HTTP
            raise OSError(f"HTTP error: {error}") from error
        if status == 404:
            raise FileNotFoundError(f"{path}: {text}")
        raise OSError(f"status code: {status} {text}")

    def _folder(self, path: str) -> str:
        """The URL of the accessible folder that contains an object or another folder."""
        wanted = f"{self._root}/{path}"
        lent = self._credentials().values
        inside = [each for each in lent if wanted == each or wanted.startswith(f"{each}/")]
        if not inside:
            raise OSError(f"status code: 403 <Message>{path} is outside the accessible folders</Message>")
        return max(inside, key=len)
