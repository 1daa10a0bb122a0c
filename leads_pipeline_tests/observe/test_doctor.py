import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from click.testing import CliRunner, Result

from leads_pipeline.cli import main
from leads_pipeline.observe.doctor import examine_env_file, services
from leads_pipeline.observe.doctor.findings import Warned
from leads_pipeline.observe.doctor.folder import _store
from leads_pipeline.orchestration.home import dagster_home
from leads_pipeline.portal.http import server_time
from leads_pipeline.settings import OURS, Settings
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.server import RunningSimulator, running
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.store import FolderStore
from leads_pipeline_tests.support.gpg import needs_gpg, running_gpg
from leads_pipeline_tests.support.people import listed
from leads_pipeline_tests.support.small_portal import SmallPortal, served

# Dagster calls what it has deprecated itself.
pytestmark = pytest.mark.filterwarnings(r"ignore:InitResourceContext\.dagster_run:DeprecationWarning")

UNUSED = "http://127.0.0.1:9"  # the discard port: nothing listens there


@pytest.fixture(scope="module")
def simulator() -> Iterator[RunningSimulator]:
    with running(Config(branches=3, leads_per_day=2)) as simulator:
        yield simulator


@pytest.fixture
def variables(simulator: RunningSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)  # away from the developer's own .env
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return {
        **simulator.environment(),
        "LEADS_DATA_DIR": str(folder),
        "LEADS_KEEP_PERSONAL_DAYS": "365",
    }


def call(variables: Mapping[str, str], *options: str, **changes: str | None) -> Result:
    foreign = dict.fromkeys(name for name in os.environ if name.startswith(OURS))  # the seeds of these tests, for one
    return CliRunner().invoke(main, ["doctor", *options], env={**foreign, **variables, **changes}, color=False)


@dataclass(frozen=True)
class Findings:
    """Lights and messages of the doctor, by check."""

    lights: dict[str, str]
    messages: dict[str, str]
    exit_code: int

    @property
    def not_green(self) -> dict[str, str]:
        return {check: light for check, light in self.lights.items() if light != "green"}


def found(variables: Mapping[str, str], **changes: str | None) -> Findings:
    result = call(variables, "--json", **changes)
    findings = json.loads(result.stdout)["findings"]
    lights = {finding["check"]: finding["light"] for finding in findings}
    assert len(lights) == len(findings)
    return Findings(lights, {finding["check"]: finding["message"] for finding in findings}, result.exit_code)


def test_a_proxy_that_cannot_be_used_is_told_without_its_password(variables: dict[str, str]) -> None:
    result = call(variables, HTTPS_PROXY="http://agent:hunter2/x@proxy.example:3128")
    assert result.exit_code == 1
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Check the address in the settings and the proxy" in " ".join(result.output.split())
    assert "hunter2" not in result.output


def test_all_is_green_where_all_is_well(variables: dict[str, str]) -> None:
    result = call(variables)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split(":")[0] for line in lines if not line.startswith("green ")] == []
    assert [line.split(maxsplit=1)[1].split(":")[0] for line in lines] == [
        *("variables", "settings", "secret", "clock", "token", "applicant leads", "appraisal leads"),
        *("inventory token", "inventory", "data folder", "free space", "backup", "one file system"),
        *("file modes", "whole files", "suppression list", "retention", "portal of the data", "versions"),
        "Dagster's home",
    ]


def test_delta_tables_want_their_extra(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(variables, LEADS_TABLES="delta").lights["Delta tables"] == "green"

    monkeypatch.setitem(sys.modules, "deltalake", None)
    told = found(variables, LEADS_TABLES="delta")
    assert (told.lights["Delta tables"], told.exit_code) == ("red", 1)
    assert "leads-pipeline[delta]" in told.messages["Delta tables"]


def test_json_says_the_same_as_the_lines(variables: dict[str, str]) -> None:
    call(variables)  # so that both find a token
    lines, document = call(variables, LEADS_BRANCH_IDS="999"), call(variables, "--json", LEADS_BRANCH_IDS="999")
    found = json.loads(document.stdout)
    assert found["is_well"] is False
    assert lines.exit_code == document.exit_code == 1
    checks = [(finding["light"], finding["check"]) for finding in found["findings"]]
    assert checks == [(line.split()[0], line[7:].split(":")[0]) for line in lines.stdout.splitlines()]


# Tokens have nowhere to be kept then.
RED_LEADS = {"applicant leads": "red", "appraisal leads": "red"}
# What isn't tried then is told as well.
NO_TOKEN = {"token": "red", "applicant leads": "yellow", "appraisal leads": "yellow"}
NO_SECRET = {**NO_TOKEN, "secret": "red", "token": "yellow"}
NO_INVENTORY = {"inventory token": "red", "inventory": "yellow"}
NOWHERE = {**NO_TOKEN, **NO_INVENTORY, "data folder": "red"}


@pytest.mark.parametrize(
    ("changes", "expected", "check", "words"),
    [
        ({"LEADS_BASE_URL": "portal"}, {"settings": "red"}, "settings", "LEADS_BASE_URL is not an address"),
        ({"LEADS_BASE_URL": "http://a.example"}, {"settings": "red"}, "settings", "Write https://"),
        ({"LEADS_CLIENT_ID": None}, {"settings": "red", **NO_TOKEN}, "settings", "LEADS_CLIENT_ID: not set"),
        ({"LEADS_BRANCH_IDS": ""}, {"settings": "red"}, "settings", "LEADS_BRANCH_IDS: not set"),
        ({"LEADS_CLIENT_SECRET": ""}, NO_SECRET, "secret", "LEADS_CLIENT_SECRET is not set"),
        ({"LEADS_CLIENT_SECRET": ""}, NO_SECRET, "token", "Not tried, as there is no secret."),
        ({"LEADS_CLIENT_SECRET_FILE": "/nowhere"}, {"settings": "red"}, "settings", "mean the same. Keep one"),
        ({"LEADS_CLIENT_SECRET": "wrong"}, NO_TOKEN, "token", "ask the portal's technical contact"),
        ({"LEADS_CLIENT_SECRET": "wrong"}, NO_TOKEN, "applicant leads", "Not tried, as there is no token."),
        ({"LEADS_AUTH_URL": UNUSED}, NO_TOKEN, "token", "found no connection"),
        ({"LEADS_BASE_URL": UNUSED, "LEADS_AUDIENCE": "x"}, {"clock": "red", **NO_TOKEN}, "clock", "refused"),
        ({"LEADS_BRANCH_ID": "1"}, {"variables": "red"}, "variables", "did you mean LEADS_BRANCH_IDS?"),
        ({"INVENTORY_QQQ": "1"}, {"variables": "red"}, "variables", "INVENTORY_QQQ isn't known"),
        ({"LEADS_BRANCH_IDS": "101,999,998"}, RED_LEADS, "appraisal leads", "2 of 3 scopes (branch-998, branch-999)."),
        ({"LEADS_BRANCH_IDS": "999"}, RED_LEADS, "applicant leads", "is an internal id"),
        ({"INVENTORY_CLIENT_SECRET": "wrong"}, NO_INVENTORY, "inventory token", "401"),
        ({"INVENTORY_CLIENT_SECRET": "wrong"}, NO_INVENTORY, "inventory", "Not tried, as there is no token."),
        ({"INVENTORY_AGENCY_REF": "wrong"}, {"inventory": "red"}, "inventory", "INVENTORY_AGENCY_REF"),
        ({"INVENTORY_AGENCY_REF": ""}, {"inventory": "red"}, "inventory", "INVENTORY_AGENCY_REF is not set"),
        ({"INVENTORY_ADDRESSES": ""}, {"inventory": "yellow"}, "inventory", "INVENTORY_ADDRESSES names no place"),
        ({"INVENTORY_BASE_URL": ""}, {}, "inventory", "Not set up"),
        (
            {"LEADS_BRANCHES_FILE": "/nowhere.csv"},
            {"names of branches": "red"},
            "names of branches",
            "/nowhere.csv can't be read: No such file",
        ),
        ({"LEADS_DATA_DIR": "/proc/leads"}, NOWHERE, "data folder", "set LEADS_DATA_DIR"),
    ],
)
def test_what_is_wrong_is_found_and_what_to_do_is_said(
    variables: dict[str, str], changes: dict[str, str | None], expected: dict[str, str], check: str, words: str
) -> None:
    findings = found(variables, **changes)
    assert findings.not_green == expected
    assert words in findings.messages[check]
    assert findings.exit_code == ("red" in expected.values())


@pytest.mark.parametrize(
    ("secret", "light", "words"),
    [
        ("made\u00a0up", "red", "holds a special space, such as a non-breaking one, at position 5"),
        ("\u201cmade-up\u201d", "red", "holds a typographic quotation mark at position 1"),
        ("made-\u00fcp", "red", "holds a character outside ASCII at position 6"),
        ('"made-up"', "yellow", "begins or ends with a quotation mark. Was it pasted with it?"),
        ("made-up ", "yellow", "begins or ends with a blank. Was it pasted with it?"),
    ],
)
def test_a_secret_that_was_pasted_with_more_is_told_and_never_shown(
    variables: dict[str, str], secret: str, light: str, words: str
) -> None:
    findings = found(variables, LEADS_CLIENT_SECRET=secret)
    assert findings.lights["secret"] == light
    assert words in findings.messages["secret"]
    assert not any(secret.strip() in message for message in findings.messages.values())


def test_a_client_id_that_was_pasted_with_quotes_is_told(variables: dict[str, str]) -> None:
    findings = found(variables, LEADS_CLIENT_ID="'made-up'")
    assert findings.lights["secret"] == "yellow"
    assert "LEADS_CLIENT_ID begins or ends with a quotation mark" in findings.messages["secret"]


def test_scopes_without_a_name_are_told(variables: dict[str, str], tmp_path: Path) -> None:
    names = tmp_path / "branches.csv"
    for content, light, words in (
        ("101,York\n", "yellow", "2 of 3 scopes have none in LEADS_BRANCHES_FILE: branch-102, branch-103."),
        ("101,York\n102,Leeds\n103,Hull\n", "green", "names all 3 scopes"),
    ):
        names.write_text(f"id,name\n{content}")
        findings = found(variables, LEADS_BRANCHES_FILE=str(names))
        assert findings.lights["names of branches"] == light
        assert words in findings.messages["names of branches"]


def test_each_scope_is_asked_for_once_with_each_lead_kind(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    with running(Config(branches=3, leads_per_day=2)) as simulator:
        organisation = simulator.organisation
        scopes = ["branch-102", "branch-101", f"brand-{organisation.branches[0].brand_id}"]
        variables = {**simulator.environment(), "LEADS_BRANCH_IDS": "", "LEADS_SCOPES": ",".join(scopes)}
        result = call(variables, LEADS_DATA_DIR=str(tmp_path / "data"))
        assert result.exit_code == 0, result.output
        asked = simulator.counters().windows
    assert {(kind, scope) for kind, scope, _ in asked} == {
        (kind, scope) for kind in ("applicant", "appraisal") for scope in scopes
    }
    assert set(asked.values()) == {1}
    for _, _, start in asked:
        age = datetime.now(UTC) - datetime.fromisoformat(str(start))
        assert timedelta(minutes=10) < age < timedelta(minutes=13)


@pytest.mark.parametrize(("status", "light"), [(429, "yellow"), (503, "red")])
def test_a_busy_service_is_no_fault_and_is_asked_once(tmp_path: Path, status: int, light: str) -> None:
    with served(SmallPortal("secret", lambda *_: (status, b""))) as portal:
        variables = {**portal.environment(), "LEADS_CLIENT_SECRET": "secret", "LEADS_BRANCH_IDS": "101"}
        findings = found(variables, LEADS_DATA_DIR=str(tmp_path))
    leads = {check for check, seen in findings.lights.items() if check.endswith(" leads") and seen == light}
    assert len(leads) == len([token for token in portal.data_requests if token]) == 2


def test_no_secret_and_no_token_is_printed(variables: dict[str, str], tmp_path: Path) -> None:
    wrong = "canary-wr0ng-secret"
    outputs = [
        call(variables, *options, **changes).output
        for options in ((), ("--json",))
        for changes in ({}, {"LEADS_CLIENT_SECRET": wrong}, {"LEADS_BRANCH_IDS": "999"}, {"LEADS_AUTH_URL": UNUSED})
    ]
    tokens = [json.loads(path.read_bytes())["access_token"] for path in (tmp_path / "data").rglob("tokens/*.json")]
    assert len(tokens) == 2
    hidden = [*tokens, wrong, variables["LEADS_CLIENT_SECRET"], variables["INVENTORY_CLIENT_SECRET"]]
    assert [secret for secret in hidden for output in outputs if secret in output] == []


@pytest.mark.parametrize(
    ("seconds", "light", "words"),
    [
        (0, "green", "Within 1 s"),
        (25, "green", "Within 2"),
        (-25, "green", "Within 2"),
        (60, "yellow", "s ahead of the service's"),
        (-60, "yellow", "s behind the service's"),
        (400, "red", "timedatectl"),
        (-400, "red", "timedatectl"),
    ],
)
def test_a_clock_that_is_off_is_found(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, seconds: int, light: str, words: str
) -> None:
    monkeypatch.setattr(services, "server_time", lambda _: datetime.now(UTC) - timedelta(seconds=seconds))
    findings = found(variables)
    assert findings.lights["clock"] == light
    assert words in findings.messages["clock"]


@pytest.mark.parametrize(
    ("header", "moment"),
    [
        ("Sat, 21 Nov 2026 00:30:00 GMT", datetime(2026, 11, 21, 0, 30, tzinfo=UTC)),
        ("Sat, 21 Nov 2026 01:30:00 +0100", datetime(2026, 11, 21, 0, 30, tzinfo=UTC)),
        ("Sat, 21 Nov 2026 00:30:00 -0000", datetime(2026, 11, 21, 0, 30, tzinfo=UTC)),
        *[(header, None) for header in ("", "now", "Sat, 99 Nov 2026 00:30:00 GMT", "1795000000", None)],
    ],
)
@pytest.mark.parametrize("status", [200, 302, 401, 500])
def test_the_services_clock_is_read_from_whatever_it_answers(
    header: str | None, moment: datetime | None, status: int
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert "authorization" not in request.headers
        headers = {"Location": "https://elsewhere.example", **({} if header is None else {"Date": header})}
        return httpx.Response(status, headers=headers)

    assert server_time("https://portal.example", transport=httpx.MockTransport(answer)) == moment


def test_a_service_without_a_clock_is_told(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "server_time", lambda _: None)
    assert found(variables).not_green == {"clock": "yellow"}


# --- the data folder --------------------------------------------------------------------------------------------------


def test_a_data_folder_that_is_not_there_yet_is_told(tmp_path: Path) -> None:
    wanted = tmp_path / "not" / "yet"
    findings = found({"LEADS_DATA_DIR": str(wanted)})
    assert findings.messages["data folder"] == f"{wanted} is made at the first run."
    assert findings.lights["data folder"] == "green"
    assert not wanted.parent.exists()


def test_another_portals_data_folder_is_found_and_not_claimed(variables: dict[str, str], tmp_path: Path) -> None:
    assert found(variables).messages["portal of the data"] == "No leads yet."
    data = DataFolder.at(tmp_path / "data")
    assert data.state.claimed_by() is None
    data.state.claim("portal.example")
    assert found(variables).not_green == {"portal of the data": "red"}
    assert "holds leads from portal.example" in found(variables).messages["portal of the data"]


def test_tokens_that_others_can_read_are_found(variables: dict[str, str], tmp_path: Path) -> None:
    assert found(variables).not_green == {}
    tokens = tmp_path / "data" / ".state" / "tokens"
    for path in tokens.glob("*.lock"):
        path.chmod(0o640)
    assert found(variables).not_green == {"file modes": "red"}
    assert f"chmod -R go= {tokens}" in found(variables).messages["file modes"]


def test_leads_that_others_can_read_are_found(variables: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data").chmod(0o755)
    assert found(variables).not_green == {}  # as git leaves it: .state, all that is in it, is closed
    (tmp_path / "data" / "raw").mkdir()
    (tmp_path / "data" / "raw").chmod(0o755)
    assert found(variables).not_green == {"file modes": "yellow"}
    assert "can read raw in" in found(variables).messages["file modes"]
    (tmp_path / "data").chmod(0o750)
    assert found(variables).not_green == {}


def test_an_env_file_that_others_can_read_is_found() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ".env"
        assert list(examine_env_file(path)) == []
        path.write_text("LEADS_CLIENT_SECRET=s\n")
        seen = []
        for folder_mode, file_mode in [(0o755, 0o644), (0o755, 0o640), (0o700, 0o644), (0o755, 0o600)]:
            path.parent.chmod(folder_mode)
            path.chmod(file_mode)
            seen += [(one.light, f"chmod 600 {path}" in one.message) for one in examine_env_file(path)]
    assert seen == [("yellow", True), *[("green", False)] * 3]


def test_a_folder_that_the_pipeline_makes_is_closed_to_others(variables: dict[str, str], tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folders = [
            tmp_path / "home first" / "made",
            tmp_path / "lock first" / "made",
            tmp_path / "token first" / "made",
        ]
        dagster_home(Settings.from_variables({"LEADS_DATA_DIR": str(folders[0])}))
        DataFolder.at(folders[1]).state.claim("portal.example")
        found(variables, LEADS_DATA_DIR=str(folders[2]))
    finally:
        os.umask(before)
    made = {path for folder in folders for path in (folder.parent, folder, *folder.glob(".*"))}
    assert len(made) == 9
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}


MEMORY = Path("/dev/shm")  # noqa: S108 - a file system of its own on every Linux


@pytest.mark.skipif(not MEMORY.is_dir(), reason="no second file system at hand")
def test_a_second_file_system_is_found(variables: dict[str, str], tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as elsewhere:
        if Path(elsewhere).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("no second file system at hand")
        (tmp_path / "data" / "raw").symlink_to(elsewhere)
        assert found(variables).not_green == {"one file system": "red"}
        assert found(variables).messages["one file system"].startswith("raw in ")


@pytest.mark.parametrize(("free", "light"), [(99_000_000, "red"), (500_000_000, "yellow"), (2_000_000_000, "green")])
def test_a_disk_that_is_nearly_full_is_found(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, free: int, light: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert found(variables).lights["free space"] == light


@pytest.mark.parametrize(("hours", "light"), [(47, "green"), (49, "red")])
def test_backups_that_are_no_longer_made_are_found(
    variables: dict[str, str], tmp_path: Path, hours: int, light: str
) -> None:
    DataFolder.at(tmp_path / "data").state.note_backup(datetime.now(UTC) - timedelta(hours=hours))
    assert found(variables).lights["backup"] == light


def test_a_suppression_list_belongs_apart_from_the_data_with_its_key(variables: dict[str, str], tmp_path: Path) -> None:
    inside, apart = tmp_path / "data" / "privacy", tmp_path / "list"
    listed(DataFolder.at(tmp_path / "data").gate.entries)
    assert found(variables).not_green == {"suppression list": "yellow"}
    inside.rename(apart)
    assert found(variables, LEADS_PRIVACY_DIR=str(apart)).not_green == {}
    assert found(variables).not_green == {"suppression list": "red"}
    (apart / "key").unlink()
    assert found(variables, LEADS_PRIVACY_DIR=str(apart)).not_green == {"suppression list": "red"}


def test_a_warehouse_that_does_not_open_is_found(variables: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data" / "leads.duckdb").write_bytes(b"no database" * 1000)
    assert found(variables).not_green == {"warehouse": "red"}


# --- the PGP message --------------------------------------------------------------------------------------------------


@needs_gpg
def test_a_secret_from_a_pgp_message_gets_a_token(variables: dict[str, str], tmp_path: Path) -> None:
    key, message = tmp_path / "key.asc", tmp_path / "message.asc"
    with running_gpg() as gpg:
        key.write_bytes(gpg.make_key("agency", passphrase="canary-passphrase"))
        message.write_bytes(gpg.encrypt(variables["LEADS_CLIENT_SECRET"].encode(), "agency"))
    key.chmod(0o600)
    changes: dict[str, str | None] = {
        "LEADS_CLIENT_SECRET": None,
        "LEADS_CLIENT_SECRET_PGP_FILE": str(message),
        "LEADS_PGP_PRIVATE_KEY_FILE": str(key),
        "LEADS_PGP_PASSPHRASE": "canary-passphrase",
    }
    assert found(variables, **changes).not_green == {}
    assert found(variables, **changes).messages["secret"] == f"Read from {message}."
    key.chmod(0o640)
    assert f"chmod 600 {key}" in found(variables, **changes).messages["secret"]
    assert found(variables, **changes).not_green == {"secret": "yellow"}
    changes["LEADS_PGP_PASSPHRASE"] = "canary-wrong"
    assert found(variables, **changes).not_green == NO_SECRET
    assert "canary" not in call(variables, **changes).output
    del changes["LEADS_PGP_PRIVATE_KEY_FILE"]
    assert "LEADS_PGP_PRIVATE_KEY_FILE is not set" in found(variables, **changes).messages["secret"]


def test_a_home_of_dagsters_without_our_limits_is_told(variables: dict[str, str], tmp_path: Path) -> None:
    home = tmp_path / "a home"
    home.mkdir()
    (home / "dagster.yaml").write_text("run_monitoring: {enabled: true}\n")
    bare = found(variables, DAGSTER_HOME=str(home))
    assert bare.not_green == {"Dagster's home": "yellow"}
    assert "lacks concurrency.pools.default_limit: 1. " in bare.messages["Dagster's home"]
    (home / "dagster.yaml").unlink()
    dagster_home(Settings.from_variables({"DAGSTER_HOME": str(home)}))
    assert found(variables, DAGSTER_HOME=str(home)).not_green == {}
    (home / "dagster.yaml").write_text("no such section: 1\n")
    assert found(variables, DAGSTER_HOME=str(home)).lights["Dagster's home"] == "red"


def test_a_store_in_the_data_folders_place_is_proved(variables: dict[str, str], tmp_path: Path) -> None:
    variables |= {"LEADS_DATA_DIR": (tmp_path / "store").as_uri(), "LEADS_WORK_DIR": str(tmp_path / "data")}
    (tmp_path / "data").mkdir(exist_ok=True)
    findings = found(variables)
    assert findings.lights["object store"] == "green"
    assert "creates a key once, lists it at once, and deletes it" in findings.messages["object store"]
    assert "has what the portal deletes" in findings.messages["backup"]
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "store").write_bytes(b"")
    findings = found(variables)
    assert findings.lights["object store"] == "red"
    assert "can't be written" in findings.messages["object store"]


def test_a_store_whose_clock_is_off_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(FolderStore, "modified_at", lambda *_: datetime.now(UTC) - timedelta(minutes=2))
    with pytest.raises(Warned, match="are 120 s apart"):
        _store(DataFolder.at(tmp_path / "data"), FolderStore(tmp_path / "store"))
