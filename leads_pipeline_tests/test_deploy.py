"""What lies in deploy/: it names commands that there are, and does what it says, as far as it can
be tried here.
"""

import base64
import http.client
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
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


def content(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


COMPOSE = content("compose.yaml")
OURS = [service for name, service in COMPOSE["services"].items() if name != "postgres"]
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
MANIFESTS: list[dict[str, Any]] = [
    thing
    for path in sorted(DEPLOY.glob("kubernetes/*.yaml"))
    for thing in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]


def of_kind(kind: str) -> list[dict[str, Any]]:
    """The manifests of that kind."""
    return [thing for thing in MANIFESTS if thing["kind"] == kind]


PODS: dict[str, dict[str, Any]] = {
    thing["metadata"]["name"]: thing["spec"]["template"]["spec"] for thing in of_kind("Deployment")
}
EXAMPLES = {name: content(f"dagster.{name}.yaml") for name in ("docker", "kubernetes")}


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
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8")
        [user] = re.findall(r"^User=(.*)$", text, re.MULTILINE)
        assert f"\nu {user} " in accounts
        assert "\nCapabilityBoundingSet=\n" in text
        assert "\nProtectSystem=strict\n" in text
        # The program lies elsewhere here.
        here = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(here)

    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    verify = ["systemd-analyze", "verify", "--man=no", *map(str, tmp_path.iterdir())]
    seen = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (seen.returncode, seen.stderr) == (0, "")


def test_containers_write_to_their_volume_alone_and_have_no_rights() -> None:
    assert re.findall(r"^USER (.*)$", CONTAINERFILE, re.MULTILINE) == ["10001:10001"]
    for service in COMPOSE["services"].values():
        assert service["read_only"] is True
        # The one that podman-restart.service starts after a reboot.
        assert service["restart"] == "always"
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    for service in OURS:
        assert service["volumes"] == ["data:/data", "postgres-socket:/run/postgresql"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    # Postgres lets in whoever reaches its socket, which those two alone do.
    postgres = COMPOSE["services"]["postgres"]
    assert "ports" not in postgres
    assert postgres["command"] == ["postgres", "-c", "listen_addresses="]


def test_each_file_that_the_image_takes_is_there_and_let_through() -> None:
    let_through = (ROOT / ".containerignore").read_text(encoding="utf-8")
    for names in re.findall(r"^COPY (?!--)(.*) \S+$", CONTAINERFILE, re.MULTILINE):
        for name in names.split():
            assert (ROOT / name).exists()
            assert f"\n!{name}\n" in let_through


# --- examples of dagster.yaml ---------------------------------------------------------------------


def test_dagster_makes_its_launchers_from_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    os.environ["DAGSTER_HOME"] = "/data/.dagster"
    os.environ[POSTGRES_VARIABLE] = "postgresql://db/dagster"
    monkeypatch.setattr("dagster_k8s.launcher.load_kubernetes_config", lambda **_: None)

    launchers = []
    for name in EXAMPLES:
        example = InstanceRef.from_dir(str(DEPLOY), config_filename=f"dagster.{name}.yaml")
        launchers.append(type(example.run_launcher).__name__)

    assert launchers == ["DockerRunLauncher", "K8sRunLauncher"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_rest_of_an_example_is_what_the_first_start_writes(name: str, tmp_path: Path) -> None:
    given = {POSTGRES_VARIABLE: "postgresql://db/dagster", "LEADS_DATA_DIR": str(tmp_path)}
    home = dagster_home(Settings.from_variables(given))
    written = yaml.safe_load((home / "dagster.yaml").read_text(encoding="utf-8"))
    written["run_monitoring"]["start_timeout_seconds"] = 600
    assert {key: value for key, value in EXAMPLES[name].items() if key != "run_launcher"} == written


def test_containers_of_runs_have_what_the_one_that_starts_them_has_and_no_more() -> None:
    asked = EXAMPLES["docker"]["run_launcher"]["config"]
    service = COMPOSE["services"]["pipeline"]
    given = asked["container_kwargs"]
    for name in ("read_only", "cap_drop", "security_opt", "init"):
        assert given[name] == service[name]
    for given_volume, volume in zip(given["volumes"], service["volumes"], strict=True):
        name, _, path = volume.partition(":")
        assert given_volume == f"{COMPOSE['volumes'][name]['name']}:{path}"
    [added] = content("compose.runs.yaml")["services"].values()
    assert {POSTGRES_VARIABLE, *service["environment"]} < set(asked["env_vars"]) <= variables()
    assert asked["image"] == service["image"]
    # The engine's socket, and nothing else that compose.yaml doesn't mount.
    assert [volume.rpartition(":")[2] for volume in added["volumes"]] == ["/var/run/docker.sock"]
    # Without it the image's program would be given Dagster's command as words of its own.
    assert "ENTRYPOINT" not in CONTAINERFILE


def test_with_a_bucket_every_container_of_ours_works_in_the_volume() -> None:
    with_bucket = content("compose.s3.yaml")["services"]
    assert [COMPOSE["services"][name] for name in with_bucket] == OURS
    for added in with_bucket.values():
        assert added["environment"]["LEADS_WORK_DIR"] == "/data"
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
    assert of_kind("ClusterRole") == []
    [role] = of_kind("Role")
    resources = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert resources == {"jobs", "jobs/status", "pods", "pods/log", "events"}
    # Runs have no rights, and neither has what the outside talks to.
    [binding] = of_kind("RoleBinding")
    assert [subject["name"] for subject in binding["subjects"]] == ["leads-pipeline"]


def test_pods_have_limits_and_no_rights() -> None:
    for pod in PODS.values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["resources"]["limits"].keys() == {"cpu", "memory"}
            # A field beside these may take back what the pod says.
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_manifests_name_variables_that_there_are_and_secrets_by_reference_alone() -> None:
    plain = {name for thing in of_kind("ConfigMap") for name in thing["data"]}
    secrets = {one.name for one in described() if one.is_secret}
    for pod in PODS.values():
        for container in pod["containers"]:
            for one in container.get("env", []):
                if "value" in one:
                    plain.add(one["name"])
                else:
                    assert one["valueFrom"]["secretKeyRef"]["key"] == one["name"]
                    assert one["name"] in secrets
    assert plain <= variables() - secrets
    assert of_kind("Secret") == []


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
    assert config["job_image"] == container["image"]


# --- the proxy ------------------------------------------------------------------------------------


class Pages(QuietHandler):
    """Answers with what reached it of a change of protocol and of a login."""

    def do_GET(self) -> None:
        names = ("Host", "Upgrade", "Connection", "Authorization")
        self.answer(200, " ".join(str(self.headers[name]) for name in names).encode())

    do_POST = do_GET


@pytest.mark.slow
def test_the_proxy_asks_for_a_login(tmp_path: Path) -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    name = "pipeline.agency.example"
    report = {"Host": "report.agency.example"}
    websocket = {"Upgrade": "websocket", "Connection": "Upgrade"}
    (tmp_path / "operators").write_text("operators:{PLAIN}secret\n")
    (tmp_path / "readers").write_text("readers:{PLAIN}secret\n")
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "leads.html").write_text("<h1>Leads</h1>")
    with serving(Pages) as address:
        mine = {
            "/etc/nginx/report.readers": str(tmp_path / "readers"),
            "/var/lib/leads-pipeline/reports": str(tmp_path / "reports"),
            "/etc/nginx/pipeline.operators": str(tmp_path / "operators"),
            "127.0.0.1:3000": address.removeprefix("http://"),
        }
        with running_nginx(tmp_path / "nginx", text, mine) as (port, trusting):

            def ask(who: str, path: str = "/", method: str = "GET", **headers: str) -> Any:
                """Status and body, or the status alone of what is refused."""
                login = base64.b64encode(f"{who}:secret".encode()).decode()
                given = {"Host": name, "Authorization": f"Basic {login}", **headers}
                client = http.client.HTTPSConnection("localhost", port, context=trusting)
                with closing(client):
                    client.request(method, path, headers=given)
                    answer = client.getresponse()
                    text = answer.read().decode()
                return text if answer.status == 200 else answer.status

            assert ask("operators") == f"{name} None close None"
            assert ask("operators", **websocket) == f"{name} websocket upgrade None"
            assert ask("nobody") == ask("operators", Authorization="") == 401
            for origin in ("https://evil.example", f"https://{name}.evil.example", "null"):
                assert ask("operators", "/graphql", "POST", Origin=origin) == 403
                assert ask("operators", Origin=origin, **websocket) == 403
            for path in ("/graphql?query=mutation", "/graphql%0A?query=mutation"):
                assert ask("operators", path) == 405
            own = f"https://{name}"
            assert name in ask("operators", "/graphql?op=Assets", "POST", Origin=own)
            assert name in ask("operators", "/assets?view=lineage")

            assert ask("readers", **report) == "<h1>Leads</h1>"
            assert ask("operators", **report) == ask("readers", Authorization="", **report) == 401
            assert ask("readers", "/leads.html", **report) == 404
            assert ask("readers", "/../raw", **report) == 400


def test_the_dashboard_shows_figures_that_there_are() -> None:
    figures = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    dashboard = (DEPLOY / "grafana.json").read_text(encoding="utf-8")
    shown = set(re.findall(r"leads_pipeline_\w+", dashboard))
    assert "leads_pipeline_deliveries" in shown
    assert [name for name in shown if f"`{name}`" not in figures] == []
