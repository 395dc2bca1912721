"""Policy: what a machine may do in the store: read and write its own job's objects, and read its runtime.

The policy of a session cannot give more rights than the credentials that ask for it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from orchestrator.errors import SiteError
from trainers.errors import StoreNotFound
from trainers.objects.services import S3, Place, place_of

MOST_CHARACTERS = 2048  # of a session policy: AWS STS


@dataclass(frozen=True, slots=True)
class Scope:
    """Folders of buckets, as URLs without a final slash: `writes` may be read and written, `reads` read only."""

    writes: tuple[str, ...]
    reads: tuple[str, ...] = ()

    def document(self, region: str) -> str:
        """This as an IAM policy in JSON. Raises SiteError if it is too long."""
        arn = {"cn-": "arn:aws-cn", "us-gov-": "arn:aws-us-gov"}
        partition = next((found for start, found in arn.items() if region.startswith(start)), "arn:aws")
        writes, reads = ([place_of(url) for url in urls] for urls in (self.writes, self.reads))

        def objects(places: list[Place]) -> list[str]:
            return [f"{partition}:s3:::{place.bucket}/{_literal(place.prefix)}/*" for place in places]

        statements: list[dict[str, object]] = [
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
                "Resource": objects(writes),
            }
        ]
        if reads:
            statements.append({"Effect": "Allow", "Action": "s3:GetObject", "Resource": objects(reads)})
        for bucket in sorted({place.bucket for place in writes}):
            prefixes = [_literal(place.prefix) for place in writes if place.bucket == bucket]
            statements.append(
                {
                    "Effect": "Allow",
                    "Action": "s3:ListBucket",
                    "Resource": f"{partition}:s3:::{bucket}",
                    "Condition": {"StringLike": {"s3:prefix": [f"{prefix}/*" for prefix in prefixes]}},
                }
            )
        document = json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))
        if len(document) > MOST_CHARACTERS:
            hint = "shorten the prefixes in store_root and checkpoint.to"
            raise SiteError(f"the rights of a machine take {len(document)} characters, too many for AWS", hint=hint)
        return document


def scope_of(writes: tuple[str, ...], reads: tuple[str, ...] = ()) -> Scope:
    """The scope of these folders. Raises SiteError if one of them is not in a bucket."""
    for url in (*writes, *reads):
        try:
            if place_of(url).service is not S3:
                raise StoreNotFound(f"{url} issues no credentials that are limited to a job")
        except StoreNotFound as error:
            raise SiteError(
                f"machines of other hosts cannot reach {url}",
                hint="set store_root, and the job's checkpoint.to if it has one, to a bucket of S3 "
                "(s3://bucket/prefix): elsewhere, access cannot be limited to a job",
            ) from error
    return Scope(writes, reads)


def _literal(prefix: str) -> str:
    """A prefix in which nothing is a wildcard or a variable of a policy."""
    return "".join({"*": "${*}", "?": "${?}", "$": "${$}"}.get(letter, letter) for letter in prefix)
