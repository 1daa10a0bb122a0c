"""What `serve` and `dev` give to the processes that they start."""

import os
from pathlib import Path

from leads_pipeline.features.service.processes import runtime_folder, whole_paths
from leads_pipeline.settings import Settings


def test_a_process_that_works_elsewhere_gets_whole_paths(tmp_path: Path) -> None:
    relative = {
        "LEADS_PRIVACY_DIR": "list",
        "LEADS_BRANCHES_FILE": "names.csv",
        "LEADS_RECEIVE_KEY_FILE": "key",
    }
    found = whole_paths(Settings.from_variables({**relative, "LEADS_TIMEZONE": "UTC"}))
    expected = {
        "LEADS_DATA_DIR": tmp_path / "data",
        **{name: tmp_path / value for name, value in relative.items()},
    }
    assert found == {name: str(path) for name, path in expected.items()}
    of_a_store = Settings.from_variables({"LEADS_DATA_DIR": "s3://leads", "LEADS_WORK_DIR": "copy"})
    assert whole_paths(of_a_store) == {"LEADS_WORK_DIR": str(tmp_path / "copy")}


def test_a_folder_of_systemd_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    os.environ["RUNTIME_DIRECTORY"] = str(tmp_path / "gone")

    with runtime_folder(tmp_path) as folder:
        assert folder.is_dir()
