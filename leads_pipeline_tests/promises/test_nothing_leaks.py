"""Secrets and personal data are in no log, event, mart, report, metric or alert.

Values that nobody else has go through everything: as secrets, in leads, in names of members, in
errors of the portal, in odd deliveries. Then every file is searched, decoded where it is Parquet,
DuckDB, SQLite or packed.
"""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from leads_pipeline_tests.promises.agency import DAY, PROGRAM
from leads_pipeline_tests.support.analyst import query
from leads_pipeline_tests.support.gpg import needs_gpg, running_gpg
from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS, wait_for
from leads_pipeline_tests.support.people import decoded
from leads_pipeline_tests.support.serving import free_port
from leads_pipeline_tests.support.sinks import mail_server, web_sink
from leads_pipeline_tests.support.small_portal import TOKEN, SmallPortal, served, variables

pytestmark = [needs_gpg, pytest.mark.slow]

# Letters and digits, so that no encoding of URLs, JSON or forms hides them from the search.
SECRET = "canarySecret5e7d"
PASSPHRASE = "canaryPassphrase33f0"
WRONG_SECRET = "canaryWrongSecret8c4b"
WRONG_PASSPHRASE = "canaryWrongPassphrase71aa"
RECEIVE_KEY = "canaryReceiveKey5c1e"
WRONG_KEY = "canaryWrongKey77d0"
WEBHOOK = "canaryWebhook91bb"
SLACK = "canarySlack04cd"
HEARTBEAT = "canaryHeartbeat6e2f"
MAIL_PASSWORD = "canaryMail2d9a"
WRONG_MAIL_PASSWORD = "canaryWrongMail55fe"
PROXY_PASSWORD = "canaryProxy7d31"
INVENTORY_SECRET = "canaryInventory60ab"
SECRETS: Final = (
    SECRET,
    TOKEN,
    PASSPHRASE,
    WRONG_SECRET,
    WRONG_PASSPHRASE,
    RECEIVE_KEY,
    WRONG_KEY,
    WEBHOOK,
    SLACK,
    HEARTBEAT,
    MAIL_PASSWORD,
    WRONG_MAIL_PASSWORD,
    PROXY_PASSWORD,
    INVENTORY_SECRET,
)

EMAIL = "canaryemail77@person.example"
PHONE = "07700900077"
MESSAGE = "canaryMessage0b6e"
POSTCODE = "ZZ97 3QX"
STREET = "canaryStreet18f3"
PLACE = "51.9182736"
# A name as a programmer might give one, for it to stand where a field's or a member's name is due.
PERSON = "canaryPerson4d1c"
ERASED = "canaryerased19@person.example"
CORRECTED = "canarycorrected8b@person.example"
RECIPIENT = "canaryagent3c@agency.example"
PERSONAL: Final = (
    EMAIL,
    RECIPIENT,
    PHONE,
    MESSAGE,
    POSTCODE,
    STREET,
    PLACE,
    PERSON,
    ERASED,
    CORRECTED,
)

# Where leads belong: as they came, and in the published file in tables of leads.
PLACES: Final = (
    r"data/(raw|restricted|tables|quarantine)/.*|"
    r"data/(leads\.duckdb|\.versions/\S+)"
    r"( (applicant_leads|appraisal_leads|applicant_viewing_times|applicant_listing_images))?"
)

SAID: Final = f"{MESSAGE} {EMAIL} {PHONE} {POSTCODE} {PERSON}"

# Commands that only look, in one process, as each takes seconds to start.
LOOKS: Final = f"""
from contextlib import suppress
from leads_pipeline.cli import main
for command in (
    "privacy log", "privacy find --email {EMAIL}", "status", "status --json", "doctor", "coverage --days 3",
    "metrics", "verify", "alert --test", "settings", "findings",
):
    with suppress(SystemExit):
        main(command.split())
"""

# The sensor that sends alerts.
ALERTING: Final = "alert"


# --- leads and errors that are full of canaries ---------------------------------------------------


def odd_leads(branch: str) -> list[Any]:
    """Good leads, values of no declared type, unknown members, unknown values, no id, and no lead
    at all.
    """
    contact = {"firstName": PERSON, "lastName": MESSAGE, "email": EMAIL, "phoneNumber": PHONE}
    address = {"line1": STREET, "line2": STREET, "line3": STREET, "postcode": POSTCODE}
    home = {"address": address, "latitude": float(PLACE), "longitude": float(PLACE)}
    good = {
        "createdAt": f"{DAY}T10:00:00Z",
        "contact": contact,
        "message": SAID,
        "recipientEmail": RECIPIENT,
    }
    return [
        {"id": f"{branch}-1", **good, "consumerPostcode": POSTCODE, "propertyDetails": home},
        {"id": f"{branch}-erased", "createdAt": f"{DAY}T10:00:00Z", "contact": {"email": ERASED}},
        {
            "id": f"{branch}-2",
            "createdAt": EMAIL,
            "isOverseas": PHONE,
            "contact": SAID,
            "unheardOf": {PHONE: EMAIL},
        },
        {"contact": contact, "propertyPreferences": SAID, "viewingTimes": SAID},
        SAID,
        # A person's name and address as names of fields, once and twice, at every depth, and as
        # members.
        {
            "id": f"{branch}-3",
            PERSON: 1,
            EMAIL: {PERSON: [{PERSON: 1}]},
            "twice": 0,
            "leadSource": PERSON,
            "intent": EMAIL,
            "urgency": PERSON,
            "consumerSituation": PERSON,
            "contact": {
                "email": EMAIL,
                PERSON: 1,
                "preferences": {EMAIL: 1, "method": PERSON, "twice": 0},
            },
            "viewingTimes": [{PERSON: 1, EMAIL: {PERSON: 1}}, {"twice": 0}],
            "searchCriteria": {"propertyType": PERSON, "priceFrequency": EMAIL},
            "propertyDetails": {
                "propertyType": PERSON,
                STREET: POSTCODE,
                "estimate": {"confidenceBand": PERSON},
            },
            "listingDetails": {
                "propertyType": PERSON,
                "images": [{EMAIL: 1}, {PERSON: PERSON, "twice": 0}],
            },
        },
    ]


def as_json(content: Any) -> bytes:
    return (
        json.dumps(content)
        .replace('"twice": 0', f'"{PERSON}": 1, "{PERSON}": 2, "{EMAIL}": 1')
        .encode()
    )


@dataclass
class Answers:
    """Branch 101 answers, 102 only at the third time, the others never; each refuses in its own
    way.
    """

    asked: dict[tuple[str, str], int] = field(default_factory=dict)

    def __call__(self, path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        branch = parameters.get("branch-id", "")
        times = self.asked[path, branch] = self.asked.get((path, branch), 0) + 1
        name = f"{path.strip('/').removesuffix('-leads')}s"
        match branch, times:
            case "103", _:
                errors = [{"code": EMAIL, "message": SAID, "links": [SAID]}]
                return 400, json.dumps({"errors": errors, "title": PHONE}).encode()
            case "104", _:
                return 404, json.dumps({EMAIL: SAID}).encode()
            case "105", _:
                return 200, as_json({PERSON: odd_leads(branch), EMAIL: SAID})
            case "102", 1:
                return 200, f'{{"{name}": [{{"id": "1", "message": "{SAID}"'.encode()
            case "102", 2:
                return 500, f"<html><title>{EMAIL}</title>{SAID}</html>".encode()
        # Unknown members beside the list.
        return 200, as_json({name: odd_leads(branch), PERSON: EMAIL, EMAIL: [SAID]})


# --- the search -----------------------------------------------------------------------------------


def holding(folder: Path, canaries: Sequence[str]) -> dict[str, set[str]]:
    """Where each canary is, as it is or in Base64 at any offset: files, and tables in files."""
    needles = {
        canary: [
            canary.encode(),
            *(base64.b64encode(b" " * shift + canary.encode())[4:-4] for shift in range(3)),
        ]
        for canary in canaries
    }
    found: dict[str, set[str]] = {canary: set() for canary in canaries}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        for table, content in [("", name.encode()), *(decoded(path) if path.is_file() else ())]:
            for canary in canaries:
                if any(needle in content for needle in needles[canary]):
                    found[canary].add(f"{name} {table}".strip())
    return found


# --- the promise ----------------------------------------------------------------------------------


@dataclass
class Workplace:
    """A folder in which commands run, each of whose output becomes a file."""

    folder: Path
    environment: dict[str, str]

    def run(self, *command: str, **more: str) -> None:
        """Run a command to its end, well or not."""
        ended = subprocess.run(
            command,
            env=self.environment | more,
            cwd=self.folder / "work",
            capture_output=True,
            check=False,
            timeout=300,
        )
        self._keep(ended.stdout + ended.stderr)

    def push(self, *deliveries: tuple[str, bytes]) -> list[int]:
        """Deliver to the receiver under a key; the status of each answer."""
        port = free_port()
        statuses = []
        log = self.folder / "output" / "receive"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [PROGRAM, "receive", "--port", str(port)],
                env=self.environment,
                cwd=self.folder / "work",
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_for(lambda: f":{port}" in log.read_text())
            for key, body in deliveries:
                headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
                answer = httpx.post(
                    f"http://127.0.0.1:{port}/leads",
                    content=body,
                    headers=headers,
                    timeout=PATIENCE_SECONDS,
                )
                statuses.append(answer.status_code)
                self._keep(answer.content)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_SECONDS)
        return statuses

    def _keep(self, output: bytes) -> None:
        folder = self.folder / "output"
        (folder / str(len(list(folder.iterdir())))).write_bytes(output)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Use everything. Where each canary is then, by file and by table in it."""
    folder = tmp_path_factory.mktemp("everything")
    for name in ("home", "tmp", "work", "output"):
        (folder / name).mkdir()
    with running_gpg() as gpg:
        (folder / "key.asc").write_bytes(gpg.make_key("agency", passphrase=PASSPHRASE))
        (folder / "message.asc").write_bytes(gpg.encrypt(SECRET.encode(), "agency"))
    answers = Answers()
    with (
        served(SmallPortal(answers, SECRET)) as portal,
        web_sink() as web,
        mail_server(auth_require_tls=False) as mail,
    ):
        workplace = Workplace(
            folder,
            {
                **variables(portal.base_url, secret=""),
                "LEADS_CLIENT_SECRET_PGP_FILE": str(folder / "message.asc"),
                "LEADS_PGP_PRIVATE_KEY_FILE": str(folder / "key.asc"),
                "LEADS_PGP_PASSPHRASE": PASSPHRASE,
                "LEADS_BRANCH_IDS": "101,102,103,104,105",
                "LEADS_START_DATE": str(DAY),
                "LEADS_DATA_DIR": str(folder / "data"),
                "LEADS_RECEIVE_KEY": RECEIVE_KEY,
                "LEADS_ALERT_WEBHOOK": f"{web.url}/{WEBHOOK}",
                "LEADS_ALERT_SLACK_WEBHOOK": f"{web.url}/{SLACK}",
                "LEADS_HEARTBEAT_URL": f"{web.url}/{HEARTBEAT}",
                "LEADS_ALERT_EMAIL": "agent@agency.example",
                "LEADS_SMTP_URL": f"smtp://agent:{MAIL_PASSWORD}@{mail.host}",
                "INVENTORY_BASE_URL": portal.base_url,
                "INVENTORY_CLIENT_ID": "agency",
                "INVENTORY_CLIENT_SECRET": INVENTORY_SECRET,
                "INVENTORY_AGENCY_REF": "agency",
                "INVENTORY_ADDRESSES": "York",
                "PATH": os.environ["PATH"],
                "HOME": str(folder / "home"),
                "TMPDIR": str(folder / "tmp"),
            },
        )
        mail.password = MAIL_PASSWORD.encode()
        use(workplace)
        web.status = 500
        wrong_password = f"smtp://agent:{WRONG_MAIL_PASSWORD}@{mail.host}"
        workplace.run(PROGRAM, "alert", "--test", LEADS_SMTP_URL=wrong_password)

        alerts = {
            "web": b"\n".join(body for _, _, body in web.requests),
            "mail": b"\n".join(one.content for one in mail.mails),
        }
        for way, content in alerts.items():
            assert b"branch-103" in content
            (folder / "output" / f"alerts-by-{way}").write_bytes(content)
        assert {SECRET, WRONG_SECRET, INVENTORY_SECRET} == {*portal.token_requests}
    assert any(b"HTTPS_PROXY" in path.read_bytes() for path in (folder / "output").iterdir())
    assert answers.asked["/applicant-leads", "102"] >= 3
    assert_canaries_went_through(folder / "data" / "leads.duckdb")

    return holding(folder, [*SECRETS, *PERSONAL])


def assert_canaries_went_through(file: Path) -> None:
    """The leads are where they belong, and the drift of their members is known."""
    emails = query(file, "select contact_email from applicant_leads")
    assert (EMAIL,) in emails
    assert (ERASED,) not in emails
    assert ("pushed",) in query(file, "select lead_id from applicant_leads")
    assert query(file, "select lead_id from applicant_leads where len(_problems) > 0")
    assert ("unheardOf",) in query(file, "select field from drift")


def test_a_secret_is_in_no_file_and_the_portals_token_in_the_folder_of_tokens_alone(
    searched: dict[str, set[str]],
) -> None:
    places_of_token = searched[TOKEN]
    others = {secret: searched[secret] for secret in SECRETS if secret != TOKEN}

    assert places_of_token
    assert all(place.startswith("data/.state/tokens/") for place in places_of_token)
    assert {secret: places for secret, places in others.items() if places} == {}


def test_personal_data_is_where_leads_belong_and_in_no_log_event_mart_report_metric_or_alert(
    searched: dict[str, set[str]],
) -> None:
    wrong = {
        canary: {place for place in searched[canary] if not re.fullmatch(PLACES, place)}
        for canary in PERSONAL
    }

    assert {canary: places for canary, places in wrong.items() if places} == {}
    assert any(place.startswith("data/restricted/") for place in searched[EMAIL])
    assert "data/leads.duckdb applicant_leads" in searched[CORRECTED]


def test_who_was_erased_is_in_no_file_but_an_answer_in_quarantine_which_the_erasure_names(
    searched: dict[str, set[str]],
) -> None:
    """An answer without a list of leads is kept there."""
    places = searched[ERASED]

    assert [place for place in places if not place.startswith("data/quarantine/")] == []


def use(here: Workplace) -> None:
    """Run what reads or writes leads or secrets, once well and once with each wrong secret."""
    backfill = (PROGRAM, "backfill", "--from", str(DAY), "--to", str(DAY))
    here.run(*backfill)  # branches 103 to 105 fail
    lead = {
        "id": "pushed",
        "createdAt": f"{DAY}T10:00:00Z",
        "contact": {"email": EMAIL},
        "message": SAID,
    }
    statuses = here.push(
        (RECEIVE_KEY, as_json({"applicants": [lead, *odd_leads("pushed")], PERSON: SAID})),
        (RECEIVE_KEY, f'{{"applicants": [{{"id": "{SAID}"'.encode()),
        (RECEIVE_KEY, as_json({PERSON: lead, EMAIL: SAID})),
        (RECEIVE_KEY, SAID.encode()),
        (WRONG_KEY, as_json({"applicants": [lead]})),
    )
    assert statuses[0] == 200
    assert statuses[-1] == 401
    # Without the branches that fail: a run waits for them again and again.
    here.run(*backfill, LEADS_BRANCH_IDS="101,102")
    here.run(PROGRAM, "privacy", "erase", "--email", ERASED, "--yes")
    here.run(PROGRAM, "privacy", "correct", "--lead", "applicant/pushed", "--new-email", CORRECTED)
    here.run(PROGRAM, "privacy", "restrict", "--lead", "applicant/101-1")
    here.run(PROGRAM, "privacy", "object", "--email", EMAIL)
    here.run(sys.executable, "-c", LOOKS)
    dagster = str(Path(sys.executable).with_name("dagster"))
    home = {"DAGSTER_HOME": str(here.folder / "data" / ".dagster")}
    here.run(dagster, "sensor", "preview", ALERTING, "-m", "leads_pipeline.definitions", **home)
    proxy = {"HTTPS_PROXY": f"http://agent:{PROXY_PASSWORD}/x@proxy.example:3128"}
    wrong = {"LEADS_CLIENT_SECRET_PGP_FILE": "", "LEADS_CLIENT_SECRET": WRONG_SECRET}
    for command in (backfill, (PROGRAM, "doctor")):
        here.run(*command, **wrong)
        here.run(*command, **proxy)
    here.run(*backfill, LEADS_PGP_PASSPHRASE=WRONG_PASSPHRASE)
