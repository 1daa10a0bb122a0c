"""Prints the surface that users touch, as one text. Each change of it is a line in a diff.

`python -m leads_pipeline_tests.promises.surface` prints it. With `--accept` it is written to `recorded/surface.txt`,
whose first version in git is the surface of commit dd03c9a.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import duckdb
from click.testing import CliRunner
from dagster import AssetKey, Definitions, MultiPartitionsDefinition

from leads_pipeline import settings
from leads_pipeline.cli import main
from leads_pipeline.definitions import build_definitions
from leads_pipeline.portal import receiver
from leads_pipeline_tests.promises.portal import portal, variables

RECORDED = Path(__file__).parent / "recorded" / "surface.txt"
ROOT = Path(__file__).parent.parent.parent

# Settings of an installation that has everything. Nobody answers there.
FULL = {
    **variables("http://127.0.0.1:9", "data"),
    "LEADS_BRANCH_IDS": "101,102",
    "LEADS_START_DATE": "2026-11-01",
    "LEADS_TIMEZONE": "Europe/London",
    "INVENTORY_ADDRESSES": "Guildford",
    "LEADS_ALERT_WEBHOOK": "http://127.0.0.1:9",
    "LEADS_DELIVERY_URL": "http://127.0.0.1:9",
}


def surface() -> str:
    """Everything, a section after the other."""
    sections = {
        "Commands": _commands(main, "leads-pipeline"),
        "Exit codes": exit_codes(main, "leads-pipeline"),
        "Variables, with their defaults": _variables(),
        "Variables that are gone": (f"{name}: {advice}" for name, advice in sorted(settings.GONE.items())),
        **_orchestration(build_definitions(FULL)),
        "Without any settings": _without_settings(),
        "The receiver's limits": _receiver(),
        **_installed(),
    }
    return "\n".join(line for title, lines in sections.items() for line in (f"## {title}", "", *lines, ""))


# --- commands and settings --------------------------------------------------------------------------------------------


def each_command(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in sorted(command.list_commands(context)):
            if one := command.get_command(context, inner):
                yield from each_command(one, f"{name} {inner}")


def _commands(command: click.Command, name: str) -> Iterator[str]:
    for path, one in each_command(command, name):
        yield f"{path}{'  (hidden)' if one.hidden else ''}"
        for parameter in one.params:
            yield f"    {_parameter(parameter)}"


def _parameter(parameter: click.Parameter) -> str:
    is_option = isinstance(parameter, click.Option)
    names = "/".join([*parameter.opts, *parameter.secondary_opts]) if is_option else (parameter.name or "").upper()
    words = [names]
    if isinstance(parameter, click.Option) and parameter.is_flag:
        words.append("flag")
    elif isinstance(parameter.type, click.Choice):
        words.append("|".join(map(str, parameter.type.choices)))
    elif isinstance(parameter.type, click.IntRange | click.FloatRange):
        words.append(f"{parameter.type.name} {parameter.type.min}..{parameter.type.max}")
    else:
        words.append(parameter.type.name)
    if parameter.required:
        words.append("required")
    if parameter.multiple if isinstance(parameter, click.Option) else parameter.nargs != 1:
        words.append("repeatable")
    default = parameter.to_info_dict().get("default")
    if default not in (None, False, ()) and not callable(parameter.default):
        words.append(f"default {default}")
    if parameter.envvar:
        words.append(f"from {parameter.envvar}")
    return "  ".join(words)


def exit_codes(command: click.Command, name: str) -> Iterator[str]:
    for path, one in each_command(command, name):
        text = " ".join((one.help or "").split())
        for sentence in re.findall(r"Exit code.*?\.(?=\s|$)", text, re.IGNORECASE):
            yield f"{path}: {sentence}"


def _variables() -> Iterator[str]:
    for one in sorted(settings.DESCRIBED, key=lambda one: one.name):
        yield f"{one.name}={one.default}{'  (or _FILE)' if one.is_secret else ''}"


def _receiver() -> Iterator[str]:
    for name in sorted(vars(receiver)):
        value = getattr(receiver, name)
        if name.isupper() and isinstance(value, int | float | str | tuple):
            yield f"{name} = {value}"


# --- Dagster ----------------------------------------------------------------------------------------------------------


def _orchestration(definitions: Definitions) -> dict[str, Iterator[str]]:
    return {
        "Assets": _assets(definitions),
        "Checks": _checks(definitions),
        "Jobs": _jobs(definitions),
        "Schedules": _schedules(definitions),
        "Sensors": _sensors(definitions),
        "Resources": iter(sorted(definitions.resources or {})),
    }


def _assets(definitions: Definitions) -> Iterator[str]:
    graph = definitions.resolve_asset_graph()
    for key in sorted(graph.get_all_asset_keys()):
        node = graph.get(key)
        if not node.is_materializable:
            yield f"{_name(key)}  (external)"
            continue
        yield f"{_name(key)}  group {node.group_name}  kinds {', '.join(sorted(node.kinds)) or 'none'}"
        yield f"    parents: {', '.join(_name(parent) for parent in sorted(node.parent_keys)) or 'none'}"
        yield f"    partitions: {_partitions(node.partitions_def)}"


def _name(key: AssetKey) -> str:
    return key.to_user_string()


def _partitions(definition: Any) -> str:
    if definition is None:
        return "none"
    if isinstance(definition, MultiPartitionsDefinition):
        inner = sorted(definition.partitions_defs, key=lambda one: one.name)
        return " x ".join(f"{one.name} ({_partitions(one.partitions_def)})" for one in inner)
    kind = type(definition).__name__
    if hasattr(definition, "cron_schedule"):
        return (
            f"{kind} from {definition.start:%Y-%m-%d} {definition.timezone}, {definition.cron_schedule!r}, "
            f"end offset {definition.end_offset}, keys {definition.fmt}"
        )
    return f"{kind}: {', '.join(definition.get_partition_keys())}"


def _checks(definitions: Definitions) -> Iterator[str]:
    graph = definitions.resolve_asset_graph()
    for key in sorted(graph.asset_check_keys, key=lambda key: (key.asset_key, key.name)):
        is_blocking = graph.get_check_spec(key).blocking
        yield f"{_name(key.asset_key)}: {key.name}{'  blocking' if is_blocking else ''}"


def _jobs(definitions: Definitions) -> Iterator[str]:
    for job in sorted(definitions.resolve_all_job_defs(), key=lambda job: job.name):
        if job.name.startswith("__"):
            continue
        yield f"{job.name}  tags {json.dumps(dict(job.tags), sort_keys=True)}"
        layer = job.asset_layer
        yield from (f"    asset {_name(key)}" for key in sorted(layer.selected_asset_keys))
        yield from sorted(f"    check {_name(key.asset_key)}: {key.name}" for key in layer.asset_graph.asset_check_keys)


def _schedules(definitions: Definitions) -> Iterator[str]:
    repository = definitions.get_repository_def()
    for one in sorted(repository.schedule_defs, key=lambda one: one.name):
        yield (
            f"{one.name}  {one.cron_schedule!r} {one.execution_timezone}  {_on(one.default_status)}  job {one.job_name}"
        )


def _sensors(definitions: Definitions) -> Iterator[str]:
    repository = definitions.get_repository_def()
    for one in sorted(repository.sensor_defs, key=lambda one: one.name):
        targets = ", ".join(sorted(target.job_name for target in one.targets)) or "no job"
        yield f"{one.name}  every {one.minimum_interval_seconds} s  {_on(one.default_status)}  {targets}"


def _on(status: Any) -> str:
    return "on" if status.value == "RUNNING" else "OFF"


def _without_settings() -> Iterator[str]:
    full, bare = _names(build_definitions(FULL)), _names(build_definitions({}))
    yield from (f"missing: {name}" for name in sorted(full - bare))
    yield from (f"added: {name}" for name in sorted(bare - full))


def _names(definitions: Definitions) -> set[str]:
    sections = _orchestration(definitions)
    return {f"{title[:-1].lower()} {line.split('  ')[0]}" for title, lines in sections.items() for line in lines}


# --- an installation --------------------------------------------------------------------------------------------------


def _installed() -> dict[str, list[str]]:
    """What a data folder holds after one backfill of two days."""
    with tempfile.TemporaryDirectory() as folder, portal(_one_lead) as address, chdir(folder):
        data = Path(folder) / "data"
        now = datetime.now(UTC)
        days = [(now - timedelta(days=ago)).date().isoformat() for ago in (2, 0)]
        os.environ.update(variables(address, str(data)))
        os.environ |= {"LEADS_BRANCH_IDS": "101", "LEADS_TIMEZONE": "UTC", "INVENTORY_ADDRESSES": "Guildford"}
        os.environ.pop("DAGSTER_HOME", None)
        os.umask(0o022)
        said = _run("backfill", "--from", days[0], "--to", days[1])
        assert said.exit_code == 0, said.output
        return {
            "Files after a backfill of three days": sorted(set(_files(data))),
            "Tables of leads.duckdb": list(_tables(data / "leads.duckdb")),
            "Keys of --json": [
                f"{command}: {key}"
                for command in ("coverage", "status", "findings", "doctor")
                for key in _keys(json.loads(_run(command, "--json").stdout))
            ],
            "Metrics": sorted(set(re.findall(r"^# TYPE (\S+ \S+)$", _run("metrics").stdout, re.MULTILINE))),
        }


def _run(*command: str) -> Any:
    return CliRunner().invoke(main, command)


def _one_lead(path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
    if path == "/inventory":
        return 200, json.dumps({"meta": {"nextToken": None}, "items": [{"id": "1"}]}).encode()
    lead = {
        "id": f"{path}{parameters['from-time']}",
        "createdAt": parameters["from-time"],
        "listingDetails": {"id": "1", "images": [{"filename": "1.jpg"}]},
        "viewingTimes": [{}],
    }
    return 200, json.dumps({f"{path.strip('/').removesuffix('-leads')}s": [lead]}).encode()


def _files(data: Path) -> Iterator[str]:
    for path in data.rglob("*"):
        parts = path.relative_to(data).parts
        # Below its own folder, names of files are Dagster's.
        if path.is_dir() or (parts[0] == ".dagster" and len(parts) > 2):
            continue
        name = "/".join(parts)
        for pattern, kind in (
            (r"\d{4}-\d{2}-\d{2}", "DAY"),
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "UUID"),
            (r"(?<![0-9a-z])[0-9a-f]{12,64}(?![0-9a-z])", "HASH"),
            (r"\d{6,}", "NUMBER"),
        ):
            name = re.sub(pattern, kind, name)
        is_private = path.stat().st_mode & 0o077 == 0
        yield f"{name}{'  private' if is_private else ''}{'  link' if path.is_symlink() else ''}"


def _tables(file: Path) -> Iterator[str]:
    with duckdb.connect(str(file), read_only=True) as db:
        tables = db.sql(
            "select table_name, table_type from information_schema.tables where table_schema = 'main' order by 1"
        ).fetchall()
        for table, type_ in tables:
            yield f"{table}{'  view' if type_ == 'VIEW' else ''}"
            columns = db.execute(
                "select column_name, data_type from information_schema.columns "
                "where table_name = ? and table_schema = 'main' order by ordinal_position",
                [table],
            ).fetchall()
            yield from (f"    {column} {data_type}" for column, data_type in columns)


def _keys(found: Any, path: str = "") -> Iterator[str]:
    """The paths of keys in a JSON answer. Lists are taken as their elements."""
    inner: set[str] = set()
    if isinstance(found, dict):
        for key, value in found.items():
            inner |= set(_keys(value, f"{path}.{key}".strip("."))) or {f"{path}.{key}".strip(".")}
    elif isinstance(found, list):
        inner = {key for value in found for key in _keys(value, f"{path}[]")}
    yield from sorted(inner)


if __name__ == "__main__":
    text = surface()
    if sys.argv[1:] == ["--accept"]:
        RECORDED.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
