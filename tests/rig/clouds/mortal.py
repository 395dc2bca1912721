"""MortalClient: a provider whose calls, and each of their requests that changes something, are edges."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import nullcontext
from inspect import getattr_static
from typing import Any, TypeVar

from providers.base import Landed, LaunchesAnywhere, LaunchSpec
from providers.fake import Fault, Faults
from providers.fake.faults import LISTINGS
from tests.rig.clouds.rented import RentedCloud
from tests.rig.clouds.scene import Scene, StagedServer
from tests.rig.crash_points import FaultInjector, Killed
from tests.rig.nap import Nap

T = TypeVar("T")
CALLS = (
    "offers", "prices", "price_history", "quotas", "describe", "find", "renew", "list_owned", "set_up", "tear_down",
    "networks",
)  # fmt: skip
LISTS = ("find", "list_owned")


class MortalClient:
    """The real provider `inner`, connected to `cloud` through `server`. `chance` chooses the requests that fail."""

    def __init__(
        self, cloud: RentedCloud, server: StagedServer, faults: Faults, injector: FaultInjector, chance: random.Random
    ) -> None:
        self._cloud, self._server, self._faults, self._injector = cloud, server, faults, injector
        self._chance = chance
        self._inner = cloud.connect()
        self._edges = edges_of(cloud)
        # From Python 3.12, isinstance() of a protocol does not ask __getattr__.
        for name in dir(self._inner):
            computed = isinstance(getattr_static(self._inner, name), property)
            if not (name.startswith("_") or hasattr(type(self), name) or computed):
                setattr(self, name, self._attribute(name))

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        """See Provider.launch."""
        return self._launched(spec, lambda: Landed(spec.offer_id, tuple(self._inner.launch(spec)))).instance_ids

    @property
    def mixes_types(self) -> bool:
        """See LaunchesAnywhere."""
        return isinstance(self._inner, LaunchesAnywhere) and self._inner.mixes_types

    def most_offers(self, count: int) -> int:
        """See LaunchesAnywhere."""
        return self._inner.most_offers(count) if isinstance(self._inner, LaunchesAnywhere) else 1

    def launch_any(self, spec: LaunchSpec) -> Landed:
        """See LaunchesAnywhere."""
        inner = self._inner
        assert isinstance(inner, LaunchesAnywhere)
        return self._launched(spec, lambda: inner.launch_any(spec))

    def _launched(self, spec: LaunchSpec, call: Callable[[], Landed]) -> Landed:
        self._injector.edge("before launch")
        landed = self._call("launch", call, offer_id=spec.offer_id, alone=spec.count == 1)
        self._injector.edge("after launch")
        return landed

    def terminate(self, instance_id: str) -> None:
        """See Provider.terminate."""
        self._injector.edge("before terminate")
        self._call("terminate", lambda: self._inner.terminate(instance_id))
        self._injector.edge("after terminate")

    def _attribute(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in CALLS:
            return found
        return lambda *args: self._call(name, lambda: found(*args), alone=name == "renew")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _call(self, name: str, call: Callable[[], T], *, offer_id: str = "", alone: bool = True) -> T:
        """Make a call with the fault that is due; it may be where the control plane dies, or sleeps if the call sends
        one request after the other (`alone`)."""
        cloud, injector = self._cloud, self._injector
        cloud.pass_time()
        fault = self._faults.next(name)
        partial = fault is Fault.PARTIAL
        targets = cloud.targets.get(name, ("",))
        scene = Scene(
            cloud,
            None if fault in (Fault.CAPACITY, Fault.PARTIAL) else fault,
            self._chance.choice(targets),
            (injector.when and next(filter(injector.when, self._edges), "")) or "",
            "",
            together=name in cloud.together and not (alone and name == "launch"),
        )
        if alone and injector.tires and injector.sleep_when is not None and Nap.here() is not None:
            scene.pause = next(filter(injector.sleep_when, self._edges), "")
        capacity = cloud.full(offer_id) if fault is Fault.CAPACITY and offer_id else nullcontext()
        with capacity:
            result, error = self._staged(scene, call)
        if scene.struck:
            injector.at = injector.when = None
            injector.deaths[scene.death] += 1
            raise Killed(scene.death)
        if error is not None:
            raise error
        listed: Any = result
        return listed[1::2] if partial and name in LISTINGS and _may_omit(cloud, name) else listed  # type: ignore[no-any-return]

    def _staged(self, scene: Scene, call: Callable[[], T]) -> tuple[T | None, Exception | None]:
        """The result or the error of a call whose requests go through `scene`."""
        outcome: list[tuple[T | None, Exception | None]] = []

        def carry_out() -> None:
            try:
                outcome.append((call(), None))
            except Exception as error:  # raised by the caller that waits for it
                outcome.append((None, error))
            scene.held.set()

        before, self._server.scene = self._server.scene, scene
        try:
            if not scene.pause:
                carry_out()
                return outcome[0]
            thread = threading.Thread(target=carry_out, daemon=True)
            thread.start()
            scene.held.wait()
            if not outcome:
                self._sleep(scene, before)
            thread.join()
            return outcome[0]
        finally:
            self._server.scene = before

    def _sleep(self, scene: Scene, before: Scene | None) -> None:
        injector = self._injector
        injector.sleep_at = injector.sleep_when = None
        injector.slept = scene.pause
        injector.pauses[scene.pause] += 1
        self._server.scene = before
        try:
            injector.sleep()
        except BaseException:  # it is never resumed
            scene.kill()
            raise
        self._server.scene = scene
        self._cloud.pass_time()
        scene.go_on.set()


def edges_of(cloud: type[RentedCloud] | RentedCloud) -> tuple[str, ...]:
    """Where a control plane can die or sleep in a call."""
    named = dict.fromkeys((*cloud.machine_requests, *cloud.network_requests))
    return tuple(f"{moment} {name}" for name in named for moment in ("before", "after"))


def _may_omit(cloud: RentedCloud, name: str) -> bool:
    """Azure is asked for each machine by itself, which is never out of date; its lists are."""
    return name == "list_owned" or name not in cloud.together
