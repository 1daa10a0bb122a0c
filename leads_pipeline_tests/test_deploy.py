"""What lies in deploy/: it names commands that there are, and does what it says, as far as it can
be tried here.
"""

import base64
import http.client
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click import Context
from dagster._core.instance.ref import InstanceRef

from leads_pipeline.cli import main
from leads_pipeline.cli.settings import described, variables
from leads_pipeline.features.quick_event_log.settings import POSTGRES_VARIABLE
from leads_pipeline.orchestration.home import dagster_home
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.newcomer import ROOT
from leads_pipeline_tests.support.nginx import running_nginx
from leads_pipeline_tests.support.serving import QuietHandler, serving

DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("systemd/*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
OURS = [service for name, service in COMPOSE["services"].items() if name != "postgres"]
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
COMPOSE_RUNS: dict[str, Any] = yaml.safe_load(
    (DEPLOY / "compose.runs.yaml").read_text(encoding="utf-8")
)
COMPOSE_S3: dict[str, Any] = yaml.safe_load(
    (DEPLOY / "compose.s3.yaml").read_text(encoding="utf-8")
)
MANIFESTS: list[dict[str, Any]] = [
    thing
    for path in sorted(DEPLOY.glob("kubernetes/*.yaml"))
    for thing in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
PODS: dict[str, dict[str, Any]] = {
    thing["metadata"]["name"]: thing["spec"]["template"]["spec"]
    for thing in MANIFESTS
    if thing["kind"] == "Deployment"
}
EXAMPLES: dict[str, dict[str, Any]] = {
    name: yaml.safe_load((DEPLOY / f"dagster.{name}.yaml").read_text(encoding="utf-8"))
    for name in ("docker", "kubernetes")
}


_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def commands() -> Iterator[tuple[str, ...]]:
    """What is run, without the program's own name."""
    for unit in UNITS:
        [line] = re.findall(
            r"^ExecStart=\S+/leads-pipeline (.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE
        )
        yield tuple(shlex.split(line))
    [line] = re.findall(r"^CMD \[(.*)\]$", CONTAINERFILE, re.MULTILINE)
    started = [service["command"] for service in OURS] + [yaml.safe_load(f"[{line}]")]
    started += [container["args"] for pod in PODS.values() for container in pod["containers"]]
    for program, *arguments in started:
        assert program == "leads-pipeline"
        yield tuple(arguments)


@pytest.mark.parametrize("arguments", sorted(set(commands())), ids=" ".join)
def test_each_command_is_one_of_ours_with_options_that_it_has(arguments: tuple[str, ...]) -> None:
    command = main.get_command(Context(main), arguments[0])
    assert command
    command.make_context(arguments[0], list(arguments[1:]))


def test_units_run_by_an_account_without_rights_and_are_well_formed(tmp_path: Path) -> None:
    accounts = (DEPLOY / "systemd" / "leads-pipeline.sysusers").read_text(encoding="utf-8")
    assert len(UNITS) == 2
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8")
        [user] = re.findall(r"^User=(.*)$", text, re.MULTILINE)
        assert f"\nu {user} " in accounts
        assert "\nCapabilityBoundingSet=\n" in text
        assert "\nProtectSystem=strict\n" in text
        # The program lies elsewhere here.
        (tmp_path / unit.name).write_text(
            re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE)
        )
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    units = [str(tmp_path / unit.name) for unit in UNITS]
    seen = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (seen.returncode, seen.stderr) == (0, "")


def test_containers_write_to_their_volume_alone_and_have_no_rights() -> None:
    assert re.findall(r"^USER (.*)$", CONTAINERFILE, re.MULTILINE) == ["10001:10001"]
    assert CONTAINERFILE.count("constraints requirements.lock") == 3
    for service in COMPOSE["services"].values():
        assert service["read_only"] is True
        # The one that podman-restart.service starts after a reboot.
        assert service["restart"] == "always"
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "healthcheck" in service
    # Postgres lets in whoever reaches its socket, which those two alone do.
    assert "ports" not in COMPOSE["services"]["postgres"]
    assert COMPOSE["services"]["postgres"]["command"] == ["postgres", "-c", "listen_addresses="]
    assert "mkdir --mode=1777 /run/postgresql" in CONTAINERFILE
    for service in OURS:
        assert service["volumes"] == ["data:/data", "postgres-socket:/run/postgresql"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        context = DEPLOY / service["build"]["context"]
        assert (context / service["build"]["dockerfile"]).is_file()
    let_through = (ROOT / ".containerignore").read_text(encoding="utf-8")
    for names in re.findall(r"^COPY (?!--)(.*) \S+$", CONTAINERFILE, re.MULTILINE):
        for name in names.split():
            assert (ROOT / name).exists()
            assert f"\n!{name}\n" in let_through


# --- examples of dagster.yaml ---------------------------------------------------------------------


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> InstanceRef:
    """The example, read and checked by Dagster."""
    monkeypatch.setenv("DAGSTER_HOME", "/data/.dagster")
    monkeypatch.setenv(POSTGRES_VARIABLE, "postgresql://db/dagster")
    return InstanceRef.from_dir(str(DEPLOY), config_filename=f"dagster.{name}.yaml")


def test_dagster_makes_its_docker_launcher_from_the_example(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dagster_docker import DockerRunLauncher

    assert isinstance(loaded("docker", monkeypatch).run_launcher, DockerRunLauncher)


def test_dagster_makes_its_kubernetes_launcher_from_the_example(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dagster_k8s import K8sRunLauncher  # its import takes seconds, which no collection should

    monkeypatch.setattr("dagster_k8s.launcher.load_kubernetes_config", lambda **_: None)
    assert isinstance(loaded("kubernetes", monkeypatch).run_launcher, K8sRunLauncher)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_rest_of_an_example_is_what_the_first_start_writes(name: str, tmp_path: Path) -> None:
    home = dagster_home(
        Settings.from_variables(
            {POSTGRES_VARIABLE: "postgresql://db/dagster", "LEADS_DATA_DIR": str(tmp_path)}
        )
    )
    written = yaml.safe_load((home / "dagster.yaml").read_text(encoding="utf-8"))
    written["run_monitoring"]["start_timeout_seconds"] = 600
    assert {key: value for key, value in EXAMPLES[name].items() if key != "run_launcher"} == written


def test_containers_of_runs_have_what_the_one_that_starts_them_has_and_no_more() -> None:
    asked = EXAMPLES["docker"]["run_launcher"]["config"]
    service = COMPOSE["services"]["pipeline"]
    given = asked["container_kwargs"]
    for name in ("read_only", "cap_drop", "security_opt", "init"):
        assert given[name] == service[name]
    names = {name: volume["name"] for name, volume in COMPOSE["volumes"].items()}
    assert given["volumes"] == [
        f"{names[name]}:{path}" for name, path in (v.split(":") for v in service["volumes"])
    ]
    [(_, added)] = COMPOSE_RUNS["services"].items()
    assert added["environment"].keys() == {POSTGRES_VARIABLE}
    assert {POSTGRES_VARIABLE, *service["environment"]} < set(asked["env_vars"]) <= variables()
    assert asked["image"] == service["image"]
    # The engine's socket, and nothing else that compose.yaml doesn't mount.
    assert [volume.rpartition(":")[2] for volume in added["volumes"]] == ["/var/run/docker.sock"]
    # Without it the image's program would be given Dagster's command as words of its own.
    assert "ENTRYPOINT" not in CONTAINERFILE


def test_with_a_bucket_every_container_of_ours_works_in_the_volume() -> None:
    assert [COMPOSE["services"][name] for name in COMPOSE_S3["services"]] == OURS
    [path] = {
        volume.rpartition(":")[2]
        for service in OURS
        for volume in service["volumes"]
        if "data:" in volume
    }
    for added in COMPOSE_S3["services"].values():
        assert added.keys() == {"environment"}
        assert added["environment"]["LEADS_WORK_DIR"] == path
        # Compose refuses to start where nobody says which: the folder would be the truth, and the
        # bucket stay empty.
        assert added["environment"]["LEADS_DATA_DIR"].startswith("${BUCKET:?")


# --- Kubernetes -----------------------------------------------------------------------------------


def test_each_manifest_passes_kubernetes_own_schema() -> None:
    for thing in MANIFESTS:
        kubernetes_validate.validate(thing, kubernetes_validate.latest_version(), strict=True)


def test_manifests_ask_for_no_right_but_to_start_runs_in_their_namespace() -> None:
    for thing in MANIFESTS:
        assert thing["metadata"].get("namespace", "leads-pipeline") == "leads-pipeline"
    assert "ClusterRole" not in {thing["kind"] for thing in MANIFESTS}
    [role] = [thing for thing in MANIFESTS if thing["kind"] == "Role"]
    resources = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert resources == {"jobs", "jobs/status", "pods", "pods/log", "events"}
    # Runs have no rights, and neither has what the outside talks to.
    [binding] = [thing for thing in MANIFESTS if thing["kind"] == "RoleBinding"]
    assert [subject["name"] for subject in binding["subjects"]] == ["leads-pipeline"]


def test_pods_have_no_rights_and_limits() -> None:
    images = set()
    for pod in PODS.values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            # A field beside these may take back what the pod says.
            assert container["securityContext"] == _CONTEXT
            assert container["resources"]["limits"].keys() == {"cpu", "memory"}
            images.add(container["image"])
    assert images == {EXAMPLES["kubernetes"]["run_launcher"]["config"]["job_image"]}


def test_manifests_name_variables_that_there_are_and_secrets_by_reference_alone() -> None:
    plain = {name for thing in MANIFESTS if thing["kind"] == "ConfigMap" for name in thing["data"]}
    secrets = {one.name for one in described() if one.is_secret}
    for pod in PODS.values():
        for container in pod["containers"]:
            for one in container.get("env", []):
                if "value" in one:
                    plain.add(one["name"])
                else:
                    assert one["valueFrom"].keys() == {"secretKeyRef"}
                    assert one["valueFrom"]["secretKeyRef"]["key"] == one["name"]
                    assert one["name"] in secrets
    assert plain <= variables()
    assert plain & secrets == set()
    assert "Secret" not in {thing["kind"] for thing in MANIFESTS}


def test_jobs_of_runs_stand_on_what_the_manifests_make() -> None:
    config = EXAMPLES["kubernetes"]["run_launcher"]["config"]
    made = {(thing["kind"], thing["metadata"]["name"]) for thing in MANIFESTS}
    assert {
        ("Namespace", config["job_namespace"]),
        ("ServiceAccount", config["service_account_name"]),
        *(("ConfigMap", name) for name in config["env_config_maps"]),
    } <= made
    pod = PODS["leads-pipeline"]
    [container] = pod["containers"]
    assert config["volume_mounts"] == container["volumeMounts"]
    *shared, instance = pod["volumes"]
    assert config["volumes"] == shared
    assert config["instance_config_map"] == instance["configMap"]["name"]
    assert config["run_k8s_config"]["pod_spec_config"]["securityContext"] == pod["securityContext"]
    assert config["security_context"] == container["securityContext"]
    assert [
        one["secretRef"]["name"] for one in container["envFrom"] if "secretRef" in one
    ] == config["env_secrets"]
    [claim] = [thing for thing in MANIFESTS if thing["kind"] == "PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


@contextmanager
def pages(name: str) -> Iterator[str]:
    """Answers with its name and with what reached it of a login and of a change of protocol."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            told = [
                name,
                self.headers.get("Upgrade"),
                self.headers.get("Connection"),
                self.headers["Host"],
            ]
            told.append(self.headers.get("Authorization") or "no login")
            self.answer(200, " ".join(map(str, told)).encode())

        do_POST = do_GET

    with serving(Handler) as address:
        yield address.rpartition(":")[2]


@pytest.mark.slow
def test_the_proxy_asks_for_a_login(tmp_path: Path) -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    name = "pipeline.agency.example"
    (tmp_path / "operators").write_text("operators:{PLAIN}secret\n")
    (tmp_path / "readers").write_text("readers:{PLAIN}secret\n")
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "leads.html").write_text("<h1>Leads</h1>")
    with pages("all") as whole:
        mine = {
            "/etc/nginx/report.readers": str(tmp_path / "readers"),
            "/var/lib/leads-pipeline/reports": str(tmp_path / "reports"),
            "/etc/nginx/pipeline.operators": str(tmp_path / "operators"),
            "127.0.0.1:3000": f"127.0.0.1:{whole}",
        }
        with running_nginx(tmp_path / "nginx", text, mine) as (port, trusting):

            def ask(
                who: str | None, method: str = "GET", path: str = "/", **headers: str
            ) -> tuple[int, str]:
                if who:
                    headers["Authorization"] = (
                        "Basic " + base64.b64encode(f"{who}:secret".encode()).decode()
                    )
                with closing(
                    http.client.HTTPSConnection("localhost", port, timeout=10, context=trusting)
                ) as client:
                    client.request(method, path, headers={"Host": name, **headers})
                    answer = client.getresponse()
                    return answer.status, answer.read().decode()

            assert ask("operators") == (200, f"all None close {name} no login")
            upgraded = ask("operators", Upgrade="websocket", Connection="Upgrade")[1]
            assert upgraded.startswith("all websocket upgrade")
            assert [ask(who)[0] for who in (None, "nobody")] == [401] * 2
            for origin in ("https://evil.example", f"https://{name}.evil.example", "null"):
                assert ask("operators", "POST", "/graphql", Origin=origin)[0] == 403
                assert (
                    ask("operators", Upgrade="websocket", Connection="Upgrade", Origin=origin)[0]
                    == 403
                )
            for path in ("/graphql?query=mutation", "/graphql%0A?query=mutation"):
                assert ask("operators", "GET", path)[0] == 405
            assert [
                ask("operators", "GET", path)[0] for path in ("/graphql", "/assets?view=lineage")
            ] == [200] * 2
            assert (
                ask("operators", "POST", "/graphql?op=Assets", Origin=f"https://{name}")[0] == 200
            )
            report = {"Host": "report.agency.example"}
            assert ask("readers", **report) == (200, "<h1>Leads</h1>")
            assert [ask(who, **report)[0] for who in (None, "operators")] == [401] * 2
            assert [
                ask("readers", "GET", path, **report)[0] for path in ("/leads.html", "/../raw")
            ] == [404, 400]


def test_the_dashboard_shows_figures_that_there_are() -> None:
    figures = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    shown = set(
        re.findall(r"leads_pipeline_\w+", (DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    )
    assert {name for name in shown if f"`{name}`" not in figures} == set()
    assert "leads_pipeline_deliveries" in shown
