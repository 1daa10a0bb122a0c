"""The command line, run in this process."""

import pytest
from click.testing import CliRunner, Result

from leads_pipeline.cli import main, output


def run(*arguments: object) -> Result:
    """What `leads-pipeline` prints on a terminal that no table is too wide for, and how it ends."""
    with pytest.MonkeyPatch.context() as patched:
        for console in (output.out, output.err):
            patched.setattr(console, "_width", 250)
        return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)
