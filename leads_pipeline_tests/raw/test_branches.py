"""LEADS_BRANCHES_FILE: what it may hold, and what is said of one that is wrong."""

from pathlib import Path

import pytest

from leads_pipeline.errors import SettingsError
from leads_pipeline.raw.branches import Branches, read_branches


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "branches.csv"


def test_names_and_further_columns_are_read_by_scope(file: Path) -> None:
    file.write_text(
        'id,name,region,Line manager\n101,York,North,Ann\nbranch-102,"Leeds,  Headingley",,\ncompany-7,All\n'
    )
    assert read_branches(file) == Branches(
        {"branch-101": "York", "branch-102": "Leeds, Headingley", "company-7": "All"},
        ("region", "Line manager"),
        {"branch-101": ("North", "Ann"), "branch-102": (None, None), "company-7": (None, None)},
    )


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfid,name\r\n101,Y\xc3\xb6rk\r\n",  # as Excel writes it
        b'NAME, Id \n"Y\xc3\xb6rk", 101 \n\n,\n',
    ],
)
def test_the_same_names_are_written_in_many_ways(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert read_branches(file).names == {"branch-101": "Yörk"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"id,branch\n101,York\n", "has no column name. Its first row holds id, branch."),
        (b"id,name\n101,York\n\n101,Leeds\n", "has 101 a second time in row 4."),
        (b"id,name\n101,York\n102,York\n", "has the name York a second time in row 3."),
        (b"id,name\n101.0, \n", "has no name for 101.0 in row 2."),
        (b"id,name\n101,Leeds, Headingley\n", "has 3 values in row 2, for 2 columns."),
        (b"id,name\n101,Y\xf6rk\n", "isn't in UTF-8. In Excel, save it as CSV UTF-8."),
    ],
)
def test_what_is_wrong_is_told_with_its_place(file: Path, content: bytes, told: str) -> None:
    file.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        read_branches(file)
    assert str(caught.value).startswith(f"LEADS_BRANCHES_FILE: {file} {told}")
