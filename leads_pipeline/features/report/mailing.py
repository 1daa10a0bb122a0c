"""Mailing the weekly page: each Monday at 07:00, once to each recipient.

Belongs here: when a mail is due, and to whom. Doesn't: what it says (mail.py), how a mail is sent
(leads_pipeline/mail.py).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache, partial
from time import monotonic
from typing import Final

from leads_pipeline.errors import SettingsError, UnansweredError
from leads_pipeline.features.report.content import read_content
from leads_pipeline.features.report.mail import mail_of
from leads_pipeline.features.report.memory import Memory
from leads_pipeline.features.report.recipients import VARIABLE, Recipient, recipients_of
from leads_pipeline.mail import Mail, MailServer, attempt
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.published import Edition, LeadsFile

# Local time. Until noon it waits for days that haven't landed.
_AT: Final = time(7)
_NOON: Final = time(12)
# A Monday that was missed is made up for until the end of Wednesday.
_LAST_WEEKDAY: Final = 3
_RETRY_AFTER: Final = timedelta(hours=1)
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
# Dagster ends a tick of a sensor after a minute. The next tick goes on.
_TICK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Sent:
    """How many mails were sent. `trouble` says why one wasn't, `waits` why none is due."""

    count: int = 0
    trouble: str | None = None
    waits: str | None = None


def send_due(settings: Settings, data: DataFolder, now: datetime) -> Sent:
    """Send this week's mail to those who haven't got it. Raises LeadsPipelineError."""
    local = now.astimezone(settings.zone)
    recipients = recipients_of(settings)
    if not recipients:
        return Sent(waits=f"{VARIABLE} names nobody.")
    if local.isoweekday() > _LAST_WEEKDAY or (local.isoweekday() == 1 and local.time() < _AT):
        return Sent(waits="The mail is due on Monday at 07:00.")

    with data.state.lock("report-mail"):
        memory = Memory.of_week(data, local.date())
        left = [one for one in recipients if one.key not in memory.sent]
        if not left:
            return Sent(waits="Everybody has this week's mail.")
        memory.failed = {
            one.key: memory.failed[one.key] for one in left if one.key in memory.failed
        }
        ready = _in_order(left, memory.failed, now)
        if not ready:
            return Sent(waits="It failed, and is tried again within the hour.")

        with LeadsFile(data).reading() as db:
            content = read_content(db)
            published_on = content.days["today"]
            if published_on is None or published_on < memory.monday:
                return Sent(waits="Nothing was published since last week.")
            if content.missing and local.time() < _NOON:
                return Sent(
                    waits="Days of last week have not landed. The mail waits for them until noon."
                )
            return _send(settings, data, db, memory, ready, now, seconds=_TICK_SECONDS)


def send_now(settings: Settings, data: DataFolder, now: datetime) -> Sent:
    """Send the mail to everybody, whether they have it or not. Raises LeadsPipelineError."""
    recipients = recipients_of(settings)
    if not recipients:
        raise SettingsError(f"{VARIABLE} names nobody. Set it and LEADS_SMTP_URL.")
    with data.state.lock("report-mail"), LeadsFile(data).reading() as db:
        memory = Memory.of_week(data, now.astimezone(settings.zone).date())
        return _send(settings, data, db, memory, recipients, now)


def _in_order(
    recipients: Sequence[Recipient], failed: Mapping[str, datetime], now: datetime
) -> list[Recipient]:
    """Return those whose mail didn't fail within the hour.

    Those that never failed come first: the others may take all the time of a tick.
    """
    ready = []
    for one in recipients:
        failed_at = failed.get(one.key)
        if failed_at is None or not failed_at <= now < failed_at + _RETRY_AFTER:
            ready.append(one)
    return sorted(ready, key=lambda one: failed.get(one.key, _NEVER))


def _send(
    settings: Settings,
    data: DataFolder,
    db: Edition,
    memory: Memory,
    recipients: Sequence[Recipient],
    now: datetime,
    *,
    seconds: float = math.inf,
) -> Sent:
    """Send it to these recipients. Those who are left after that time wait for the next one."""
    server = MailServer.of(settings)
    if server is None:
        raise SettingsError(f"{VARIABLE} needs LEADS_SMTP_URL. Set both, or none.")

    began = monotonic()
    count = 0
    last_trouble = None
    mail_of_scope = cache(lambda scope: mail_of(read_content(db, scope)))
    for recipient in recipients:
        if monotonic() > began + seconds:
            break
        mail = mail_of_scope(recipient.scope)

        # Remembered before it is sent: a killed process sends nothing twice.
        memory.note_sending(recipient.key)
        memory.write(data)

        send = partial(_send_to, server, mail, recipient, now)
        is_sent, trouble = attempt(server.name, send)
        last_trouble = trouble or last_trouble
        if is_sent:
            memory.note_sent(recipient.key)
            count += 1
        else:
            memory.note_failed(recipient.key, trouble, now)
            memory.write(data)

    # The trouble of before stays while there are mails that failed.
    if last_trouble or not memory.failed:
        memory.trouble = last_trouble
    memory.write(data)
    return Sent(count, last_trouble)


def _send_to(server: MailServer, mail: Mail, recipient: Recipient, now: datetime) -> str | None:
    """Send it. Return a sentence if it may not have arrived: then it isn't sent a second time."""
    try:
        # One recipient alone is refused by an error, never in a sentence.
        server.send(mail, [recipient.email], now, variable=VARIABLE, shown=recipient.place)
    except UnansweredError as error:
        return str(error)
    return None
