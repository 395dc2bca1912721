"""Issuing: credentials that are limited to a scope and a time, from the store's security token service (AWS STS).

https://docs.aws.amazon.com/STS/latest/APIReference/API_GetFederationToken.html and API_AssumeRole.html; both take a
session policy, and return no more rights than it names.
"""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode
from xml.etree import ElementTree

from orchestrator.errors import SiteError
from orchestrator.nodes.access.policy import Scope
from orchestrator.nodes.access.signing import (
    Credentials,
    Place,
    domain,
    own_credentials,
    region_of,
    signed_headers,
    utc_now,
)

LASTS_S = (43_200, 3_600)
"""The longest is asked for first: a machine must survive a control plane that is away for hours. Roles allow less
unless they say otherwise, as do the credentials of an account's root user."""
SHARED_S = 43_200
ANSWER_S = 10.0
MOST_ANSWER_BYTES = 64 << 10
_FORM = "application/x-www-form-urlencoded; charset=utf-8"
_RENEW = {"RequestLimitExceeded", "Throttling", "ThrottlingException", "ServiceUnavailable", "InternalFailure"}


class NoLimitedAccess(SiteError):
    """The store gives out no credentials that are limited to a job."""


@dataclass(frozen=True, slots=True)
class Issued:
    """Credentials that are valid for `for_s` from now."""

    credentials: Credentials
    for_s: float


class Issuer:
    """Asks for credentials with those of this process. `role` is a role to assume; without one, a federation token of
    this process's user is asked for. `share`: hand out this process's own credentials instead."""

    def __init__(
        self,
        now: Callable[[], datetime] = utc_now,
        *,
        role: str | None = None,
        share: bool = False,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._now, self._role, self._share, self._environ = now, role, share, environ

    def issue(self, scope: Scope, name: str) -> Issued:
        """Credentials for this scope. `name` appears in the cloud's logs. Takes seconds at most.

        Raises NoLimitedAccess if the store refuses, SiteError if it does not answer.
        """
        own = own_credentials(self._environ)
        if self._share:
            return Issued(own, SHARED_S)
        policy = scope.document(region_of(self._environ))
        asked = {"Action": "GetFederationToken", "Name": name[:32]}
        if self._role is not None:
            asked = {"Action": "AssumeRole", "RoleArn": self._role, "RoleSessionName": name[:32]}
        for for_s in LASTS_S:
            form = {**asked, "Version": "2011-06-15", "DurationSeconds": str(for_s), "Policy": policy}
            try:
                return Issued(_credentials(self._answer(own, form)), for_s)
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
                raise SiteError(why, hint="it is asked again") from error
            raise NoLimitedAccess(why, hint=_HINT) from error
        except OSError as error:
            hint = "check the network and AWS_ENDPOINT_URL_STS; it is asked again"
            raise SiteError(f"{place.endpoint} does not answer: {error}", hint=hint) from error


_HINT = (
    "allow sts:GetFederationToken to the user whose key the control plane has, or set machines.role to a role that it "
    "may assume; where the store has no such service, machines.share_credentials lends machines the control plane's "
    "own credentials"
)


class _TooLong(Exception):
    """This duration is not allowed."""


def _place(environ: Mapping[str, str]) -> Place:
    """Where the service answers: a store with its own endpoint has its own."""
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
