"""The check of `store_root`: the place through which machines get their orders and leave what they make."""

from __future__ import annotations

from orchestrator.installation import Installation
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.policy import scope_of
from orchestrator.services.jobs.run_files import readable
from orchestrator.services.views import Check
from providers.traits import traits_of
from trainers.objects.opening import open_store
from trainers.objects.retry import Patience

NAME = "store root"
PATIENCE = Patience(connect_s=2.0, request_s=10.0, tries=1)


def store_root(installation: Installation) -> Check:
    """Whether it answers and, if machines of other hosts are enabled, gives out access that is limited to a job. Raises
    StoreError, SiteError."""
    root, machines = str(installation.config.store_root), installation.config.machines
    others = sorted(name for name in installation.providers if not traits_of(name).shares_host)
    scope = scope_of((f"{root}/doctor",)) if others else None
    with readable():
        store = open_store(root, PATIENCE)
        store.head("doctor")
    if scope is None:
        return Check(NAME, "ok", store.url)
    issuer = Issuer(role=machines.role, share=machines.share_credentials)
    issuer.issue(scope, "tw-doctor")
    if machines.share_credentials:
        what = "machines get the control plane's own credentials (machines.share_credentials)"
        return Check(NAME, "warn", f"{store.url}; {what}", "unset it if the store has a token service")
    return Check(NAME, "ok", f"{store.url}; access limited to a job can be given to machines of {', '.join(others)}")
