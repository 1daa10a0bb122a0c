"""Who gets the weekly mail: LEADS_REPORT_MAIL, as addresses or as a CSV `email,branch`.

Belongs here: reading it. Doesn't: when somebody gets it (mailing.py).
"""

import csv
from collections.abc import Mapping
from hashlib import sha256
from io import StringIO
from typing import Final, NamedTuple

from leads_pipeline.domain.window import Scope
from leads_pipeline.errors import SettingsError
from leads_pipeline.features.report.settings import ReportSettings
from leads_pipeline.raw.branches import readable_branches
from leads_pipeline.settings import Settings, list_of, path_of

VARIABLE: Final = "LEADS_REPORT_MAIL"


class Recipient(NamedTuple):
    """Somebody who gets the mail, of one branch or of all."""

    email: str
    scope: str | None

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
        return [Recipient(email, None) for email in list_of(written)]

    path = path_of(written)
    try:
        rows = csv.DictReader(StringIO(path.read_bytes().decode("utf-8-sig"), newline=""))
        names = [name.strip().lower() for name in rows.fieldnames or ()]
    except OSError as error:
        raise _wrong(f"can't be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise _wrong("isn't in UTF-8. In Excel, save it as CSV UTF-8.") from None
    if "email" not in names or "branch" not in names:
        raise _wrong("has no column email or no column branch. Begin with email,branch.")

    rows.fieldnames = names
    scopes = {
        name: scope for scope, name in readable_branches(settings.branches_file).names.items()
    }
    recipients = []
    for line, row in enumerate(rows, start=2):
        email, branch = ((row[name] or "").strip() for name in ("email", "branch"))
        if "@" in email:
            recipients.append(Recipient(email, _scope_of(branch, scopes, line)))
        elif email or branch:
            raise _wrong(f"has no address in row {line}.")
    return list(dict.fromkeys(recipients))


def _scope_of(branch: str, scopes: Mapping[str, str], line: int) -> str | None:
    """Return the scope of an id, a scope or a name. None if it is empty: all branches."""
    if not branch or branch in scopes:
        return scopes.get(branch)
    try:
        return Scope.parse(branch if "-" in branch else f"branch-{branch}").key
    except SettingsError:
        raise _wrong(
            f"has a branch in row {line} that isn't known. Write its id or its name."
        ) from None


def _wrong(what: str) -> SettingsError:
    return SettingsError(f"The file of {VARIABLE} {what}")
