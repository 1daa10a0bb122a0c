"""A portal that gives fixed answers, and the variables that lead to it.

Belongs here: what the promises share of it. Doesn't: what an answer holds, which is the caller's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from leads_pipeline_tests.support.small_portal import Answers, SmallPortal, served

SECRET: Final = "made-up-secret"


@contextmanager
def portal(answers: Answers) -> Iterator[str]:
    """Serve the answers on this machine while the block runs. Give the address."""
    with served(SmallPortal(SECRET, answers)) as one:
        yield one.base_url


def variables(address: str, data: str) -> dict[str, str]:
    """The variables that point the pipeline at the portal and at a data folder."""
    return {
        "LEADS_BASE_URL": address,
        "LEADS_AUTH_URL": address,
        "LEADS_CLIENT_ID": "client",
        "LEADS_CLIENT_SECRET": SECRET,
        "INVENTORY_BASE_URL": address,
        "INVENTORY_CLIENT_ID": "client",
        "INVENTORY_CLIENT_SECRET": SECRET,
        "INVENTORY_AGENCY_REF": "agency",
        "LEADS_DATA_DIR": data,
    }
