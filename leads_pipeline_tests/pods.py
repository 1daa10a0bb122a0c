"""What every pod of ours keeps to, whether a manifest describes it or a launcher makes it."""

from collections.abc import Iterator, Mapping
from typing import Any

import kubernetes_validate

# The newest that is known here, and the oldest that is still cared for by anybody.
VERSIONS = (kubernetes_validate.latest_version(), "1.31.0")


def strictly_valid(thing: Mapping[str, Any]) -> None:
    """Raise ValidationError where Kubernetes' own schema knows a field less or wants another value."""
    for version in VERSIONS:
        kubernetes_validate.validate(dict(thing), version, strict=True)


def faults(pod: Mapping[str, Any]) -> Iterator[str]:
    """What a pod's spec may do that none of ours needs, or lacks that each has."""
    around = pod.get("securityContext", {})
    if around.get("runAsNonRoot") is not True or not around.get("runAsUser"):
        yield "may run as root"
    if around.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "has no seccomp profile"
    if any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        yield "is in the host's namespaces"
    yield from (
        f"mounts {volume}"
        for volume in pod.get("volumes", [])
        if not volume.keys() & {"persistentVolumeClaim", "emptyDir", "configMap"}
    )
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        yield from _faults_of(container)


# What each container has, and nothing beside it: a field that is there may take back what the pod says.
_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def _faults_of(container: Mapping[str, Any]) -> Iterator[str]:
    if container.get("securityContext") != _CONTEXT:
        yield "has other rights"
    resources = container.get("resources", {})
    if any(resources.get(kind, {}).keys() != {"cpu", "memory"} for kind in ("limits", "requests")):
        yield "has no limits"
    if container.get("ports") and not {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys():
        yield "serves, and nobody asks whether it does"
