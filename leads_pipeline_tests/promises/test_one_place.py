"""One change, one place: each change that is asked for most often is made in a copy, in one file,
and works there.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import leads_pipeline
from leads_pipeline_tests.support.sinks import web_sink

pytestmark = pytest.mark.slow

ROOT = Path(leads_pipeline.__file__).parents[1]

# A house in the folder of the copy, with the copy's code, and what the copy's command line prints.
SETUP = """
import sys
from pathlib import Path
from leads_pipeline.cli import main
from leads_pipeline_tests.support.house import DAY, House

house = House(Path("data"))

def command(*arguments):
    try:
        main([*arguments])
    except SystemExit as end:
        return end.code
"""

Change = Callable[..., None]
Run = Callable[..., str]


@pytest.fixture
def change(tmp_path: Path) -> Change:
    """Put a text before another one in a file of a copy of the package, or at its end.

    A new file is made.
    """
    shutil.copytree(
        ROOT / "leads_pipeline",
        tmp_path / "leads_pipeline",
        ignore=shutil.ignore_patterns("__pycache__"),
    )

    def put(file: str, text: str, before: str = "") -> None:
        path = tmp_path / "leads_pipeline" / file
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        assert not before or there.count(before) == 1
        path.write_text(
            there.replace(before, text + before) if before else there + text, encoding="utf-8"
        )

    return put


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a program with the copy, and give what it prints."""

    def ran(program: str, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SETUP + program],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "LEADS_DATA_DIR": "data",
                "COLUMNS": "200",
                **variables,
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return ran


def test_a_field_of_a_lead_is_one_line(change: Change, run: Run) -> None:
    line = '        Field("listingDetails.epcRating", _T, "Energy rating of the listing"),\n'
    change("domain/contract.py", line, '        Field("listingDetails.url", _T,')
    printed = run("""
house.land("applicant", [{"id": "a", "listingDetails": {"epcRating": "B"}}])
house.publish()
print(house.query("select listing_details_epc_rating from applicant_leads"))
print(house.query("select comment from duckdb_columns() where column_name = 'listing_details_epc_rating'"))
""")
    assert printed == "[('B',)]\n[('Energy rating of the listing',)]\n"


def test_a_third_kind_of_lead_is_one_declaration(change: Change, run: Run) -> None:
    kind = """VENDOR: Final = LeadKind(
    name="vendor",
    path="/vendor-leads",
    list_key="vendors",
    table="vendor_leads",
    description="Owners who instruct an agent",
    fields=(*_LEAD, Field("instruction", _T, "What the agent is to do")),
)

"""
    change("domain/contract.py", kind, "LEAD_KINDS: Final =")
    change("domain/contract.py", "VENDOR, ", "APPLICANT, APPRAISAL)")
    printed = run(
        """
import json
from leads_pipeline.definitions import build_definitions
from leads_pipeline.warehouse.checks import checks

house.land("vendor", [{"id": "v", "instruction": "SELL", "contact": {"email": "vera@people.example"}}])
house.fail("vendor", DAY, "branch-102")
house.publish()
told = {
    "leads": house.query("select lead_id, instruction from vendor_leads"),
    "daily": house.query("select kind, leads, people from mart_leads_daily"),
    "coverage": house.query("select scope, state from mart_coverage where kind = 'vendor'"),
    "checks": [check.name for check in checks() if check.table == "vendor_leads"],
    "failing": [*house.failing_checks()],
    "report": house.report(),
    "found": house.find(email="vera@people.example"),
    "assets": [key.to_user_string() for key in build_definitions({}).resolve_asset_graph().get_all_asset_keys()],
}
house.erase(email="vera@people.example")
told["after the erasure"] = [*house.leads("vendor")]
print(json.dumps(told))
command("findings")
command("backfill", "--help")
""",
        LEADS_BRANCH_IDS="101,102",
        LEADS_START_DATE="2026-11-19",
    )
    line, _, commands = printed.partition("\n")
    told = json.loads(line)
    assert told["leads"] == [["v", "SELL"]]
    assert told["daily"] == [["vendor", 1, 1]]
    assert ["branch-102", "failed"] in told["coverage"]
    assert "lead_ids_are_unique" in told["checks"]
    assert not [failing for failing in told["failing"] if failing.startswith("vendor")]
    assert "</b>vendor leads" in told["report"]
    assert {"raw_vendor_leads", "vendor_leads"} <= {*told["assets"]}
    assert told["found"] == [["theirs", "vendor", "v"]]
    assert told["after the erasure"] == []
    assert "[vendor|applicant|appraisal|inventory]" in commands
    assert "vendor windows of branch-102" in commands


def test_a_mart_is_one_file(change: Change, run: Run) -> None:
    mart = """-- One row per scope: how many leads came in all?
-- scope varchar: Scope whose window held them
-- leads bigint: Leads

select scope, count(*) as leads
from lead_facts
group by scope
"""
    change("features/marts/sql/mart_scopes.sql", mart)
    printed = run("""
house.land("applicant", [{"id": "a"}, {"id": "b"}])
house.publish()
print(house.query("from mart_scopes"))
from leads_pipeline.definitions import build_definitions
assets = {key.to_user_string() for key in build_definitions({}).resolve_asset_graph().get_all_asset_keys()}
print("mart_scopes" in assets)
""")
    assert printed == "[('branch-101', 2)]\nTrue\n"


SETTING = '    alert_pager: Secret | None = setting("LEADS_ALERT_PAGER", _ALERTS)\n    """Address of\n    your pager"""\n\n'
BEFORE_SETTING = '    heartbeat_url: Secret | None = setting("LEADS_HEARTBEAT_URL"'


def test_a_setting_is_one_field(change: Change, run: Run) -> None:
    change("features/alerts/settings.py", SETTING, BEFORE_SETTING)
    printed = run(
        'command("settings")', LEADS_ALERT_PAGER="http://127.0.0.1/t0ken", LEADS_ALERT_PAGE="1"
    )
    assert "LEADS_ALERT_PAGER: set  (environment)" in printed
    assert "Address of your pager" in printed
    assert "t0ken" not in printed
    asked = "from leads_pipeline.cli.settings import hints_about_unknown as hints; print(hints(['LEADS_ALERT_PAGE']))"
    hints = run(asked)
    assert "did you mean LEADS_ALERT_PAGER?" in hints


def test_a_problem_to_report_is_one_finder(change: Change, run: Run) -> None:
    finder = '''

@finder("full-moon")
def full_moon(facts: Facts) -> Iterator[Finding]:
    """The moon is full.

    Meaning: more people write at night.
    Do: nothing.
    Over: the next day.
    """
    yield Finding(Level.ERROR, f"The moon is full over {len(facts.scopes)} branches.", "Nothing.")
'''
    change("health/findings.py", finder)
    with web_sink() as sink:
        printed = run(
            """
house.land("applicant", [{"id": "a"}])
print(command("findings"))
command("doctor")
from datetime import datetime, UTC
from leads_pipeline.cli.health import facts_now
from leads_pipeline.features.alerts.alerts import Alerts
from leads_pipeline.features.alerts.channels import channels_of
from leads_pipeline.health.findings import find_all
channels = channels_of(facts_now().settings)
print(Alerts(house.data.state.path, channels, None).tell(*find_all(facts_now()), datetime.now(UTC)))
from docs.makers.findings_page import page
print(page())
""",
            LEADS_BRANCH_IDS="101,102",
            LEADS_ALERT_WEBHOOK=f"{sink.url}/hook",
        )
        [(_, _, body)] = sink.requests
    assert "error    full-moon\n         The moon is full over 2 branches.\n" in printed
    assert "red    full-moon: The moon is full over 2 branches." in printed
    assert b"The moon is full over 2 branches." in body
    assert "## full-moon\n\n**The moon is full.**\n" in printed
    assert "\n- **Meaning**: more people write at night.\n" in printed


def test_an_alert_channel_is_one_class_and_its_setting(change: Change, run: Run) -> None:
    channel = '''class Pager(Webhook):
    """Sends the title alone."""

    name = "LEADS_ALERT_PAGER"

    def _body(self, digest: Digest) -> dict[str, Any]:
        return {"page": digest.title}


'''
    change("features/alerts/settings.py", SETTING, BEFORE_SETTING)
    change("features/alerts/channels.py", channel, "CHANNELS: Final")
    change("features/alerts/channels.py", "Pager, ", "Webhook, SlackWebhook, Email)")
    with web_sink() as sink:
        program = 'house.land("applicant", [{"id": "a"}])\ncommand("findings")\ncommand("alert", "--test")'
        printed = run(program, LEADS_ALERT_PAGER=f"{sink.url}/hook")
        [(_, _, body)] = sink.requests
    assert "No alert channel is set up" not in printed
    assert "sent   LEADS_ALERT_PAGER" in printed
    assert body == b'{"page": "[leads_pipeline] This is a test. Nothing is wrong."}'
