"""A store that doesn't do what landing needs is refused, and nothing is kept there."""

import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from leads_pipeline.errors import StorageError
from leads_pipeline.features.bucket.proof import prove
from leads_pipeline.features.bucket.store import open_store
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.server import running
from leads_pipeline_tests.support.buckets import new_bucket
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.serving import QuietHandler, serving


class Replacing(FolderStore):
    def create_once(self, key: str, content: bytes) -> bool:
        self.create(key, content)
        return True


class Keeping(FolderStore):
    def delete(self, *_: Any) -> None:
        pass


def test_a_store_that_does_not_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"can't hold leads: it .*replaces an object"):
        prove(Replacing(tmp_path / "replacing"))
    with pytest.raises(StorageError, match=r"can't hold leads: it .*still has an object"):
        prove(Keeping(tmp_path / "keeping"))


class Careless(QuietHandler):
    """A server of buckets that ignores If-None-Match, as some do: all else goes to another one."""

    behind = ""

    def do_PUT(self) -> None:
        own = ("host", "if-none-match")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in own}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        address = f"{self.behind}{self.path}"
        answer = httpx.request(self.command, address, headers=headers, content=body)
        told = {name: answer.headers.get(name, "") for name in ("ETag", "Last-Modified")}
        self.answer(answer.status_code, answer.content, **told)

    do_GET = do_HEAD = do_POST = do_DELETE = do_PUT


def test_no_lead_goes_to_a_bucket_that_replaces_objects(
    moto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Careless, "behind", moto)
    with serving(Careless) as address, running(Config(branches=1, leads_per_day=2)) as portal:
        bucket = new_bucket(address)
        os.environ.update({**portal.environment(), "LEADS_DATA_DIR": bucket})

        result = run("backfill", "--last", "1d")

        assert result.exit_code
        assert "replaces an object although it is asked not to" in " ".join(result.output.split())
        assert open_store(bucket, plain_http=True).list("") == []
