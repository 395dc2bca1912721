"""Grants of S3: credentials limited in scope and time, from the security token service (AWS STS).

The policy of a session cannot grant more rights than the requesting credentials have.
https://docs.aws.amazon.com/STS/latest/APIReference/API_GetFederationToken.html and API_AssumeRole.html; both accept a
session policy and return no more rights than it names.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import datetime
from urllib.parse import urlencode
from xml.etree import ElementTree

from orchestrator.errors import SiteError
from orchestrator.nodes.access.grants import Issued, NoLimitedAccess, Signer
from orchestrator.nodes.access.scope import Scope
from orchestrator.nodes.access.signing import (
    Credentials,
    Place,
    Presigner,
    domain,
    own_credentials,
    region_of,
    signed_headers,
)
from trainers.objects.services import Place as Folder

LASTS_S = (43_200, 3_600)
"""The longest duration is requested first: a machine must survive a control plane that is away for hours. Roles allow
less by default, as do the credentials of an account's root user."""
SHARED_S = 43_200
MOST_CHARACTERS = 2048  # of a session policy
ANSWER_S = 10.0
MOST_ANSWER_BYTES = 64 << 10
_FORM = "application/x-www-form-urlencoded; charset=utf-8"
_RENEW = {"RequestLimitExceeded", "Throttling", "ThrottlingException", "ServiceUnavailable", "InternalFailure"}


class AwsGrants:
    """Implements Grants. `role` is a role to assume; without one, a federation token of this process's user is
    requested."""

    variables = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP")

    def __init__(
        self, now: Callable[[], datetime], *, role: str | None, share: bool, environ: Mapping[str, str]
    ) -> None:
        self._now, self._role, self._share, self._environ = now, role, share, environ

    def signer(self, scope: Scope, for_s: int) -> Signer:  # noqa: ARG002
        """See Issuer.signer: each of its URLs allows one kind of request for one object."""
        return Presigner(own_credentials(self._environ), Place.of(self._environ), self._now(), for_s)

    def issue(self, scope: Scope, name: str) -> Issued:
        """See Issuer.issue."""
        own = own_credentials(self._environ)
        if self._share:
            return Issued(own.variables(), SHARED_S)
        policy = document(scope, region_of(self._environ))
        asked = {"Action": "GetFederationToken", "Name": name[:32]}
        if self._role is not None:
            asked = {"Action": "AssumeRole", "RoleArn": self._role, "RoleSessionName": name[:32]}
        for for_s in LASTS_S:
            form = {**asked, "Version": "2011-06-15", "DurationSeconds": str(for_s), "Policy": policy}
            try:
                return Issued(_credentials(self._answer(own, form)).variables(), for_s)
            except _TooLong as error:
                refused = error
        raise NoLimitedAccess(str(refused), hint=_HINT)

    def _answer(self, own: Credentials, form: Mapping[str, str]) -> ElementTree.Element:
        """Raises NoLimitedAccess, SiteError, _TooLong."""
        place = _place(self._environ)
        body = urlencode(form).encode()
        headers = signed_headers(own, place, "sts", body, _FORM, self._now())
        request = urllib.request.Request(f"{place.endpoint}/", body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return _parsed(answer.read(MOST_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            found = _found(_parsed(error.read(MOST_ANSWER_BYTES)))
            code, message = found.get("Code", ""), found.get("Message", "")[:300]
            why = f"{place.endpoint} issues no credentials limited to a job: {error.code} {code} {message}".rstrip()
            if code == "ValidationError" and "DurationSeconds" in message:
                raise _TooLong(why) from error
            if code in _RENEW or error.code >= 500:
                raise SiteError(why, hint="Tradewind tries again") from error
            raise NoLimitedAccess(why, hint=_HINT) from error
        except OSError as error:
            hint = "check the network and AWS_ENDPOINT_URL_STS; Tradewind tries again"
            raise SiteError(f"{place.endpoint} does not answer: {error}", hint=hint) from error


_HINT = (
    "allow sts:GetFederationToken to the user whose key the control plane has, or set machines.role to a role that it "
    "may assume; if the store has no such service, machines.share_credentials lends machines the control plane's "
    "own credentials"
)


class _TooLong(Exception):
    """This duration is not allowed."""


def _place(environ: Mapping[str, str]) -> Place:
    """The endpoint of the service: a store with its own endpoint has its own service."""
    region = region_of(environ)
    own = (environ.get(name) for name in ("AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"))
    endpoint = next(filter(None, own), f"https://sts.{region}.{domain(region)}")
    return Place(endpoint.rstrip("/"), region)


def _parsed(body: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError:
        return ElementTree.Element("nothing")


def _found(answer: ElementTree.Element) -> dict[str, str]:
    """Name -> text of all elements, without namespaces."""
    return {each.tag.rpartition("}")[2]: each.text or "" for each in answer.iter()}


def _credentials(answer: ElementTree.Element) -> Credentials:
    found = _found(answer)
    try:
        return Credentials(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])
    except KeyError as error:
        raise NoLimitedAccess(f"the answer for limited credentials lacks {error}", hint=_HINT) from error


def document(scope: Scope, region: str) -> str:
    """A scope as an IAM policy in JSON. Raises SiteError if it is too long."""
    arn = {"cn-": "arn:aws-cn", "us-gov-": "arn:aws-us-gov"}
    partition = next((found for start, found in arn.items() if region.startswith(start)), "arn:aws")
    writes, reads = scope.places()

    def objects(folders: tuple[Folder, ...]) -> list[str]:
        return [f"{partition}:s3:::{folder.bucket}/{_literal(folder.prefix)}/*" for folder in folders]

    statements: list[dict[str, object]] = [
        {
            "Effect": "Allow",
            "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
            "Resource": objects(writes),
        }
    ]
    if reads:
        statements.append({"Effect": "Allow", "Action": "s3:GetObject", "Resource": objects(reads)})
    for bucket in sorted({folder.bucket for folder in writes}):
        prefixes = [_literal(folder.prefix) for folder in writes if folder.bucket == bucket]
        statements.append(
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": f"{partition}:s3:::{bucket}",
                "Condition": {"StringLike": {"s3:prefix": [f"{prefix}/*" for prefix in prefixes]}},
            }
        )
    written = json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))
    if len(written) > MOST_CHARACTERS:
        hint = "shorten the prefixes in store_root and checkpoint.to"
        raise SiteError(f"the session policy of a machine has {len(written)} characters, too many for AWS", hint=hint)
    return written


def _literal(prefix: str) -> str:
    """A prefix without wildcards or policy variables."""
    return "".join({"*": "${*}", "?": "${?}", "$": "${$}"}.get(letter, letter) for letter in prefix)
