"""Live updates: a stream of server-sent events that says when pages may have changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from orchestrator.errors import TradewindError
from orchestrator.web.site import Site

LOOK_EVERY_S = 3.0
PARTS = 6
"""Number of checks within that time whether the server is stopping: it waits until its streams end."""
LONGEST_S = 3600.0
MOST_READERS = 100


def routes(site: Site) -> APIRouter:
    """`/live`."""
    router = APIRouter(include_in_schema=False)
    watch = _Watch(site)

    @router.get("/live")
    async def live(request: Request) -> StreamingResponse:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(watch.follow(request), media_type="text/event-stream", headers=headers)

    return router


class _Watch:
    """Reads the store once for all current clients. A store that does not answer does not count as a change."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._mark = ""
        self._looked_s = 0.0
        self._readers = 0
        self._turn = asyncio.Lock()

    async def follow(self, request: Request) -> AsyncIterator[str]:
        """`hello`, then `changed` after each change; ends when the client disconnects, or after LONGEST_S (browsers
        reconnect)."""
        if self._readers >= MOST_READERS:
            return
        self._readers += 1
        try:
            seen, began = await self._newest(), asyncio.get_running_loop().time()
            yield "event: hello\ndata: 1\n\n"
            while asyncio.get_running_loop().time() - began < LONGEST_S and not await request.is_disconnected():
                for _ in range(PARTS):
                    await asyncio.sleep(LOOK_EVERY_S / PARTS)
                    if request.app.state.ending():
                        return
                newest = await self._newest()
                yield ": still here\n\n" if newest == seen else "event: changed\ndata: 1\n\n"
                seen = newest
        finally:
            self._readers -= 1

    async def _newest(self) -> str:
        async with self._turn:
            now = asyncio.get_running_loop().time()
            if now - self._looked_s > LOOK_EVERY_S / 2:
                self._looked_s = now
                with suppress(TradewindError):
                    self._mark = await run_in_threadpool(self._site.client.reports.mark)
            return self._mark
