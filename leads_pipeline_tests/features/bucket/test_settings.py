"""Which stores LEADS_DATA_DIR may name, and how they are reached."""

from pathlib import Path

import pytest

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.bucket.settings import BucketSettings
from leads_pipeline.settings import Settings

# A folder that several machines mount: the scheme and three slashes.
MOUNTED = f"file:{'/' * 3}mnt/leads"


@pytest.mark.parametrize(
    ("value", "work_dir", "store", "folder"),
    [
        ("s3://leads", "", "s3://leads", Path.cwd() / "data"),
        ("s3://my.leads-1/of=us/2/", "/srv/leads", "s3://my.leads-1/of=us/2", Path("/srv/leads")),
        (MOUNTED, "~/leads", MOUNTED, Path("~/leads").expanduser()),
    ],
)
def test_a_store_in_the_data_folders_place_leaves_a_folder_to_work_in(
    value: str, work_dir: str, store: str, folder: Path
) -> None:
    found = Settings.from_variables({"LEADS_DATA_DIR": value, "LEADS_WORK_DIR": work_dir})
    assert (found.store, found.data_dir) == (store, folder)


@pytest.mark.parametrize(
    "value",
    [
        "s3://",
        "s3://A",
        "s3://ab",
        "s3://leads/a b",
        "gs://leads",
        "file://host/x",
        "s3:/leads/x",
        "s3//leads/x",
    ],
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
