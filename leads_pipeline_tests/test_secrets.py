"""A secret that is revoked or replaced, and who may read the files of an installation."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.domain.contract import APPLICANT, LEAD_KINDS, Answer, ReceivedLead
from leads_pipeline.domain.window import Scope, ScopeKind, Window
from leads_pipeline.errors import CredentialsError, LeadsPipelineError
from leads_pipeline.orchestration.pulling import INVENTORY_JOB, PUBLISH_JOB
from leads_pipeline.orchestration.resources import LeadsService
from leads_pipeline.portal import LeadsClient
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.placement import Placement
from leads_pipeline.storage.raw import place_of
from leads_pipeline_tests.support.installation import installation
from leads_pipeline_tests.support.small_portal import CLIENT_ID, SmallPortal, served

OLD = "the-old-secret"


@pytest.fixture
def portal() -> Iterator[SmallPortal]:
    with served(SmallPortal(OLD)) as portal:
        yield portal


def service(portal: SmallPortal, folder: Path, **secret: Any) -> LeadsService:
    return LeadsService(
        data=DataFolder.at(folder / "data"),
        base_url=portal.base_url,
        auth_url=portal.base_url,
        client_id=CLIENT_ID,
        audience=portal.base_url,
        **secret,
    )


def windows(number: int) -> list[Window]:
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date()
    one = Window.of(yesterday, Scope(ScopeKind.ALL), ZoneInfo("UTC"))
    return [replace(one, scope=Scope(ScopeKind.BRANCH, str(branch))) for branch in range(number)]


def outcomes(client: LeadsClient, number: int = 1) -> list[Answer | LeadsPipelineError]:
    return [outcome for _, outcome in client.fetch_windows(APPLICANT, windows(number), lambda answer: answer)]


def test_a_revoked_pair_is_one_clear_error_and_one_token_request_for_200_windows(
    portal: SmallPortal, tmp_path: Path
) -> None:
    client, _ = service(portal, tmp_path, client_secret=OLD).connect()
    assert isinstance(outcomes(client)[0], Answer)
    portal.revoke()
    found = outcomes(client, 200)
    assert len(found) == 200
    for error in found:
        assert isinstance(error, CredentialsError)
        assert error.reason == "credentials"
        assert not error.is_transient
        assert "may have been revoked or replaced: ask the portal's technical contact for a new one" in str(error)
        assert OLD not in str(error)
    assert portal.token_requests == [OLD] * 2  # the one that was good, and one refusal
    assert len(portal.data_requests) <= 1 + 8  # those in flight together found out


def test_a_pair_that_was_never_good_asks_for_a_token_once_and_for_no_lead(portal: SmallPortal, tmp_path: Path) -> None:
    client, _ = service(portal, tmp_path, client_secret="never-good").connect()
    found = outcomes(client, 200)
    assert len(found) == 200
    assert {type(error) for error in found} == {CredentialsError}
    assert portal.token_requests == ["never-good"]
    assert portal.data_requests == []


@pytest.mark.slow
def test_the_next_run_takes_the_secret_that_replaces_a_revoked_one(portal: SmallPortal, tmp_path: Path) -> None:
    here = {**portal.environment(), "LEADS_BRANCH_IDS": "101", "LEADS_CLIENT_SECRET": ""}
    here |= {"LEADS_CLIENT_SECRET_FILE": str(tmp_path / "secret"), "LEADS_DATA_DIR": str(tmp_path / "data")}
    yesterday = str((datetime.now(UTC) - timedelta(days=1)).date())
    command = [str(Path(sys.executable).with_name("leads-pipeline")), "backfill", "--from", yesterday]
    codes = []
    for theirs, ours in ((OLD, OLD), ("the-new-one", OLD), ("the-new-one", "the-new-one")):
        if theirs != portal.secret:
            portal.revoke()
            portal.secret = theirs
        (tmp_path / "secret").write_text(ours)
        environment = {"PATH": os.defpath, "HOME": str(tmp_path), **here}
        ended = subprocess.run([*command, "--to", yesterday], env=environment, cwd=tmp_path, capture_output=True)
        codes.append(ended.returncode)
    assert codes == [0, 1, 0]


# --- modes -----------------------------------------------------------------------------------------------------------


def open_to_others(folder: Path) -> dict[str, str]:
    """What others than the owner may read, write or enter, with its mode. An empty folder doesn't count."""
    return {
        str(path.relative_to(folder)): f"{mode:o}"
        for path in sorted(folder.rglob("*"))
        if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077 and (path.is_file() or any(path.iterdir()))
    }


@pytest.fixture
def umask() -> Iterator[None]:
    """A shell that lets everybody read and write what is made in it, unless its maker says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.slow
def test_a_whole_installation_is_for_its_owner_alone(tmp_path: Path) -> None:
    with installation(tmp_path, first=4) as here:
        here.pull(here.keys([1, 2]), LEAD_KINDS)
        place = place_of(APPLICANT, Window.from_partition_key(here.key(2), here.settings.zone))
        next((here.data.folder / place.key).glob("*.parquet")).write_bytes(b"no Parquet")
        here.pull(here.keys([2]), LEAD_KINDS)
        assert here.execute(INVENTORY_JOB, tags={"dagster/partition": str(here.day(0))}).success
        pushed = ReceivedLead("a", '{"id":"a"}')
        place = Placement(here.settings.scopes, here.settings.zone).of(APPLICANT, pushed, here.now)
        here.data.raw.add(place, [pushed], here.now)
        assert here.execute(PUBLISH_JOB, tags={}).success

        folder = here.data.folder
        there = {path.name for path in folder.iterdir()}
        assert there >= {"raw", "quarantine", "reports", "leads.duckdb", "tables", ".state"}
        assert list((folder / ".state" / "tokens").glob("*.json"))
        # Analysts are let in by their group; data/README.md says how.
        of_analysts = (".versions", "leads.duckdb", "tables")
        found = open_to_others(folder)
        assert {path.split("/")[0] for path in found} == set(of_analysts)
        assert {mode for path, mode in found.items() if not (folder / path).is_symlink()} == {"750", "440"}
        home = Path(here.environment["DAGSTER_HOME"])
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
