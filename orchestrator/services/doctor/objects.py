"""Checks of `store_root`, where machines get their orders and store their results."""

from __future__ import annotations

from orchestrator.engine.inputs.bucket_places import bucket_region
from orchestrator.errors import StoreError
from orchestrator.installation import Installation
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.scope import scope_of
from orchestrator.nodes.channel import control_store, recorded_epoch
from orchestrator.nodes.key_file import KEY_FILE, KeyFile
from orchestrator.services.control_plane.presence import control_plane
from orchestrator.services.doctor.bucket_rules import costly_rules
from orchestrator.services.doctor.rules import Rules
from orchestrator.services.jobs.run_files import readable
from orchestrator.services.views import Check
from providers.traits import traits_of
from trainers.errors import UnreadableObject
from trainers.objects.opening import open_store
from trainers.objects.retry import Patience

NAME = "store root"
ORDERS = "orders"
CONTACT_S = 60
PATIENCE = Patience(connect_s=2.0, request_s=10.0, tries=1)


def store_root(installation: Installation) -> Check:
    """Whether it can be listed and written and, if machines of other hosts are enabled, can grant access limited to a
    job; and whether its bucket keeps deleted data. Raises StoreError, SiteError."""
    root, machines = str(installation.config.store_root), installation.config.machines
    others = sorted(name for name in installation.providers if not traits_of(name).shares_host)
    scope = scope_of((f"{root}/doctor",)) if others else None
    with readable():
        store = open_store(root, PATIENCE)
        if store.remote:
            store.keys("doctor")  # unlike a missing object, a missing bucket cannot be listed
        store.prepare()
    rules = costly_rules(root, installation.providers.get("azure")) if store.remote else Rules()
    found, warnings = [store.url], list(rules.costly)
    if scope is not None:
        issuer = Issuer(role=machines.role, share=machines.share_credentials)
        issuer.issue(scope, "tw-doctor")
        issuer.signer(scope, CONTACT_S)  # a machine's first contact needs it
        if machines.share_credentials:
            what = "machines get the control plane's own credentials (machines.share_credentials)"
            warnings.append((what, "unset it if the store has a token service"))
        else:
            found.append(f"machines of {', '.join(others)} can get access limited to their job")
    if (used := installation.root_in_use()) is not None and control_plane(installation).running:
        warnings.append((f"the running control plane uses {used}", f"to use {root}: tradewind down, then tradewind up"))
    found += [what for what, _ in warnings]
    if rules.region and installation.config.store_region not in (None, rules.region):
        declared = installation.config.store_region
        warnings.append((f"it is in {rules.region}, and store_region says {declared}", _declare(rules.region)))
        found.append(warnings[-1][0])
    elif others and store.remote and bucket_region(installation.config, root) == "":
        found.append(
            "its region is not set, so plans assume that transfers within its cloud are free: "
            + (_declare(rules.region) if rules.region else "set store_region")
        )
    if rules.unchecked:
        found.append(f"not checked whether the bucket keeps deleted data: {rules.unchecked}")
    return Check(NAME, "warn" if warnings else "ok", "; ".join(found), "; ".join(remedy for _, remedy in warnings))


def orders(installation: Installation) -> Check:
    """Whether the installation's key and the record of the control plane that gives orders can be read: without them,
    machines get no orders. The check `store_root` reports an unreachable store. Raises StoreError, SiteError."""
    KeyFile(installation.state_dir / KEY_FILE).check()
    try:
        with readable():
            epoch = recorded_epoch(control_store(installation.control_root))
    except StoreError as error:
        if isinstance(error.__cause__, UnreadableObject):
            raise
        return Check(ORDERS, "warn", f"not known: {error}", f'see "{NAME}"')
    return Check(ORDERS, "ok", f"the latest are from control plane no. {epoch}" if epoch else "none yet")


def _declare(region: str) -> str:
    return f'set store_region = "{region}"'
