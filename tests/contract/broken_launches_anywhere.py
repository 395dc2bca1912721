"""Providers that break one contract of a launch in any zone each."""

from __future__ import annotations

from dataclasses import replace

from providers.base import Landed, LaunchSpec
from providers.errors import (
    CapacityError,
    ConflictError,
    NotTogetherError,
    QuotaError,
    UnavailableError,
)
from providers.offer import OfferId
from tests.contract.sound import Sound


class AsksOneZone(Sound):
    def launch_any(self, spec: LaunchSpec) -> Landed:
        return super().launch_any(replace(spec, also=()))


class LaunchesOneAlone(Sound):
    """Without saying that it cannot ask for several."""

    def launch_any(self, spec: LaunchSpec) -> Landed:
        try:
            return super().launch_any(spec)
        except NotTogetherError:
            return super().launch_any(replace(spec, also=()))


class LaunchesInEachZone(Sound):
    def launch_any(self, spec: LaunchSpec) -> Landed:
        for number, other in enumerate(spec.also):
            super().launch_any(replace(spec, token=f"{spec.token}.{number}", offer_id=other, also=()))
        return super().launch_any(spec)


class ForgetsWhereItLanded(Sound):
    """Every call asks again, in the zones of this one."""

    def launch_any(self, spec: LaunchSpec) -> Landed:
        number = self.cloud.__dict__["number"] = self.cloud.__dict__.get("number", 0) + 1
        return super().launch_any(replace(spec, token=f"{spec.token}.{number}" if number > 1 else spec.token))


class AsksOneType(Sound):
    def launch_any(self, spec: LaunchSpec) -> Landed:
        kind = OfferId.parse(spec.offer_id).instance_type
        also = tuple(each for each in spec.also if OfferId.parse(each).instance_type == kind)
        return super().launch_any(replace(spec, also=also))


class MixesTypesWithoutSayingSo(Sound):
    @property
    def mixes_types(self) -> bool:
        return False

    def launch_any(self, spec: LaunchSpec) -> Landed:
        return super().launch_any(replace(spec, also=()))


class SplitsGangs(Sound):
    """Each machine where there is room."""

    def launch_any(self, spec: LaunchSpec) -> Landed:
        tokens = [f"{spec.token}.{number}" for number in range(spec.count)]
        parts = [super(SplitsGangs, self).launch_any(replace(spec, token=token, count=1)) for token in tokens]
        return Landed(parts[-1].offer_id, tuple(each for part in parts for each in part.instance_ids))


class SaysNothingOfCapacity(Sound):
    def launch_any(self, spec: LaunchSpec) -> Landed:
        try:
            return super().launch_any(spec)
        except CapacityError as error:
            raise UnavailableError(str(error)) from error


class TakesQuotaForCapacityAnywhere(Sound):
    def launch_any(self, spec: LaunchSpec) -> Landed:
        try:
            return super().launch_any(spec)
        except QuotaError as error:
            raise CapacityError(str(error)) from error


class TakesAnyOffersForAToken(Sound):
    def launch_any(self, spec: LaunchSpec) -> Landed:
        try:
            return super().launch_any(spec)
        except ConflictError:
            (found, *_) = self.cloud.found(spec.token, "alpha")
            return Landed(found.offer_id, (found.id,))
