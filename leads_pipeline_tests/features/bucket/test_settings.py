"""Which stores LEADS_DATA_DIR may name, and how they are reached."""

from pathlib import Path

import pytest

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.bucket.settings import BucketSettings
from leads_pipeline.settings import Settings


def test_a_store_in_the_data_folders_place_leaves_a_folder_to_work_in() -> None:
    bucket = {"LEADS_DATA_DIR": "s3://my.leads-1/of=us/2/"}

    alone = Settings.from_variables(bucket)
    elsewhere = Settings.from_variables({**bucket, "LEADS_WORK_DIR": "~/leads"})

    assert alone.store == elsewhere.store == "s3://my.leads-1/of=us/2"
    assert alone.data_dir == Path.cwd() / "data"
    assert elsewhere.data_dir == Path("~/leads").expanduser()


@pytest.mark.parametrize(
    "value",
    ["s3://", "s3://A", "gs://leads", "file://host/x", "file:" + 4 * "/", "s3//leads/x"],
)
def test_what_is_no_store_is_refused(value: str) -> None:
    with pytest.raises(
        SettingsError,
        match=r"LEADS_DATA_DIR is neither a folder nor a store\. Write s3://bucket/prefix",
    ):
        Settings.from_variables({"LEADS_DATA_DIR": value})


def is_plain(**variables: str) -> bool:
    """Whether the bucket is reached by http://."""
    return Settings.from_variables(variables).of(BucketSettings).plain_http


def test_an_endpoint_without_https_is_for_this_machine_alone() -> None:
    bucket = {"LEADS_DATA_DIR": "s3://leads"}
    assert is_plain(**bucket, AWS_ENDPOINT_URL="http://127.0.0.1:9000")
    assert not is_plain(**bucket, AWS_ENDPOINT_URL="https://objects.example")
    with pytest.raises(SettingsError, match="AWS_ENDPOINT_URL begins with http://"):
        is_plain(**bucket, AWS_ENDPOINT_URL="http://objects.example")
    # Another tool's, if no bucket of ours is named.
    assert not is_plain(AWS_ENDPOINT_URL="http://objects.example")
