"""Background catalog: queries the checkpoints of jobs outside the control plane's loop.

A store of checkpoints may take seconds to answer, or never answer. So a call begins in one tick and its answer is read
in a later one (engine.calls); until then CheckpointsAwaited is raised, and the caller tries again in the next tick. A
caller that needs several answers calls in the same order each time: answers that have arrived are kept. They belong to
a `purpose`, such as a step of one migration, so that an answer for an earlier purpose is not mistaken for the present
state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from orchestrator.engine.jobs.checkpoints import (
    CheckpointsAwaited,
    CheckpointsOutOfReach,
    ManifestInfo,
    Newest,
)
from providers.errors import TimedOutError
from trainers.objects.opening import Root

if TYPE_CHECKING:
    from orchestrator.engine.context import Context

T = TypeVar("T")
PLACE = "checkpoints"
LIMIT_S = 120.0
"""Wall seconds after which a call without an answer is abandoned. It may still take effect: fences allow that."""
KEPT_S = 300.0
AGAIN_S = 0.5


class BackgroundCatalog:
    """CheckpointCatalog for one purpose. Every method also raises CheckpointsAwaited."""

    def __init__(self, ctx: Context, purpose: str) -> None:
        self._ctx, self._purpose = ctx, purpose

    def newest(self, root: Root, job_id: str, generation: int) -> Newest:
        """See CheckpointCatalog.newest."""
        return self._asked(
            "newest", root, (job_id, generation), lambda: self._ctx.checkpoints.newest(root, job_id, generation)
        )

    def find(self, root: Root, job_id: str, name: str) -> ManifestInfo | None:
        """See CheckpointCatalog.find."""
        return self._asked("find", root, (job_id, name), lambda: self._ctx.checkpoints.find(root, job_id, name))

    def fence(self, root: Root, job_id: str, generation: int, manifest: str | None) -> bool:
        """See CheckpointCatalog.fence."""
        about = (job_id, generation, manifest)
        return self._asked("fence", root, about, lambda: self._ctx.checkpoints.fence(root, *about))

    def has_asked_for_fence(self, root: Root, job_id: str, generation: int, manifest: str | None) -> bool:
        """Whether `fence` was called and its answer has not been raised: it may have taken effect."""
        return self._ctx.calls.under_way(self._key("fence", root, (job_id, generation, manifest)))

    def void(self, root: Root, job_id: str, generation: int) -> bool:
        """See CheckpointCatalog.void."""
        return self._asked(
            "void", root, (job_id, generation), lambda: self._ctx.checkpoints.void(root, job_id, generation)
        )

    def taken(self, root: Root, job_id: str) -> int:
        """See CheckpointCatalog.taken."""
        return self._asked("taken", root, (job_id,), lambda: self._ctx.checkpoints.taken(root, job_id))

    def fenced(self, root: Root, job_id: str) -> int:
        """See CheckpointCatalog.fenced."""
        return self._asked("fenced", root, (job_id,), lambda: self._ctx.checkpoints.fenced(root, job_id))

    def forget(self, root: Root, job_id: str) -> None:
        """Query `taken` and `fenced` again."""
        for method in ("taken", "fenced"):
            self._ctx.calls.forget(self._key(method, root, (job_id,)))

    def _asked(self, method: str, root: Root, about: tuple[object, ...], call: Callable[[], T]) -> T:
        ctx, key = self._ctx, self._key(method, root, about)
        answer, now_s = ctx.answer(key, keep=True), ctx.installation.clock.monotonic_s()
        if answer is not None and answer.error is None and now_s - answer.asked_s > KEPT_S:
            ctx.calls.forget(key)
            answer = None
        if answer is None and ctx.may_ask(key, (PLACE, str(root)), AGAIN_S):
            if method == "fence":  # it may change this one, even if its answer is an error
                self.forget(root, str(about[0]))
            answer = ctx.begin(key, (PLACE, str(root)), call, LIMIT_S, keep=True)
        if answer is None:
            raise CheckpointsAwaited(f"waiting for an answer from {root}", hint="the next tick checks again")
        try:
            value: T = answer.result()
        except TimedOutError as error:
            raise CheckpointsOutOfReach(f"{root}: {error}", hint="Tradewind tries again") from error
        return value

    def _key(self, method: str, root: Root, about: tuple[object, ...]) -> str:
        return f"{PLACE}:{method}:{root}:{about}:{self._purpose}"
