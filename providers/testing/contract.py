"""All tests of the contract, in one class to inherit from."""

from providers.testing.account import Account
from providers.testing.anywhere import Anywhere
from providers.testing.ending import Ending
from providers.testing.launching import Launching
from providers.testing.paying import Paying
from providers.testing.trouble import Trouble


class ProviderContract(Launching, Ending, Trouble, Paying, Anywhere, Account):
    """Inherit from this class and implement its hooks; override the attributes where the defaults do not fit.

    `offer_id` must be an offer that has capacity and is not preempted during the test. `step_s` (market seconds) is the
    interval of polling; a test fails after 400 intervals. `late_s` is for a cloud that bills a machine which has ended
    by itself until the next call about it: how long (market seconds) that takes in these tests.

    Required: `offer_id`, `connect`, `now_ms`, `advance`. Optional: the trouble that a test can arrange at its cloud
    (`limit_capacity`, `limit_quota`, `lose_reply`, `announce_end`, `take_away`, `other_offer_id`;
    for LaunchesAnywhere `next_door`, `limit_capacity_next_door`, `other_type`, `limit_capacity_of_other_type`,
    `refuse_together`).
    """
