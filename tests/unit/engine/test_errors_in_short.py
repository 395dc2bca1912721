"""What events say of an error: the exception with its whole message, in one line."""

from __future__ import annotations

import pytest

from orchestrator.engine.migration.move import MOST_IN_SHORT, in_short

BEGIN = "Traceback (most recent call last):"
FRAME = '  File "train.py", line 7, in main\n    load("missing.json")\n         ^^^^^^^'


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (f"{BEGIN}\n{FRAME}\nValueError: a bug at step 4\n", "ValueError: a bug at step 4"),
        (
            f"{BEGIN}\n{FRAME}\nRuntimeError: no config\n  of the model\n\nsee docs",
            "RuntimeError: no config of the model see docs",
        ),
        (
            f"{BEGIN}\n{FRAME}\nKeyError: 'a'\n\nDuring handling of the above exception, another one occurred:\n\n"
            f"{BEGIN}\n{FRAME}\nRuntimeError: cannot load\nthe model",
            "RuntimeError: cannot load the model",
        ),
        (f"rank 0 of 4 failed\nmachine 1: {BEGIN}\n{FRAME}\nSystemError\n", "SystemError"),
        (f"{BEGIN}\n{FRAME}", "^^^^^^^"),  # it was cut
        ("pip failed\n\n  no matching version\n", "no matching version"),
        (" \n", "unknown error"),
    ],
)
def test_an_error_in_short_is_its_exception(error: str, said: str) -> None:
    assert in_short(error) == said


def test_a_long_message_of_an_exception_is_cut_and_a_reason_of_ours_with_its_remedy_is_not() -> None:
    assert len(in_short(f"{BEGIN}\n{FRAME}\nValueError: {'x' * 1000}")) == MOST_IN_SHORT
    assert in_short("why " * 200 + "remedy").endswith("remedy")
