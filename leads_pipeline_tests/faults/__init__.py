"""Known faults of the product, each as a test that fails until somebody mends it.

`fault(55, "...")` marks a test with the number that the fault has in the list of faults. The mark is strict: a test
that begins to pass turns the suite red. Whoever mends the fault then removes the mark, and the test stays. `--runxfail`
shows how each test fails. Only a failed assertion is expected, or the error that the mark names. Any other error means
that the test itself is broken.
"""

import json
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from leads_pipeline.cli import main


def fault(
    number: int, what: str, raises: type[Exception] | tuple[type[Exception], ...] = AssertionError
) -> pytest.MarkDecorator:
    """Expect a failed assertion, or the error with which the product ends, because of this fault."""
    return pytest.mark.xfail(strict=True, raises=raises, reason=f"fault {number}: {what}")


@dataclass(frozen=True)
class Outcome:
    """What a command printed on both streams, and on the standard output alone, and how it ended."""

    code: int
    text: str
    stdout: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    def findings(self) -> dict[str, tuple[str, str]]:
        """What `doctor --json` found: light and message by check."""
        return {one["check"]: (one["light"], one["message"]) for one in self.json["findings"]}


def command(*arguments: object) -> Outcome:
    """Run a command of `leads-pipeline` in this process. An error that it doesn't handle is raised here."""
    with warnings.catch_warnings():
        # Dagster calls functions of its own that it has deprecated.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"dagster\.")
        result = CliRunner(env={"COLUMNS": "250"}).invoke(
            main, [str(argument) for argument in arguments], catch_exceptions=False
        )
    return Outcome(result.exit_code, result.output, result.stdout)
