"""The weekly mail: who gets it, when, and once; what a mail program shows."""

import email.parser
import email.policy
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from dagster import build_sensor_context

from leads_pipeline.cli import main
from leads_pipeline.errors import SettingsError
from leads_pipeline.features.report.mailing import Sent, send_due, send_now
from leads_pipeline.features.report.sensor import mail_sensor, needed
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finding, all_finders, find
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.house import LONDON, House
from leads_pipeline_tests.support.newcomer import wait_for
from leads_pipeline_tests.support.people import lead
from leads_pipeline_tests.support.sinks import MailSink, mail_server

# The Monday after the week of the leads, at 07:00 in London.
MONDAY = datetime(2026, 11, 23, 7, tzinfo=LONDON)
SUNDAY = date(2026, 11, 22)
BOSS = "boss@agency.example"
YORK = "york@agency.example"
LEEDS = "leeds@agency.example"
NAMES = "id,name\n101,York & Sons\n102,Leeds\n"


@pytest.fixture
def server() -> Iterator[MailSink]:
    with mail_server() as sink:
        yield sink


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Two branches with a week that has landed, of one lead a day at York."""
    house = House(tmp_path_factory.mktemp("week") / "data")
    house.first_day = SUNDAY - timedelta(days=6)
    house.names = NAMES
    house.now = datetime(2026, 11, 23, 2, tzinfo=UTC)
    for number in range(7):
        day = house.first_day + timedelta(days=number)
        jane = lead(f"{day}", email="jane@people.example", createdAt=f"{day}T10:00:00Z")
        house.land("applicant", [jane], day)
        house.land("appraisal", [], day)
        house.land("applicant", [], day, "branch-102")
        house.land("appraisal", [], day, "branch-102")
    house.publish()
    return house


class Office:
    """An installation that mails the report."""

    def __init__(self, house: House, server: MailSink, folder: Path, recipients: str) -> None:
        self.house = house
        self.server = server
        self.variables = {
            "LEADS_DATA_DIR": str(house.folder),
            "LEADS_TIMEZONE": "Europe/London",
            "LEADS_BRANCHES_FILE": str(folder / "names.csv"),
            "LEADS_REPORT_MAIL": recipients,
            "LEADS_SMTP_URL": f"smtp://{server.host}",
        }
        (folder / "names.csv").write_text(NAMES)

    @property
    def settings(self) -> Settings:
        return Settings.from_variables(self.variables)

    def tick(self, now: datetime) -> Sent:
        """Do what the sensor does at that moment."""
        return send_due(self.settings, self.house.data, now)

    def findings(self, now: datetime) -> list[Finding]:
        return find(Facts(self.settings, self.house.data, now), [all_finders()["report-mail"]])

    @property
    def mailed(self) -> list[str]:
        """The recipients of all mails so far. Each mail has one."""
        return [recipient for mail in self.server.mails for recipient in mail.rcpt_tos]

    @property
    def mails(self) -> list[EmailMessage]:
        parser = email.parser.BytesParser(policy=email.policy.default)
        return [parser.parsebytes(mail.content) for mail in self.server.mails]


@pytest.fixture
def office(week: House, server: MailSink, tmp_path: Path) -> Office:
    return Office(week.copied(tmp_path / "data"), server, tmp_path, f"{BOSS}, {YORK}")


# --- when -----------------------------------------------------------------------------------------


def test_each_recipient_gets_one_mail_on_monday_at_seven(office: Office) -> None:
    assert office.tick(MONDAY - timedelta(minutes=1)).waits == "The mail is due on Monday at 07:00."
    assert office.tick(MONDAY).count == 2
    for minutes in (5, 60, 24 * 60, 2 * 24 * 60):
        assert office.tick(MONDAY + timedelta(minutes=minutes)).count == 0

    assert office.mailed == [BOSS, YORK]
    assert {mail["To"] for mail in office.mails} == {BOSS, YORK}
    assert {mail["Subject"] for mail in office.mails} == {"Leads, 16 to 22 November 2026"}


def test_a_missed_monday_is_made_up_for_until_wednesday(office: Office) -> None:
    on_wednesday = MONDAY + timedelta(days=2)

    assert office.tick(on_wednesday + timedelta(days=1)).count == 0
    assert office.tick(on_wednesday).count == 2


def test_the_next_week_is_mailed_again(office: Office) -> None:
    office.tick(MONDAY)
    office.house.now = (MONDAY + timedelta(days=7)).astimezone(UTC)
    office.house.publish()

    assert office.tick(MONDAY + timedelta(days=7, hours=6)).count == 2
    assert {mail["Subject"] for mail in office.mails[2:]} == {"Leads, 23 to 29 November 2026"}


def test_the_mail_waits_for_days_that_have_not_landed_until_noon(office: Office) -> None:
    house = office.house
    house.scopes = (*house.scopes, "branch-103")
    house.now = MONDAY.astimezone(UTC)
    house.publish()

    assert "The mail waits for them until noon." in str(office.tick(MONDAY).waits)
    assert office.tick(MONDAY + timedelta(hours=5)).count == 2
    assert "some days have not landed." in text_of(office.mails[0], "html")


# --- once, over failures and kills ----------------------------------------------------------------


def test_a_process_that_is_killed_while_it_sends_has_sent_nothing_twice(office: Office) -> None:
    office.server.delay_seconds = 30
    code = (
        "import os; from datetime import datetime; from leads_pipeline.settings import Settings; "
        "from leads_pipeline.raw.data_folder import DataFolder; from "
        "leads_pipeline.features.report.mailing import send_due; settings = "
        "Settings.from_variables(os.environ); send_due(settings, DataFolder.of(settings), "
        f"datetime.fromisoformat('{MONDAY.isoformat()}'))"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env={**os.environ, **office.variables}) as process:
        wait_for(lambda: office.mailed != [])
        process.kill()
    office.server.delay_seconds = 0

    assert office.tick(MONDAY + timedelta(minutes=5)).count == 1
    assert office.mailed == [BOSS, YORK]


def test_who_could_not_be_reached_gets_it_within_the_hour_and_the_others_no_second_one(
    office: Office,
) -> None:
    office.server.answers = {BOSS: "451 greylisted"}

    assert office.tick(MONDAY).count == 1
    [finding] = office.findings(MONDAY)
    assert "The weekly report wasn't sent to everybody." in finding.message

    office.server.answers = {}
    assert office.tick(MONDAY + timedelta(minutes=55)).count == 0
    assert office.tick(MONDAY + timedelta(hours=1)).count == 1

    assert office.mailed == [YORK, BOSS]
    assert office.findings(MONDAY + timedelta(hours=1)) == []


def test_a_mail_that_the_server_took_is_sent_once_whatever_it_answers_to_quit(
    office: Office,
) -> None:
    office.server.answers = {"QUIT": "421 too many mails"}

    assert office.tick(MONDAY) == Sent(2)
    for hours in (1, 2, 24):
        office.tick(MONDAY + timedelta(hours=hours))
    assert office.mailed == [BOSS, YORK]


def test_a_refused_recipient_is_named_without_the_address(office: Office) -> None:
    office.server.answers = {YORK: "550 no such user"}
    office.tick(MONDAY)

    [finding] = office.findings(MONDAY)
    assert "refuses messages for address 2 (550)" in finding.message
    written = (office.house.folder / ".state" / "report_mail.json").read_text()
    assert "agency.example" not in finding.message + written


# --- to whom --------------------------------------------------------------------------------------


def test_a_file_gives_each_recipient_a_branch(
    week: House, server: MailSink, tmp_path: Path
) -> None:
    file = tmp_path / "report.csv"
    file.write_text(
        f'email,branch\n{BOSS},\n{YORK},"York & Sons"\n{LEEDS},102\n{LEEDS},branch-102\n\n'
    )
    office = Office(week.copied(tmp_path / "data"), server, tmp_path, str(file))

    office.tick(MONDAY)

    of_boss, of_york, of_leeds = office.mails
    assert "York &amp; Sons" in text_of(of_boss, "html")
    assert of_york["Subject"] == "Leads, 16 to 22 November 2026: York & Sons"
    assert "York" not in text_of(of_leeds, "html") + attached(of_leeds) + text_of(of_leeds, "plain")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("mail,branch\na@b.org,\n", "has no column email"),
        ("email,branch\na@b.org,the south\n", "has a branch in row 2 that isn't known"),
    ],
)
def test_a_wrong_file_is_a_finding_without_an_address(
    office: Office, tmp_path: Path, content: str, told: str
) -> None:
    file = tmp_path / "report.csv"
    file.write_text(content)
    office.variables["LEADS_REPORT_MAIL"] = str(file)

    with pytest.raises(SettingsError):
        office.tick(MONDAY)
    [finding] = office.findings(MONDAY)
    assert f"The file of LEADS_REPORT_MAIL {told}" in finding.message
    assert "a@b.org" not in finding.message


# --- what it says ---------------------------------------------------------------------------------


def text_of(mail: EmailMessage, kind: str) -> str:
    body = mail.get_body((kind,))
    assert body
    return str(body.get_content())


def attached(mail: EmailMessage) -> str:
    [page] = mail.iter_attachments()
    assert page.get_filename() == "leads-2026-11-22.html"
    return str(page.get_content())


def test_the_mail_says_the_same_in_plain_text_and_has_the_page_attached(office: Office) -> None:
    send_now(office.settings, office.house.data, MONDAY)

    plain = text_of(office.mails[0], "plain")
    assert "applicant leads: 7" in plain
    assert "1. York & Sons: 7" in plain
    assert "<h1>Leads, 16 to 22 November 2026</h1>" in attached(office.mails[0])


def test_no_part_of_the_mail_holds_a_person_or_another_recipient(office: Office) -> None:
    send_now(office.settings, office.house.data, MONDAY)

    for mail, other in zip(office.mails, (YORK, BOSS), strict=True):
        whole = text_of(mail, "html") + text_of(mail, "plain") + attached(mail)
        assert "jane" not in whole.lower()
        assert other not in str(mail)


# --- by hand --------------------------------------------------------------------------------------


def report(office: Office, *arguments: str) -> Result:
    return CliRunner().invoke(
        main, ["report", *arguments], env=office.variables, catch_exceptions=False
    )


def test_the_command_writes_the_page_and_mails_it_at_any_time_and_again(office: Office) -> None:
    assert report(office).exit_code == 0
    assert (office.house.folder / "reports" / "leads.html").exists()
    assert office.mailed == []

    for _ in range(2):
        assert report(office, "--mail").output.endswith("Sent 2 mails.\n")
    assert office.mailed == [BOSS, YORK] * 2


# --- the sensor -----------------------------------------------------------------------------------


def test_the_sensor_sends_in_its_tick_and_is_needed_if_somebody_is_to_get_it(
    office: Office,
) -> None:
    def tick(now: datetime) -> str:
        sensor = mail_sensor(office.settings, clock=lambda: now)
        context = build_sensor_context(resources={"data": office.house.data})
        return str(sensor.evaluate_tick(context).skip_message)

    assert tick(MONDAY - timedelta(minutes=1)) == "The mail is due on Monday at 07:00."
    assert tick(MONDAY) == "Sent 2 mails."
    assert office.mailed == [BOSS, YORK]
    assert needed(office.settings) == ["mail_report"]
    assert needed(Settings.from_variables({})) == []
