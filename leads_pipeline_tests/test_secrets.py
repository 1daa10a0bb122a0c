"""What becomes of secrets: replaced and revoked ones."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pysequoia
import pytest

from leads_pipeline.client import LeadsClient
from leads_pipeline.contract import APPLICANT, Answer
from leads_pipeline.errors import CredentialsError, LeadsPipelineError
from leads_pipeline.resources import DataFolder, LeadsService
from leads_pipeline.window import Scope, ScopeKind, Window
from leads_pipeline_tests.small_portal import CLIENT_ID, SmallPortal, served

OLD, NEW = "the-old-secret", "the-new-one"

# Puts a secret where the pipeline reads it.
Deliver = Callable[[str], None]


@pytest.fixture
def portal() -> Iterator[SmallPortal]:
    with served(SmallPortal(OLD)) as portal:
        yield portal


@pytest.fixture(params=["file", "renamed file", "PGP message"])
def delivered(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Deliver, dict[str, str]]:
    """How a secret is delivered, and the configuration that finds it."""
    path = tmp_path / "secret"
    if request.param == "file":

        def write(secret: str) -> None:
            path.write_text(secret)

        return write, {"client_secret_file": str(path)}
    if request.param == "renamed file":  # as container platforms replace a mounted secret

        def replace_file(secret: str) -> None:
            beside = tmp_path / "beside"
            beside.write_text(secret)
            beside.replace(path)

        return replace_file, {"client_secret_file": str(path)}
    key = pysequoia.Tsk.generate("agency")
    (tmp_path / "key.asc").write_text(str(key))
    recipient = key.extract_certificate()

    def encrypt(secret: str) -> None:
        path.write_bytes(pysequoia.encrypt(recipients=[recipient], bytes=secret.encode()))

    return encrypt, {"client_secret_pgp_file": str(path), "pgp_private_key_file": str(tmp_path / "key.asc")}


def service(portal: SmallPortal, folder: Path, **secret: Any) -> LeadsService:
    return LeadsService(
        data=DataFolder(path=str(folder / "data")),
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
    return [outcome for _, outcome in client.fetch_windows(APPLICANT, windows(number))]


def test_a_replaced_secret_takes_effect_at_the_next_request(
    portal: SmallPortal, tmp_path: Path, delivered: tuple[Deliver, dict[str, str]]
) -> None:
    deliver, configuration = delivered
    deliver(OLD)
    client, _ = service(portal, tmp_path, **configuration).connect()
    assert all(isinstance(outcome, Answer) for outcome in outcomes(client, 3))
    portal.secret = NEW
    deliver(NEW)
    assert all(isinstance(outcome, Answer) for outcome in outcomes(client, 3))
    # No request was tried with the old token, although it had an hour to live.
    assert portal.data_requests == ["token-1"] * 3 + ["token-2"] * 3
    assert portal.token_requests == [OLD, NEW]


def test_another_process_takes_the_replaced_secrets_token_from_the_store(
    portal: SmallPortal, tmp_path: Path, delivered: tuple[Deliver, dict[str, str]]
) -> None:
    deliver, configuration = delivered
    for secret in (OLD, NEW):
        portal.secret = secret
        deliver(secret)
        for _ in range(2):  # each with no memory of the other, as a run's process
            client, _ = service(portal, tmp_path, **configuration).connect()
            assert isinstance(outcomes(client)[0], Answer)
    assert portal.token_requests == [OLD, NEW]
    assert portal.data_requests == ["token-1"] * 2 + ["token-2"] * 2


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


def test_the_pair_that_replaces_a_revoked_one_works_without_a_restart(portal: SmallPortal, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(OLD)
    client, _ = service(portal, tmp_path, client_secret_file=str(path)).connect()
    assert isinstance(outcomes(client)[0], Answer)
    portal.revoke()
    assert all(isinstance(error, CredentialsError) for error in outcomes(client, 5))
    portal.secret = NEW
    assert all(isinstance(error, CredentialsError) for error in outcomes(client, 5))
    path.write_text(NEW)
    assert all(isinstance(outcome, Answer) for outcome in outcomes(client, 5))
    assert portal.token_requests == [OLD, OLD, NEW]
