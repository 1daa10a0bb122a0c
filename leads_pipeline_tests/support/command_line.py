"""The command line, run in this process."""

import os
from typing import Final

import pytest
from click.testing import CliRunner, Result

from leads_pipeline.cli import main, output
from leads_pipeline_tests.support.small_portal import variables

# With these, each command goes as far as to the data folder. Nobody answers at the addresses.
NOBODY: Final = "http://127.0.0.1:1"
FOR_ANY_COMMAND: Final = {
    **variables(NOBODY),
    "LEADS_BRANCH_IDS": "101",
    "LEADS_TIMEZONE": "Europe/London",
    "LEADS_RECEIVE_KEY": "0123456789abcdef",
    "LEADS_DELIVERY_URL": NOBODY,
    "LEADS_DELIVERY_SECRET": "whsec_c2VjcmV0IG9mIHRoZSB0ZXN0cywgMzIgYnl0ZXMgbG9uZw==",
}


def run(*arguments: object) -> Result:
    """What `leads-pipeline` prints on a terminal that no table is too wide for, and how it ends.

    What it sets in the environment is taken back: it is for the processes that it starts, and a
    fixture of a module would leave it to other tests. The rest stays untouched, as threads may read
    it.
    """
    before = dict(os.environ)
    umask = os.umask(0o077)
    os.umask(umask)
    with pytest.MonkeyPatch.context() as patched:
        for console in (output.out, output.err):
            patched.setattr(console, "_width", 250)
        try:
            return CliRunner().invoke(
                main, [str(argument) for argument in arguments], catch_exceptions=False
            )
        finally:
            os.umask(umask)
            for name in os.environ.keys() - before.keys():
                del os.environ[name]
