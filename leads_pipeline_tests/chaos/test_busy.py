"""A busy portal: 429 in every form, from the simulator and from nginx in front of it; nobody is hammered, all lands."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from leads_pipeline.errors import BusyError
from leads_pipeline.portal import RetryPolicy
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.faults import Rule, Then, When
from leads_pipeline.simulator.server import running
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline_tests.chaos.way import assert_all_landed_once, connect, failures, pull, raw_bytes, windows_of
from leads_pipeline_tests.support.fake_timing import FakeTiming
from leads_pipeline_tests.support.nginx import running_nginx

POLICY = RetryPolicy()
REFUSALS = 3


class Clock(FakeTiming):
    """Begins at the real moment, which the simulator's leads and tokens go by, and is moved by sleeping alone."""

    def __init__(self) -> None:
        super().__init__()
        self.began = datetime.now(UTC)

    def now(self) -> datetime:
        return self.began + timedelta(seconds=self.seconds)


def in_a_minute(clock: Clock) -> str:
    return format_datetime(clock.now() + timedelta(seconds=60), usegmt=True)


# The header, and the least and most seconds that the run may wait. The clock runs ahead of answers under way, so a wish
# that eight requests hear at once may be granted once for each.
FORMS: dict[str, tuple[str | int | None, float, float]] = {
    "429 bare": (None, 0.0, 10.0),
    "429 with seconds": (7, 7.0, 200.0),
    "429 with a date": ("in a minute", 58.0, 500.0),
    "429 with a past date": ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0, 10.0),
    "429 with -1": ("-1", 0.0, 10.0),
    "429 with 1.5": ("1.5", 0.0, 10.0),
    "429 with soon": ("soon", 0.0, 10.0),
}


@pytest.mark.parametrize("path", ["/applicant-leads", "/oauth2/token"])
@pytest.mark.parametrize("form", FORMS)
def test_a_wish_for_patience_is_granted_within_bounds_and_costs_no_window(tmp_path: Path, form: str, path: str) -> None:
    header, least, most = FORMS[form]
    clock, data = Clock(), DataFolder.at(tmp_path / "data")
    if header == "in a minute":
        header = in_a_minute(clock)
    said = {} if header is None else {"retry-after": str(header)}
    with running(Config(branches=8, leads_per_day=20)) as portal:
        portal.set_faults([Rule(Then(status=429, headers=said), When(path=path, first=REFUSALS), form)])
        windows = windows_of(portal)
        client, auth = connect(portal.environment(), data, policy=POLICY, timing=clock.as_timing(), max_concurrency=8)

        assert failures(pull(client, data, windows)) == []

        assert portal.counters().faults[form] == REFUSALS
        assert_all_landed_once(portal, data, windows)
        refused = REFUSALS if path == "/applicant-leads" else 0
        assert portal.counters().requests["/applicant-leads"] == len(windows) + refused
        assert auth.requests_made == portal.counters().token_requests == 1 + REFUSALS - refused
    assert least <= clock.seconds <= most
    assert max(clock.sleeps) <= POLICY.max_retry_after_seconds + POLICY.max_delay_seconds


def test_a_wish_for_more_patience_than_there_is_ends_the_run_and_leaves_what_is_landed(tmp_path: Path) -> None:
    form, clock, data = "429 with 99999999999", Clock(), DataFolder.at(tmp_path / "data")
    with running(Config(branches=20, leads_per_day=20)) as portal:
        windows = windows_of(portal)
        client, _ = connect(portal.environment(), data, policy=POLICY, timing=clock.as_timing(), max_concurrency=2)
        assert failures(pull(client, data, windows[:10])) == []
        before = raw_bytes(data)
        portal.reset_counters()
        portal.set_faults(
            [Rule(Then(status=429, headers={"retry-after": "99999999999"}), When(path="/applicant-leads"), form)]
        )

        outcomes = pull(client, data, windows)

        assert {type(failure) for failure in failures(outcomes)} == {BusyError}
        assert len(failures(outcomes)) == len(windows)
        assert portal.counters().requests["/applicant-leads"] <= 2  # those that were under way together
        assert clock.seconds <= POLICY.max_delay_seconds
        assert raw_bytes(data) == before
        portal.set_faults([])
        assert failures(pull(client, data, windows)) == []
        assert_all_landed_once(portal, data, windows)


# --- nginx --------------------------------------------------------------------------------------------------------

LIMITED = """
    limit_req_zone $binary_remote_addr zone=portal:1m rate={rate}r/s;
    limit_req_status 429;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            limit_req zone=portal burst={burst} nodelay;
            proxy_pass {upstream};
            proxy_set_header Host $http_host;
        }}
    }}
"""


@pytest.mark.parametrize(("rate", "burst"), [(25, 1), (25, 10)])
def test_all_windows_come_through_a_real_rate_limit(tmp_path: Path, rate: int, burst: int) -> None:
    data = DataFolder.at(tmp_path / "data")
    with (
        running(Config(branches=20, leads_per_day=2)) as portal,
        running_nginx(
            tmp_path / "nginx",
            lambda port: LIMITED.format(port=port, upstream=portal.base_url, rate=rate, burst=burst),
        ) as port,
    ):
        url = f"http://127.0.0.1:{port}"
        windows = windows_of(portal, days=10)
        variables = {**portal.environment(), "LEADS_BASE_URL": url, "LEADS_AUTH_URL": url}
        client, auth = connect(variables, data, policy=POLICY, max_concurrency=8)

        assert failures(pull(client, data, windows)) == []

        assert len(windows) == 200
        assert_all_landed_once(portal, data, windows)
        assert auth.requests_made == portal.counters().token_requests == 1
        assert max(portal.counters().windows.values()) == 1
    lines = [line.split() for line in (tmp_path / "nginx" / "access.log").read_text().splitlines()]
    statuses = Counter(status for status, *_ in lines)
    assert statuses.keys() == {"200", "429"}
    assert statuses["200"] == 201
    # A limit that isn't known beforehand has to be found; one request in eight is what finding it costs (retry.Pace),
    # and more where the machine is busy and requests come in bunches.
    assert 0 < statuses["429"] <= len(windows) / 2
