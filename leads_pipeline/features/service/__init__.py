"""The service: Dagster's pages, daemon and code run together, on a server or to try things out.

    serving.py         the commands `serve` and `dev`
    demo.py            the portal's simulator, alone and behind the pipeline: `simulate`, `demo`
    processes.py       which processes run, and that they end together
    alone.py           one daemon at a time on a Dagster home
    pages.py           a guard before Dagster's web pages
    dagster_log.py     what is shown of Dagster's log
    dagster_compat.py  names of Dagster that it doesn't document
    init.py            the files that an installation without a checkout needs
    deploy/            templates of these files, as links

Who runs Dagster already needs nothing of it.
"""

from typing import Final

from leads_pipeline.features.feature import Command, Feature

FEATURE: Final = Feature(
    name="service",
    settings="leads_pipeline.features.service.settings:ServiceSettings",
    commands={
        "demo": Command(
            "leads_pipeline.features.service.demo:demo",
            "Run the main job on the simulated portal.",
        ),
        "dev": Command(
            "leads_pipeline.features.service.serving:dev",
            "Start the Dagster UI and its daemon, to try things out.",
        ),
        "init": Command(
            "leads_pipeline.features.service.init:init",
            "Write .env, a systemd unit and a compose file into a folder.",
        ),
        "simulate": Command(
            "leads_pipeline.features.service.demo:simulate",
            "Start the simulated portal alone.",
        ),
        "serve": Command(
            "leads_pipeline.features.service.serving:serve",
            "Run the UI, the daemon and the code as a service on a server.",
        ),
    },
)
