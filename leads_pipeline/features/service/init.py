"""The files that an installation without a checkout needs: `init`.

Belongs here: .env, the systemd unit and the compose file, made from the settings' model and from
the files in deploy/. The folder deploy beside this file links to them, and a wheel has copies.
Doesn't: what the settings mean (settings.py).
"""

import grp
import os
import pwd
import re
import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from textwrap import indent, wrap
from typing import Final

import click

from leads_pipeline.cli.settings import Variable, described
from leads_pipeline.errors import QuestionError
from leads_pipeline.raw.durable import replace_file

_TEMPLATES: Final = Path(__file__).parent / "deploy"

_ENV_WIDTH: Final = 120
_ENV_HEAD: Final = """\
# Fill this in as .env. A real service needs the first part; of two forms of the secret, it needs
# one. Dagster and the command line load .env by themselves. An empty variable counts as not set.
# `leads-pipeline settings` shows what is set, and from where.

"""

_COMPOSE_HEAD: Final = """\
# leads-pipeline in containers: `docker compose up --build --detach`, or podman-compose from 1.6 on.
# It reads .env in this folder, and keeps everything in the volume `data`.
"""


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
def init(folder: Path) -> None:
    """Write .env, a systemd unit and a compose file into FOLDER, or into the working directory.

    The unit runs this very program in FOLDER, with the data in its subfolder data. Files that are
    there are left.
    """
    folder = folder.resolve()
    if not str(folder).isprintable():
        raise QuestionError(
            f"A systemd unit can't hold the path {str(folder)!r}. Choose another name for the "
            "folder."
        )
    program = Path(sys.executable).with_name("leads-pipeline")
    texts = {
        ".env": env_file(),
        "leads-pipeline.service": _unit(folder, program),
        "compose.yaml": _compose_file(),
    }

    left = [name for name in texts if os.path.lexists(folder / name)]
    written = [name for name in texts if name not in left]
    for name in written:
        replace_file(folder / name, texts[name].encode())

    if written:
        click.echo(f"Wrote {', '.join(written)} into {folder}.")
    if left:
        click.echo(f"Left as {'it was' if len(left) == 1 else 'they were'}: {', '.join(left)}.")
    _show_next_steps(folder, program)


def env_file() -> str:
    """Return the text of an .env that isn't filled in.

    DAGSTER_HOME is a comment, as an empty value there would win in Dagster. So are values that are
    only proposed.
    """
    lines = [_ENV_HEAD]
    for section, variables in groupby(described(), lambda one: one.section):
        lines.append(f"# --- {section} ".ljust(_ENV_WIDTH, "-") + "\n\n")
        for variable in variables:
            lines += _lines_of(variable)
        lines.append("\n")
    return "".join(lines).rstrip("\n") + "\n"


def _lines_of(variable: Variable) -> Iterator[str]:
    default = f" Default: {variable.default}." if variable.default else ""
    for line in wrap(f"{variable.help}.{default}", _ENV_WIDTH - 2, break_on_hyphens=False):
        yield f"# {line}\n"

    mark = "# " if variable.proposal or variable.name == "DAGSTER_HOME" else ""
    yield f"{mark}{variable.name}={variable.proposal}\n"
    if variable.is_secret:
        yield "# Or a file that holds it alone, in a line\n"
        yield f"{variable.name}_FILE=\n"


# --- the systemd unit -----------------------------------------------------------------------------


def _unit(folder: Path, program: Path) -> str:
    """Return the unit of a server, with this installation's account, program and folder."""
    account, group = _account()
    # A unit of a server has folders in /etc and /var/lib. These lines go, with their comments.
    left_out = {
        "Environment",
        "ConfigurationDirectory",
        "ConfigurationDirectoryMode",
        "StateDirectory",
        "StateDirectoryMode",
    }
    changed = {
        "User": account,
        "Group": group,
        "WorkingDirectory": str(folder).replace("%", "%%"),
        # `yes` would hide a folder and a program in somebody's home.
        "ProtectHome": "read-only",
    }

    lines: list[str] = []

    for line in _template("leads-pipeline.service").splitlines():
        name, _, value = line.partition("=")
        if name in left_out:
            while lines[-1].startswith("#"):
                lines.pop()
            continue
        if name == "ExecStart":
            _, _, arguments = value.partition(" ")
            changed[name] = f"{_quoted(program)} {arguments}"
        lines.append(f"{name}={changed[name]}" if name in changed else line)
        if name == "WorkingDirectory":
            comment = "# If .env names other folders, such as LEADS_PRIVACY_DIR, add them here."
            lines += [comment, f"ReadWritePaths={_quoted(folder)}"]

    return "\n".join([*lines, ""])


def _account() -> tuple[str, str]:
    """Return this user and group, by name if they have one.

    Root's service runs as an account of its own.
    """
    user = os.geteuid()
    group = os.getegid()
    if user == 0:
        return "leads-pipeline", "leads-pipeline"
    try:
        return pwd.getpwuid(user).pw_name, grp.getgrgid(group).gr_name
    except KeyError:
        return str(user), str(group)


def _quoted(path: Path) -> str:
    """Return the path as systemd reads it within a list.

    The rules are in systemd.syntax(7), "Quoting", and in systemd.unit(5).
    """
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


# --- the compose file -----------------------------------------------------------------------------


def _compose_file() -> str:
    """Return the compose file, with an image that is built from the package, not the checkout."""
    # $ would begin a variable of compose.
    steps = _image().replace("$", "$$")
    build = f"  build:\n    dockerfile_inline: |\n{indent(steps, ' ' * 6)}  env_file: .env\n"

    _, name, services = _template("compose.yaml").partition("\nname: ")
    services = re.sub(
        r"^  build:\n.*?^  env_file: [^\n]*\n",
        lambda _: build,
        services,
        flags=re.MULTILINE | re.DOTALL,
    )
    return _COMPOSE_HEAD + name.lstrip("\n") + services


def _image() -> str:
    """Return the steps of the image.

    The package and all that it needs come from the index, not from the checkout.
    """
    _, begin, rest = _template("Containerfile").partition("FROM docker.io/")
    build, environment, rest = rest.partition("RUN python3 -m venv /opt/leads-pipeline/.venv\n")
    _, end, runtime = rest.rpartition("\nFROM debian\n")

    package = f"leads-pipeline[delta,postgres,s3]=={version('leads-pipeline')}"
    install = f"RUN /opt/leads-pipeline/.venv/bin/pip install --no-cache-dir '{package}'\n"
    return begin + build + environment + install + end + runtime


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _show_next_steps(folder: Path, program: Path) -> None:
    path = shlex.quote(str(folder))
    command = shlex.quote(str(program))
    install = "sudo install -m 644 leads-pipeline.service /etc/systemd/system/"
    start = "sudo systemctl enable --now leads-pipeline"
    if os.geteuid() == 0:
        account = (
            "(id leads-pipeline || useradd --system leads-pipeline) && chown -R leads-pipeline: ."
        )
        install = f"{account} && {install.removeprefix('sudo ')}"
        start = start.removeprefix("sudo ")

    click.secho("\nWhat to do next", bold=True)
    click.echo(f"1. Fill in {folder}/.env. Then try it: `cd {path} && {command} doctor`.")
    click.echo(f"2. As a service: `cd {path} && {install} && {start}`.")
    click.echo(f"3. Or in containers: `cd {path} && docker compose up --build --detach`.")
