import inspect
import pickle

import pytest

from leads_pipeline import errors
from leads_pipeline.errors import (
    AlertError,
    BugError,
    BusyError,
    CredentialsError,
    InvalidAnswerError,
    LeadsPipelineError,
    PermanentError,
    QuestionError,
    RefusedError,
    RetentionError,
    ServerError,
    SettingsError,
    StorageError,
    TooLargeError,
    TransientError,
    UnreachableError,
)

TREE: dict[type[LeadsPipelineError], list[type[LeadsPipelineError]]] = {
    TransientError: [BusyError, ServerError, UnreachableError, InvalidAnswerError, StorageError, AlertError],
    PermanentError: [
        SettingsError,
        QuestionError,
        CredentialsError,
        RefusedError,
        TooLargeError,
        RetentionError,
        BugError,
    ],
}


@pytest.mark.parametrize("kind", [*TREE, *(kind for kinds in TREE.values() for kind in kinds)])
def test_an_error_goes_from_process_to_process_with_all_that_it_says(kind: type[LeadsPipelineError]) -> None:
    error = kind("The text.", status=403) if kind is RefusedError else kind("The text.")
    error.attempts = 3
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(copy), copy.args, copy.__dict__, str(copy)) == (kind, error.args, error.__dict__, str(error))


def test_the_tree_is_the_one_that_the_module_draws() -> None:
    assert set(LeadsPipelineError.__subclasses__()) == TREE.keys()
    assert {parent: parent.__subclasses__() for parent in TREE} == TREE
    defined = {cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)}
    assert errors.__doc__ is not None
    assert {cls for cls in defined if cls.__name__ in errors.__doc__} == defined


@pytest.mark.parametrize("parent", TREE)
def test_a_whole_branch_answers_whether_it_helps_to_ask_again(parent: type[LeadsPipelineError]) -> None:
    assert {cls.is_transient for cls in [parent, *TREE[parent]]} == {parent is TransientError}


def test_an_error_of_no_branch_is_not_asked_again() -> None:
    assert not LeadsPipelineError("something").is_transient


def test_each_kind_has_a_reason_of_its_own() -> None:
    made = [made_of(cls) for children in TREE.values() for cls in children]
    assert len({error.reason for error in made}) == len(made)


@pytest.mark.parametrize("cls", [cls for children in TREE.values() for cls in children])
def test_the_message_and_a_reason_given_are_kept(cls: type[LeadsPipelineError]) -> None:
    error = made_of(cls, reason="busy doing nothing")
    assert (str(error), error.reason) == ("what was tried", "busy doing nothing")


def test_the_message_ends_with_the_attempts_that_were_made() -> None:
    error = LeadsPipelineError("nobody answers.")
    assert (str(error), error.attempts) == ("nobody answers.", 0)
    for error.attempts, ending in ((1, "(1 attempt)"), (6, "(6 attempts)")):
        assert str(error) == f"nobody answers. {ending}"


def test_the_reason_of_a_refusal_names_the_status() -> None:
    assert RefusedError("no", status=403).reason == "refused (403)"
    assert RefusedError("no", status=403).status == 403


@pytest.mark.parametrize("cls", [BusyError, ServerError])
def test_patience_asked_for_is_carried(cls: type[BusyError] | type[ServerError]) -> None:
    assert cls("later", retry_after_seconds=12.5).retry_after_seconds == 12.5
    assert cls("later").retry_after_seconds is None


def made_of(cls: type[LeadsPipelineError], reason: str | None = None) -> LeadsPipelineError:
    if cls is RefusedError:
        return RefusedError("what was tried", status=400, reason=reason)
    return cls("what was tried", reason=reason)
