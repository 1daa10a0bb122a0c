"""What somebody is to be told, and when: each cause once, again while it lasts, and once when it is over.

Belongs here: causes, and what a channel was told of them so far. Doesn't: finding causes (watch.py), sending alerts
(channels.py).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, Final, Self


class Level(IntEnum):
    """An error is told again each day while it lasts, a warning each week."""

    WARNING = 1
    ERROR = 2


REPEATED_AFTER: Final = {Level.WARNING: timedelta(days=7), Level.ERROR: timedelta(days=1)}


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that somebody should know of.

    `key` tells it from others and stays the same while it lasts. `message` says what happened, what is at stake until
    when, and what to do. It is told once it has lasted for `patience`, from `since` where that is known, else from when
    it was noticed. News has no end, and is told once.
    """

    key: str
    title: str
    message: str
    level: Level = Level.ERROR
    patience: timedelta = timedelta(0)
    is_news: bool = False
    since: datetime | None = None


class Occasion(StrEnum):
    """Why an alert is sent."""

    NEW = "new"
    WORSE = "worse"
    STILL = "still"
    OVER = "over"
    TEST = "test"


_WORDS: Final = {Occasion.WORSE: "Worse: ", Occasion.STILL: "Still: ", Occasion.OVER: "Over: "}


@dataclass(frozen=True, slots=True)
class Alert:
    """A message for one channel. `keys` are those of its causes: one, or all news of the moment."""

    occasion: Occasion
    keys: tuple[str, ...]
    title: str
    message: str
    level: Level
    since: datetime
    at: datetime

    @property
    def headline(self) -> str:
        """One line, as for the subject of an e-mail."""
        return f"[leads_pipeline] {_WORDS.get(self.occasion, '')}{self.title}"


@dataclass(frozen=True, slots=True)
class _Noticed:
    """A cause as a channel knows it. `told_at` is None as long as it wasn't told.

    `may_be_told`: it was about to be, and nobody noted what became of it, as where the process was killed meanwhile.
    """

    since: datetime
    title: str
    level: Level
    told_at: datetime | None = None
    is_news: bool = False
    may_be_told: bool = False


@dataclass(slots=True)
class Memory:
    """What one channel was told. An alert that can't be sent is due again."""

    _noticed: dict[str, _Noticed] = field(default_factory=dict)

    def notice(self, causes: Iterable[Cause], now: datetime, is_unsure: Callable[[str], bool]) -> list[Alert]:
        """Take in what there is now, and say what is to be told.

        Where `is_unsure` of a key, its absence doesn't mean that it is over.
        """
        causes_now = {cause.key: cause for cause in causes}
        alerts: list[Alert] = []
        news: list[Alert] = []
        for key in [key for key in self._noticed if key not in causes_now and not is_unsure(key)]:
            entry = self._noticed[key]
            if entry.is_news or (entry.told_at is None and not entry.may_be_told):
                del self._noticed[key]
            else:
                lasted = f"It lasted from {_moment(entry.since)} to {_moment(now)} at most."
                alerts.append(Alert(Occasion.OVER, (key,), entry.title, lasted, entry.level, entry.since, now))
        for key, cause in causes_now.items():
            new = _Noticed(min(cause.since or now, now), cause.title, cause.level, is_news=cause.is_news)
            entry = self._noticed.setdefault(key, new)
            if (occasion := _occasion(cause, entry, now)) is not None:
                message = f"{cause.message}\n\nSince {_moment(entry.since)}."
                alert = Alert(occasion, (key,), cause.title, message, cause.level, entry.since, now)
                (news if cause.is_news else alerts).append(alert)
        return [*alerts, *([_joined(news)] if news else [])]

    def note_may_be_told(self, alert: Alert, *, may_be: bool) -> None:
        """The alert is about to be sent, or couldn't be: whoever may have been told of a cause is told of its end."""
        for key in alert.keys:
            self._noticed[key] = replace(self._noticed[key], may_be_told=may_be)

    def note_told(self, alert: Alert) -> None:
        """The alert was sent."""
        for key in alert.keys:
            if alert.occasion is Occasion.OVER:
                del self._noticed[key]
            else:
                # Of news, which are never told again, the title that they share does no harm.
                entry = self._noticed[key]
                self._noticed[key] = replace(
                    entry, title=alert.title, level=alert.level, told_at=alert.at, may_be_told=False
                )

    def pack(self) -> dict[str, list[Any]]:
        """As JSON has it."""
        return {
            key: [
                entry.since.timestamp(),
                entry.title,
                entry.level.value,
                entry.told_at.timestamp() if entry.told_at else None,
                entry.is_news,
                entry.may_be_told,
            ]
            for key, entry in self._noticed.items()
        }

    @classmethod
    def unpack(cls, packed: Mapping[str, Sequence[Any]]) -> Self:
        """The reverse of `pack`. Raises what a wrong form causes: ValueError, TypeError, AttributeError."""
        return cls(
            {
                key: _Noticed(
                    datetime.fromtimestamp(since, UTC),
                    title,
                    Level(level),
                    datetime.fromtimestamp(told_at, UTC) if told_at is not None else None,
                    is_news,
                    any(may_be_told),
                )
                # Earlier versions kept five of them.
                for key, (since, title, level, told_at, is_news, *may_be_told) in packed.items()
            }
        )


def _occasion(cause: Cause, entry: _Noticed, now: datetime) -> Occasion | None:
    if entry.told_at is None:
        return Occasion.NEW if now - entry.since >= cause.patience else None
    if cause.is_news:
        return None
    if cause.level > entry.level:
        return Occasion.WORSE
    return Occasion.STILL if now - entry.told_at >= REPEATED_AFTER[cause.level] else None


def _joined(news: Sequence[Alert]) -> Alert:
    """One alert of all news of the moment."""
    if len(news) == 1:
        return news[0]
    return replace(
        news[0],
        keys=tuple(alert.keys[0] for alert in news),
        title=f"{news[0].title}, and {len(news) - 1} more",
        message="\n\n".join(alert.message for alert in news),
        level=max(alert.level for alert in news),
    )


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
