"""Runs in containers of their own: which launcher starts them, and what dagster.yaml says of it.

Belongs here: the choice (LEADS_RUN_LAUNCHER), its conditions, its section of dagster.yaml, the launchers. Doesn't: the
rest of dagster.yaml (runs.py), or what surrounds the containers (deploy/).
"""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from leads_pipeline.errors import SettingsError
from leads_pipeline.settings import LAUNCHER_VARIABLE, POSTGRES_VARIABLE

# The tag of runs that live in the command that began them, and in no container of a launcher's.
LAUNCHED_BY, COMMAND_LINE = "leads_pipeline/launched_by", "command line"

# Dagster's own variable: what a code location says of the image that it is in, and its runs are started from.
IMAGE_VARIABLE = "DAGSTER_CURRENT_IMAGE"

# A machine that hasn't the image yet fetches it first: Dagster's three minutes are short for that.
STARTING = "  start_timeout_seconds: 600\n"

_DOCKER = """
# Each run in a container of its own, with as few rights as the one that starts it. Names of volumes and network are
# those of deploy/compose.yaml. Files that variables name have to be mounted here too.
run_launcher:
  module: leads_pipeline.launching.docker
  class: DockerLauncher
  config:
    networks: [leads-pipeline_default]
    container_kwargs:
      volumes: ["leads-pipeline_data:/data", "leads-pipeline_postgres-socket:/run/postgresql"]
      auto_remove: true
      init: true
      read_only: true
      tmpfs: {/tmp: "mode=1777"}
      cap_drop: [ALL]
      security_opt: ["no-new-privileges:true"]
      mem_limit: 4g
      stop_timeout: 60
"""

_KUBERNETES = """
# Each run as a job of its own, with as few rights as the pod that starts it, and none in the cluster. Names are those
# of deploy/kubernetes/. Settings and secrets come from the ConfigMap and the Secret, by name.
run_launcher:
  module: leads_pipeline.launching.kubernetes
  class: KubernetesLauncher
  config:
    job_namespace: leads-pipeline
    service_account_name: leads-pipeline-run
    # dagster-k8s asks for one, and mounts none.
    instance_config_map: leads-pipeline
    dagster_home: {env: DAGSTER_HOME}
    image_pull_policy: IfNotPresent
    env_config_maps: [leads-pipeline]
    env_secrets: [leads-pipeline]
    volumes:
      - {name: data, persistentVolumeClaim: {claimName: leads-pipeline-data}}
      - {name: tmp, emptyDir: {sizeLimit: 2Gi}}
    volume_mounts:
      - {name: data, mountPath: /data}
      - {name: tmp, mountPath: /tmp}
    resources:
      requests: {cpu: 500m, memory: 1Gi}
      limits: {cpu: "2", memory: 4Gi}
    security_context:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    run_k8s_config:
      pod_spec_config:
        automountServiceAccountToken: false
        terminationGracePeriodSeconds: 60
        securityContext:
          runAsNonRoot: true
          runAsUser: 10001
          runAsGroup: 10001
          fsGroup: 10001
          fsGroupChangePolicy: OnRootMismatch
          seccompProfile: {type: RuntimeDefault}
"""

_SECTIONS = {"docker": _DOCKER, "kubernetes": _KUBERNETES}
_PACKAGES = {"docker": "dagster-docker", "kubernetes": "dagster-k8s"}
_IS_OURS = "module: leads_pipeline.launching."


def launcher_section(environment: Mapping[str, str]) -> str:
    """The section of dagster.yaml for the launcher that is wanted; empty where runs are processes of this machine.

    Raises SettingsError where the choice is none, or lacks something that it takes.
    """
    name = environment.get(LAUNCHER_VARIABLE, "").strip()
    if not name:
        return ""
    if name not in _SECTIONS:
        raise SettingsError(
            f"{LAUNCHER_VARIABLE} is {name!r}. Write docker or kubernetes, or leave it out: runs are processes then."
        )
    wanted = f"{LAUNCHER_VARIABLE} is {name}, and "
    if not any(environment.get(variable) for variable in (POSTGRES_VARIABLE, f"{POSTGRES_VARIABLE}_FILE")):
        raise SettingsError(
            f"{wanted}Dagster's state is in sqlite, which containers can't share. Set {POSTGRES_VARIABLE} to a "
            "Postgres that all of them reach."
        )
    try:
        version(_PACKAGES[name])
    except PackageNotFoundError:
        raise SettingsError(
            f"{wanted}the package {_PACKAGES[name]} isn't installed. Use the image of deploy/Containerfile, which has "
            f"it, or install the extra: leads-pipeline[{name}]."
        ) from None
    if not environment.get(IMAGE_VARIABLE):
        raise SettingsError(
            f"{wanted}{IMAGE_VARIABLE} doesn't say from which image runs are started. Set it to the image of this "
            "container, as the files in deploy/ do."
        )
    return _SECTIONS[name]


def refuse_another(section: str, file: object, written: str) -> None:
    """Raise SettingsError where a dagster.yaml that is there starts runs in another way than the section says."""
    if section and next(line for line in section.splitlines() if _IS_OURS in line) not in written:
        raise SettingsError(
            f"{LAUNCHER_VARIABLE} is set, and {file} starts runs in another way. Move that file away, and the next "
            "start writes one that does; or unset the variable. Leads and history stay."
        )
    if not section and _IS_OURS in written:
        raise SettingsError(
            f"{file} starts runs in containers, and {LAUNCHER_VARIABLE} isn't set. Set it again; or move that file "
            "away, and the next start writes one for processes of this machine. Leads and history stay."
        )
