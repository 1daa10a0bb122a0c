"""Runs as jobs of a Kubernetes cluster. Takes the extra `kubernetes`."""

from dagster_k8s import K8sRunLauncher

from leads_pipeline.launching.sparing import SparingLauncher


class KubernetesLauncher(SparingLauncher, K8sRunLauncher):
    """As K8sRunLauncher."""
