from leads_pipeline.errors import LeadsPipelineError, PermanentError, RefusedError, TransientError


def test_each_kind_has_a_reason_of_its_own() -> None:
    kinds = [*TransientError.__subclasses__(), *PermanentError.__subclasses__()]
    made = [cls("what was tried", status=400) if cls is RefusedError else cls("what was tried") for cls in kinds]
    assert len({error.reason for error in made}) == len(kinds)


def test_the_message_ends_with_the_attempts_that_were_made() -> None:
    error = LeadsPipelineError("nobody answers.")
    assert (str(error), error.attempts) == ("nobody answers.", 0)
    for error.attempts, ending in ((1, "(1 attempt)"), (6, "(6 attempts)")):
        assert str(error) == f"nobody answers. {ending}"
