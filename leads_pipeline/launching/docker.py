"""Runs in containers of Docker or Podman on this machine. Takes the extra `docker`."""

from dagster_docker import DockerRunLauncher

from leads_pipeline.launching.sparing import SparingLauncher


class DockerLauncher(SparingLauncher, DockerRunLauncher):
    """As DockerRunLauncher. Which variables a run gets, by name, `serve` tells the code location."""
