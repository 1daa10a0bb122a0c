import inspect

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


def test_the_tree_is_the_one_that_the_module_draws() -> None:
    assert set(LeadsPipelineError.__subclasses__()) == TREE.keys()
    assert {parent: parent.__subclasses__() for parent in TREE} == TREE
    defined = {cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)}
    assert errors.__doc__ is not None
    assert {cls for cls in defined if cls.__name__ in errors.__doc__} == defined


@pytest.mark.parametrize("parent", TREE)
def test_a_whole_branch_answers_whether_it_helps_to_ask_again(parent: type[LeadsPipelineError]) -> None:
    assert {cls.is_transient for cls in [parent, *TREE[parent]]} == {parent is TransientError}


def test_each_kind_has_a_reason_of_its_own() -> None:
    made = [made_of(cls) for children in TREE.values() for cls in children]
    assert len({error.reason for error in made}) == len(made)


def test_the_message_ends_with_the_attempts_that_were_made() -> None:
    error = LeadsPipelineError("nobody answers.")
    assert (str(error), error.attempts) == ("nobody answers.", 0)
    for error.attempts, ending in ((1, "(1 attempt)"), (6, "(6 attempts)")):
        assert str(error) == f"nobody answers. {ending}"


def made_of(cls: type[LeadsPipelineError]) -> LeadsPipelineError:
    return RefusedError("what was tried", status=400) if cls is RefusedError else cls("what was tried")
