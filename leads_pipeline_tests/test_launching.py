"""Runs in containers of their own: the choice, what dagster.yaml says of it, and what is started by it."""

import json
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import kubernetes.client
import pytest
import yaml
from dagster import DagsterInstance, DagsterRun
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.launcher import LaunchRunContext
from dagster._core.launcher.base import WorkerStatus
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin

from leads_pipeline import launching
from leads_pipeline.cli.serving import _programs
from leads_pipeline.definitions import PULL_JOB
from leads_pipeline.errors import SettingsError
from leads_pipeline.launching import COMMAND_LINE, IMAGE_VARIABLE, LAUNCHED_BY, launcher_section
from leads_pipeline.launching.docker import DockerLauncher
from leads_pipeline.launching.kubernetes import KubernetesLauncher
from leads_pipeline.runs import dagster_home
from leads_pipeline.settings import LAUNCHER_VARIABLE, POSTGRES_VARIABLE
from leads_pipeline_tests.pods import faults, strictly_valid

SECRET = "hidden-secret"
IMAGE = "registry.example/leads-pipeline:1"


def wanted(name: str) -> dict[str, str]:
    return {
        LAUNCHER_VARIABLE: name,
        POSTGRES_VARIABLE: f"postgresql://u:{SECRET}@db/dagster",
        IMAGE_VARIABLE: IMAGE,
    }


def written(name: str, folder: Path) -> dict[str, Any]:
    """The launcher's config in the dagster.yaml that the first start writes."""
    home = dagster_home(wanted(name), folder)
    text = (home / "dagster.yaml").read_text(encoding="utf-8")
    assert SECRET not in text
    whole = yaml.safe_load(text)
    assert whole["run_monitoring"]["start_timeout_seconds"] == 600
    assert whole["run_monitoring"]["max_runtime_seconds"] > 600
    assert whole["concurrency"]["pools"] == {"default_limit": 1, "granularity": "run"}
    return dict(whole["run_launcher"]["config"])


@pytest.mark.parametrize(
    ("name", "lacks", "told"),
    [
        ("swarm", None, "LEADS_RUN_LAUNCHER is 'swarm'. Write docker or kubernetes"),
        ("docker", POSTGRES_VARIABLE, "in sqlite, which containers can't share. Set LEADS_DAGSTER_POSTGRES_URL"),
        ("kubernetes", IMAGE_VARIABLE, "DAGSTER_CURRENT_IMAGE doesn't say from which image"),
        ("kubernetes", "package", r"dagster-k8s isn't installed\. .* leads-pipeline\[kubernetes\]"),
    ],
)
def test_a_choice_that_lacks_something_says_what(
    name: str, lacks: str | None, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def none(package: str) -> str:
        raise PackageNotFoundError(package)

    if lacks == "package":
        monkeypatch.setattr(launching, "version", none)
    environment = {variable: value for variable, value in wanted(name).items() if variable != lacks}
    with pytest.raises(SettingsError, match=told) as error:
        dagster_home(environment, tmp_path)
    assert SECRET not in str(error.value)
    assert not (tmp_path / ".dagster" / "dagster.yaml").exists()


def test_no_later_choice_is_ignored(tmp_path: Path) -> None:
    plain = {name: value for name, value in wanted("docker").items() if name != LAUNCHER_VARIABLE}
    in_docker, in_processes = tmp_path / "docker", tmp_path / "processes"
    assert dagster_home(wanted("docker"), in_docker) == dagster_home(wanted("docker"), in_docker)
    dagster_home(plain, in_processes)
    with pytest.raises(SettingsError, match=r"starts runs in another way\. Move that file away"):
        dagster_home(wanted("docker"), in_processes)
    with pytest.raises(SettingsError, match=r"starts runs in another way\. Move that file away"):
        dagster_home(wanted("kubernetes"), in_docker)
    with pytest.raises(SettingsError, match="starts runs in containers, and LEADS_RUN_LAUNCHER isn't set"):
        dagster_home(plain, in_docker)


def test_nothing_chosen_starts_processes() -> None:
    assert launcher_section({LAUNCHER_VARIABLE: " "}) == launcher_section({}) == ""


# --- which variables a run's container gets --------------------------------------------------------------------------


def context_of_the_code(folder: Path) -> str:
    [code] = [list(one.command) for one in _programs(folder, "127.0.0.1", 3000, None, None) if one.is_shared]
    return code[code.index("--container-context") + 1] if "--container-context" in code else ""


def test_docker_gets_each_variable_of_ours_by_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**wanted("docker"), "LEADS_CLIENT_SECRET": SECRET, "HTTPS_PROXY": "http://proxy:1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LEADS_ALERT_WEBHOOK", "")
    text = context_of_the_code(tmp_path)
    assert SECRET not in text
    names = json.loads(text)["env_vars"]
    assert {LAUNCHER_VARIABLE, POSTGRES_VARIABLE, "LEADS_CLIENT_SECRET", "HTTPS_PROXY"} <= set(names)
    # Dagster would refuse to start a run for one that has no value.
    assert not {"LEADS_ALERT_WEBHOOK", "PATH"} & set(names)


def test_kubernetes_gets_no_variable_from_here_as_its_value_would_stand_in_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in wanted("kubernetes").items():
        monkeypatch.setenv(name, value)
    assert context_of_the_code(tmp_path) == ""


# --- what is started -------------------------------------------------------------------------------------------------


def run_of(instance: DagsterInstance, **tags: str) -> DagsterRun:
    """A pull that the code location of an image offers."""
    pointer = ModuleCodePointer("leads_pipeline.definitions", "defs", None)
    repository = RepositoryPythonOrigin(sys.executable, pointer, IMAGE, ["dagster"], None)
    run = DagsterRun(job_name=PULL_JOB, job_code_origin=JobPythonOrigin(PULL_JOB, repository), tags=tags)
    return instance.add_run(run)


class Cluster:
    """Takes jobs, as Kubernetes' API does."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []

    def create_namespaced_job(self, body: Any, namespace: str, **_: object) -> None:
        self.jobs.append(kubernetes.client.ApiClient().sanitize_for_serialization(body))
        assert self.jobs[-1]["metadata"].setdefault("namespace", namespace) == "leads-pipeline"


def test_a_job_of_kubernetes_has_no_rights_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {**written("kubernetes", tmp_path), "dagster_home": "/data/.dagster"}
    monkeypatch.setattr("dagster_k8s.launcher.load_kubernetes_config", lambda **_: None)
    monkeypatch.setenv("LEADS_CLIENT_SECRET", SECRET)
    cluster = Cluster()
    launcher = KubernetesLauncher(**config, k8s_client_batch_api=cluster)
    with DagsterInstance.local_temp(str(tmp_path)) as instance:
        launcher.register_instance(instance)
        run = run_of(instance)
        launcher.launch_run(LaunchRunContext(run, None))
        told = str([entry.message for entry in instance.all_logs(run.run_id)])
        tags = str(instance.get_run_by_id(run.run_id))
    [job] = cluster.jobs
    strictly_valid(job)
    pod = job["spec"]["template"]["spec"]
    assert list(faults(pod)) == []
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == "leads-pipeline-run"
    [container] = pod["containers"]
    assert container["image"] == IMAGE
    # The image has no entry point of its own that these would be words for.
    assert container["args"][:3] == ["dagster", "api", "execute_run"]
    assert container["envFrom"] == [
        {"configMapRef": {"name": "leads-pipeline"}},
        {"secretRef": {"name": "leads-pipeline"}},
    ]
    assert {one["name"]: one["value"] for one in container["env"]} == {
        "DAGSTER_RUN_JOB_NAME": PULL_JOB,
        "DAGSTER_HOME": "/data/.dagster",
    }
    assert not any(SECRET in text for text in (json.dumps(job), told, tags))
    # A pull that failed is for the retry sensor, which knows why.
    assert job["spec"]["backoffLimit"] == 0


def test_a_container_of_docker_has_no_rights_and_the_values_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: dict[str, Any] = {}

    class Containers:
        id = "0815"

        def create(self, **asked: Any) -> "Containers":
            created.update(asked)
            return self

        def start(self) -> None:
            created["started"] = True

    client = type("Client", (), {"containers": Containers()})
    monkeypatch.setattr("docker.client.from_env", lambda: client)
    monkeypatch.setenv("LEADS_CLIENT_SECRET", SECRET)
    launcher = DockerLauncher(**written("docker", tmp_path), env_vars=["LEADS_CLIENT_SECRET"])
    with DagsterInstance.local_temp(str(tmp_path)) as instance:
        launcher.register_instance(instance)
        run = run_of(instance)
        launcher.launch_run(LaunchRunContext(run, None))
        kept = [str(entry) for entry in instance.all_logs(run.run_id)] + [str(instance.get_run_by_id(run.run_id))]
    assert created["started"]
    assert created["image"] == IMAGE
    assert created["command"][:3] == ["dagster", "api", "execute_run"]
    assert created.pop("environment")["LEADS_CLIENT_SECRET"] == SECRET
    assert SECRET not in str(created) + "".join(kept)
    assert (created["read_only"], created["cap_drop"]) == (True, ["ALL"])
    assert created["security_opt"] == ["no-new-privileges:true"]
    assert created["auto_remove"] is True
    # The socket of the engine isn't among what a run is given.
    assert {volume.partition(":")[2] for volume in created["volumes"]} == {"/data", "/run/postgresql"}


def test_a_run_of_the_command_line_is_not_taken_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagster_k8s.launcher.load_kubernetes_config", lambda **_: None)

    class NoJob:
        def read_namespaced_job_status(self, *_: object, **__: object) -> None:
            raise kubernetes.client.exceptions.ApiException(status=404)

    in_docker = DockerLauncher(**written("docker", tmp_path / "docker"))
    in_kubernetes = KubernetesLauncher(
        **{**written("kubernetes", tmp_path / "kubernetes"), "dagster_home": "/data"}, k8s_client_batch_api=NoJob()
    )
    with DagsterInstance.local_temp(str(tmp_path)) as instance:
        ours = run_of(instance, **{LAUNCHED_BY: COMMAND_LINE})
        theirs = run_of(instance)
        for launcher in (in_docker, in_kubernetes):
            launcher.register_instance(instance)
            assert launcher.check_run_worker_health(ours).status is WorkerStatus.RUNNING
            assert launcher.check_run_worker_health(theirs).status in (WorkerStatus.NOT_FOUND, WorkerStatus.UNKNOWN)
