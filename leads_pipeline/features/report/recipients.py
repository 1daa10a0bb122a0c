"""Who gets the weekly mail: LEADS_REPORT_MAIL, as addresses or as a CSV `email,branch`.

Belongs here: reading it. Doesn't: when somebody gets it (mailing.py).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.report.settings import ReportSettings
from leads_pipeline.raw.branches import readable_branches
from leads_pipeline.raw.csv_rows import csv_rows
from leads_pipeline.settings import Settings, list_of, path_of

VARIABLE: Final = "LEADS_REPORT_MAIL"

# One address alone: a comma would make it several.
_ADDRESS: Final = re.compile(r"[^\s,;:<>()\"@]+@[^\s,;:<>()\"@]+")


@dataclass(frozen=True, slots=True)
class Recipient:
    """Somebody who gets the mail, of one branch or of all. `place` names them in messages."""

    email: str
    scope: str | None
    place: str = field(default="", compare=False, repr=False)

    @property
    def key(self) -> str:
        """The same for the same recipient, and no address."""
        return sha256(repr(self).encode()).hexdigest()[:16]


def recipients_of(settings: Settings) -> list[Recipient]:
    """Return who gets the mail.

    Raises SettingsError that names the row at fault, without an address.
    """
    written = settings.of(ReportSettings).report_mail
    if written is None:
        return []
    if not written.lower().endswith(".csv"):
        return _listed(list_of(written))

    header, *rows = csv_rows(path_of(written), f"The file of {VARIABLE}")
    columns = [column.lower() for column in header]
    if "email" not in columns or "branch" not in columns:
        raise _wrong("has no column email or no column branch. Begin with email,branch.")

    scopes = _scopes(settings)
    recipients = []
    for line, row in enumerate(rows, start=2):  # as a spreadsheet counts
        if not any(row):
            continue
        cells = dict(zip(columns, row, strict=False))
        if not _ADDRESS.fullmatch(cells.get("email", "")):
            raise _wrong(f"has no address in row {line}.")
        if "branch" not in cells:
            raise _wrong(f"has no cell branch in row {line}. Empty, after a comma, means all.")
        branch = cells["branch"]
        if branch and branch not in scopes:
            raise _wrong(f"has a branch in row {line} that isn't known. Write its id or its name.")
        place = f"the address in row {line}"
        recipients.append(Recipient(cells["email"], scopes.get(branch), place))
    return list(dict.fromkeys(recipients))


def _listed(emails: Sequence[str]) -> list[Recipient]:
    """Return the recipients of a list of addresses. Each gets the page of all branches."""
    recipients = []
    for number, email in enumerate(emails, start=1):
        if not _ADDRESS.fullmatch(email):
            raise SettingsError(f"{VARIABLE}: entry {number} is no address. Correct it.")
        recipients.append(Recipient(email, None, f"address {number}"))
    return recipients


def _scopes(settings: Settings) -> Mapping[str, str]:
    """Return the scopes of the settings and of LEADS_BRANCHES_FILE, by key, id and name."""
    names = readable_branches(settings.branches_file).names
    keys = [scope.key for scope in settings.scopes]
    keys.extend(names)

    scopes = dict[str, str]()
    for key in keys:
        scopes[key] = key
        scopes[key.removeprefix("branch-")] = key
    for key, name in names.items():
        scopes[name] = key
    return scopes


def _wrong(what: str) -> SettingsError:
    return SettingsError(f"The file of {VARIABLE} {what}")
