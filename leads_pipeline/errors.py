"""All errors, by one question: does it help to ask again?

A TransientError can pass by itself. After a PermanentError, somebody has to change something first.

Every message says what was tried, what came back and what to do now. None holds a secret, a token
or a lead.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Self


class LeadsPipelineError(Exception):
    """Root of the tree.

    `reason` names the cause in a few words, for example "busy (429)". It never varies with the
    window, the time or the message. `attempts` counts the requests that were made. If there were
    any, the message ends with it. `retry_after_seconds` is the wait that a service asked for, None
    if it named none.
    """

    default_reason: ClassVar[str] = "unexpected"
    is_transient: ClassVar[bool] = False

    def __init__(
        self, message: str, *, reason: str | None = None, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason or self.default_reason
        self.retry_after_seconds = retry_after_seconds
        self.attempts = 0

    def reworded(self, message: str, attempts: int) -> Self:
        """The same error in other words."""
        other = type(self).__new__(type(self), message)
        other.__dict__.update(self.__dict__, attempts=attempts)
        return other

    def __str__(self) -> str:
        counted = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"{super().__str__()} ({counted})" if self.attempts else super().__str__()


class TransientError(LeadsPipelineError):
    """The same request can succeed later, without anybody changing anything."""

    is_transient = True


class BusyError(TransientError):
    """The service answered 429: it asks for patience."""

    default_reason = "busy (429)"


class ServerError(TransientError):
    """The service answered 5xx, or a token server misbehaves."""

    default_reason = "server error"


class UnreachableError(TransientError):
    """No connection, a broken one, a deadline that passed, or an alert that couldn't be sent."""

    default_reason = "unreachable"


class UnansweredError(UnreachableError):
    """A mail was handed over, and no answer came. It may have arrived."""


class TokenRefusedError(TransientError):
    """The service answered 401.

    Only the end of a run shows whether that can pass (portal/verdicts.py). `token_fetched_at` is
    the moment in UTC when the refused token was asked for.
    """

    default_reason = "token refused (401)"
    token_fetched_at: datetime = datetime.min.replace(tzinfo=UTC)


class InvalidAnswerError(TransientError):
    """The status says success, and the body isn't an answer. Landed leads stay as they are."""

    default_reason = "invalid answer"


class StorageError(TransientError):
    """The data folder can't be read or written. Temporary, because a full disk gets free again."""

    default_reason = "storage"


class OutOfMemoryError(StorageError):
    """A statement needs more memory or space to spill than it may have. Others may do with it."""

    default_reason = "out of memory"


class PermanentError(LeadsPipelineError):
    """Asking again is useless until somebody changes a setting, a credential or the request."""


class SettingsError(PermanentError):
    """A setting is missing or wrong. The message names the environment variable."""

    default_reason = "settings"


class QuestionError(PermanentError):
    """An argument is wrong. The message says how to write it, and repeats nothing of it."""

    default_reason = "question"


class CredentialsError(PermanentError):
    """The client secret can't be read, or the token server refuses the pair."""

    default_reason = "credentials"


class RefusedError(PermanentError):
    """The service refuses the request itself."""

    default_reason = "refused"


class TooLargeError(PermanentError):
    """The answer has more bytes than are taken, also for the shortest piece of a window."""

    default_reason = "body too large"


class RetentionError(PermanentError):
    """The window lies wholly before what the portal still keeps."""

    default_reason = "past retention"


class BugError(PermanentError):
    """The pipeline itself is wrong, for example if DuckDB refuses one of its statements."""

    default_reason = "bug"


def how_to_install(extra: str) -> str:
    """Say how to install an extra of the pipeline: the end of an error about a missing package."""
    is_checkout = Path(__file__).parents[1].joinpath("pyproject.toml").exists()
    if is_checkout:
        return (
            "Install it in the checkout: `.venv/bin/uv pip install -c requirements.lock -e "
            f"'.[{extra}]'`."
        )
    return f"Install it into the same environment: `pip install 'leads-pipeline[{extra}]'`."
