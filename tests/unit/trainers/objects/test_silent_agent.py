"""A job's program asks the agent of its machine with which access it reaches the bucket; the agent may not answer."""

from __future__ import annotations

import pytest

from tests.clouds import blob, gcs, s3
from tests.clouds.server import Response, serving
from trainers.errors import StoreUnavailable
from trainers.objects.opening import open_store
from trainers.objects.retry import Patience

_STORES = {"s3": s3.environment, "gs": gcs.environment, "az": lambda server: blob.environment(server, "a2V5")}
_OWN = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GOOGLE_BEARER_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY")


@pytest.mark.parametrize("scheme", sorted(_STORES))
@pytest.mark.parametrize("said", [None, b"{}", b"[]", b"nothing", b'{"values": 7, "expires_at": "2031-01-01"}'])
def test_an_agent_that_does_not_say_it_is_a_store_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, scheme: str, said: bytes | None
) -> None:
    with serving(lambda _: Response(200, said or b"")) as agent, serving(lambda _: Response(500)) as store:
        for name, value in _STORES[scheme](store).items():
            monkeypatch.setenv(name, value)
        for name in _OWN:
            monkeypatch.delenv(name, raising=False)
        where = agent.url if said is not None else "http://127.0.0.1:9"
        for name in ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "TRADEWIND_ACCESS_URI"):
            monkeypatch.setenv(name, f"{where}/access")
        for name in ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "TRADEWIND_ACCESS_TOKEN"):
            monkeypatch.setenv(name, "token")
        opened = open_store(f"{scheme}://a-bucket/tw", Patience(tries=1))
        for attempt in (lambda: opened.get("a", 9), lambda: opened.delete("a"), opened.keys):
            with pytest.raises(StoreUnavailable, match="agent"):
                attempt()
        assert store.requests == []
