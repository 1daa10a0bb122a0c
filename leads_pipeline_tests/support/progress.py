"""Progress of pytest for readers of whole lines, such as the log of a CI.

A line of dots can take minutes to fill.
"""

import time
from collections.abc import Callable

import pytest

LINE_SECONDS = 20.0


class Progress:
    """Ends the line of dots at least every 20 seconds, with the share of tests that are done."""

    def __init__(self, session: pytest.Session, write_line: Callable[[str], None]) -> None:
        self._session = session
        self._write_line = write_line
        self._done = 0
        self._ended_at = time.monotonic()

    @pytest.hookimpl(trylast=True)  # after the test's own dot
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return

        self._done += 1
        if time.monotonic() - self._ended_at >= LINE_SECONDS:
            share = self._done / max(self._session.testscollected, 1)
            self._write_line(f" [{share:4.0%}]")
            self._ended_at = time.monotonic()


def show_progress(session: pytest.Session) -> None:
    """Show it if the output is no terminal. A worker of pytest-xdist has no output."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not reporter.isatty:
        session.config.pluginmanager.register(Progress(session, reporter.write_line))
