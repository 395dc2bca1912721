"""Services: the differences between the clouds' object stores: URLs, settings, credentials, versions of objects.

Settings come from the environment variables that each cloud's tools and obstore read; obstore's documentation lists
them (https://developmentseed.org/obstore). Plain HTTP is used only on this machine, unless the service's ALLOW_HTTP
variable is true.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trainers.errors import StoreDenied, StoreNotFound
from trainers.objects.base import is_key
from trainers.objects.clients import ClientPerFolder, Clients, OneClient
from trainers.objects.credentials import BEARER, Credentials, of_aws_container, of_this_machine

if TYPE_CHECKING:
    from obstore.store import AzureConfig, AzureCredential, AzureStore, GCSCredential, S3Credential


ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"
"""The variable with the storage account of containers."""


@dataclass(frozen=True, slots=True)
class Service:
    """One kind of bucket. `form` is an example of its URL, `cloud` its owner, `names` the pattern of valid bucket
    names, `naming` the same in words, `endpoints` the environment variables that may set another address; the first one
    that is set is used. `region`, `credentials` and `rights` are remedies; `make` is the command of the cloud's tool
    that creates a bucket (BUCKET) without retention of deleted objects.

    `by_generation`: whether the version of an object is a number that the store counts, instead of its ETag.
    `deletes_many`: whether one request deletes many objects and ignores missing ones. `copies_at_once`: whether a copy
    is complete when the store answers.
    """

    scheme: str
    form: str
    cloud: str
    names: re.Pattern[str]
    naming: str
    endpoints: tuple[str, ...]
    allow_http: str
    region: str
    credentials: str
    rights: str
    make: str
    open: Callable[[str, Mapping[str, Any], Credentials | None], Clients]
    by_generation: bool = False
    deletes_many: bool = False
    copies_at_once: bool = True

    def at_its_cloud(self, environ: Mapping[str, str] = os.environ) -> bool:
        """Whether its buckets are at an address of its cloud, not of another store (MinIO, Azurite)."""
        endpoint = next(filter(None, map(environ.get, self.endpoints)), "")
        if not endpoint or self.cloud == "gcp":  # for Google, the address may be in a private network
            return True
        host = urlsplit(endpoint).hostname or ""
        if self.cloud == "aws":
            return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
        return host.startswith(f"{environ.get(ACCOUNT, '')}.")

    def made_by(self, bucket: str) -> str:
        """How to create a missing bucket."""
        command = self.make.replace("BUCKET", bucket)
        if not self.at_its_cloud():
            return command
        return f"tradewind up --cloud {self.cloud} if it is the bucket of store_root, otherwise: {command}"

    def plain_http(self, url: str) -> bool:
        """Whether the endpoint has no TLS. Raises StoreDenied if it is on another machine and this is not explicitly
        allowed."""
        endpoint = next(filter(None, map(os.environ.get, self.endpoints)), "")
        parts = urlsplit(endpoint)
        if parts.scheme != "http":
            return False
        if os.environ.get(self.allow_http, "").lower() in ("1", "true") or _is_here(parts.hostname or ""):
            return True
        raise StoreDenied(
            f"{url}: the endpoint {endpoint} is on another machine, without encryption",
            hint=f"use https://, or set {self.allow_http}=true if the network is yours",
        )


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of a bucket; `prefix` "" is the whole bucket."""

    service: Service
    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        """scheme://bucket/prefix."""
        return f"{self.service.scheme}://{self.bucket}/{self.prefix}".rstrip("/")


def _s3(bucket: str, options: Mapping[str, Any], credentials: Credentials | None) -> Clients:
    from obstore.store import S3Store

    asked = credentials or of_aws_container()

    def current() -> S3Credential:
        assert asked is not None
        lent = asked()
        return {
            "access_key_id": lent.values.get("AWS_ACCESS_KEY_ID", ""),
            "secret_access_key": lent.values.get("AWS_SECRET_ACCESS_KEY", ""),
            "token": lent.values.get("AWS_SESSION_TOKEN"),
            "expires_at": lent.expires_at,
        }

    return OneClient(S3Store(bucket, **options, credential_provider=None if asked is None else current))


def _gcs(bucket: str, options: Mapping[str, Any], credentials: Credentials | None) -> Clients:
    from obstore.store import GCSStore

    asked = credentials or of_this_machine()

    def current() -> GCSCredential:
        assert asked is not None
        lent = asked()
        return {"token": lent.values.get(BEARER, ""), "expires_at": lent.expires_at}

    return OneClient(GCSStore(bucket, **options, credential_provider=None if asked is None else current))


def _blob(container: str, options: Mapping[str, Any], credentials: Credentials | None) -> Clients:
    """The clients of a container. Raises StoreNotFound if no account is set."""
    from obstore.store import AzureStore

    account = os.environ.get(ACCOUNT)
    if not account:
        raise StoreNotFound(
            f"the storage account of the container az://{container} is not set",
            hint=f"set {ACCOUNT}",
        )
    asked = credentials or of_this_machine()
    if asked is None:
        signed_in = not any(map(os.environ.get, _AZURE_CREDENTIALS)) and shutil.which("az") is not None
        return OneClient(AzureStore(container, config={"account_name": account, "use_azure_cli": signed_in}, **options))

    endpoint = next(filter(None, map(os.environ.get, BLOB.endpoints)), f"https://{account}.blob.core.windows.net")

    def with_signature(current: Callable[[], AzureCredential]) -> AzureStore:  # later, perhaps in another environment
        config: AzureConfig = {"account_name": account, "endpoint": endpoint}
        return AzureStore(container, config=config, **options, credential_provider=current)

    timeout: timedelta = options["client_options"]["timeout"]
    return ClientPerFolder(container, asked, with_signature, endpoint, timeout.total_seconds())


_AZURE_CREDENTIALS = (
    *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY"),
    *("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_TOKEN"),
    *("AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID", "AZURE_MSI_ENDPOINT", "AZURE_IDENTITY_ENDPOINT"),
)

S3 = Service(
    scheme="s3",
    form="s3://bucket/prefix",
    cloud="aws",
    names=re.compile("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"),
    naming='3 to 63 lower-case letters, digits, "." and "-"',
    endpoints=("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    allow_http="AWS_ALLOW_HTTP",
    region="set AWS_REGION to the bucket's region",
    credentials="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; those of an AWS profile: "
    'eval "$(aws configure export-credentials --format env)"',
    rights="check the credentials (AWS_ACCESS_KEY_ID and so on); they need s3:GetObject, s3:PutObject, s3:DeleteObject "
    "and s3:ListBucket there. Bucket names are unique across all accounts: if this bucket is not yours, choose another "
    "name (tradewind up --cloud aws creates the bucket of store_root)",
    make="aws s3 mb s3://BUCKET",
    open=_s3,
    deletes_many=True,
)
GCS = Service(
    scheme="gs",
    form="gs://bucket/prefix",
    cloud="gcp",
    names=re.compile("[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"),
    naming='3 to 222 lower-case letters, digits, ".", "_" and "-"',
    endpoints=("GOOGLE_BASE_URL",),
    allow_http="GOOGLE_ALLOW_HTTP",
    region="check the bucket's name and GOOGLE_BASE_URL",
    credentials="set GOOGLE_APPLICATION_CREDENTIALS, or run: gcloud auth application-default login",
    rights="check the credentials (GOOGLE_APPLICATION_CREDENTIALS); they need the role roles/storage.objectUser there. "
    "Bucket names are unique across all accounts: if this bucket is not yours, choose another name (tradewind up "
    "--cloud gcp creates the bucket of store_root)",
    make="gcloud storage buckets create gs://BUCKET --uniform-bucket-level-access --soft-delete-duration=0",
    open=_gcs,
    by_generation=True,
)
BLOB = Service(
    scheme="az",
    form="az://container/prefix",
    cloud="azure",
    names=re.compile("[a-z0-9](-?[a-z0-9]){2,62}"),
    naming='3 to 63 lower-case letters and digits, with single "-" between them',
    endpoints=("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    allow_http="AZURE_ALLOW_HTTP",
    region="check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ENDPOINT",
    credentials="set AZURE_CLIENT_ID and so on or AZURE_STORAGE_ACCOUNT_KEY, or run: az login",
    rights="check the credentials (AZURE_CLIENT_ID, AZURE_STORAGE_ACCOUNT_KEY and so on); they need the role Storage "
    "Blob Data Contributor there",
    make="az storage container create --name BUCKET --auth-mode login",
    open=_blob,
    copies_at_once=False,
)
SERVICES: Mapping[str, Service] = {service.scheme: service for service in (S3, GCS, BLOB)}
FORMS = " or ".join(service.form for service in SERVICES.values())


def place_of(url: str) -> Place:
    """The folder of a bucket for a URL. Raises StoreNotFound."""
    parts = urlsplit(url)
    service = SERVICES.get(parts.scheme)
    if service is None:
        raise StoreNotFound(f"{url} is not the URL of a bucket", hint=f"write it like this: {_meant(url)}")
    prefix = parts.path.strip("/")
    hint = f"write it like this: {service.form}"
    if parts.netloc and not service.names.fullmatch(parts.netloc):
        hint += f"; bucket names there have {service.naming}{_such_as(service, parts.netloc)}"
    elif parts.netloc and not parts.query and not parts.fragment and (prefix == "" or is_key(prefix)):
        return Place(service, parts.netloc, prefix)
    raise StoreNotFound(f"{url} is not the URL of a bucket", hint=hint)


def _such_as(service: Service, bucket: str) -> str:
    """The most similar valid name of a bucket, if there is one."""
    name = re.sub("[^a-z0-9]+", "-", bucket.lower()).strip("-")
    return f", such as {name}" if service.names.fullmatch(name) else ""


def _meant(url: str) -> str:
    """Our URL for the same place, if this is a URL of another tool; otherwise the valid forms."""
    for form, ours in _FOREIGN:
        found = form.fullmatch(url)
        if found:
            return found.expand(ours).rstrip("/")
    return FORMS


_AZURE_HOST = r"[^./]+\.(?:blob|dfs)\.core\.windows\.net"
_FOREIGN = (
    (re.compile(r"(?:gcs://|https://storage\.googleapis\.com/)([^/?#]+)(/[^?#]*)?"), r"gs://\1\2"),
    (re.compile(rf"(?:abfss?|wasbs?)://([^@/]+)@{_AZURE_HOST}(/[^?#]*)?"), r"az://\1\2"),
    (re.compile(r"(?:abfss?|azure|adl)://([^@/]+)(/[^?#]*)?"), r"az://\1\2"),
    (re.compile(rf"https://{_AZURE_HOST}/([^/?#]+)(/[^?#]*)?"), r"az://\1\2"),
)
"""URLs of other tools, and our URLs for the same place."""


def _is_here(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
