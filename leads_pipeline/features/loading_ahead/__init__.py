"""Loading ahead: while a large pull waits for the portal, a helper process loads its windows.

It loads in rounds into a draft of its own, and each round is one transaction. The publication after
the pull adopts the draft and loads the rest. It deletes the draft if that was begun from something
else than what is there now. A helper that is killed leaves a draft that ends with its last round.

Belongs here: the draft (draft.py), the helper's beginning and end (pull.py), its rounds
(helper.py), which draft a publication adopts (step.py). Doesn't: how windows are loaded
(warehouse/load_leads.py), what the publication makes of them (warehouse/publication.py).
"""

from leads_pipeline.features.feature import Feature

FEATURE = Feature(
    name="loading_ahead",
    during_pull="leads_pipeline.features.loading_ahead.pull:loading_ahead",
    loading_steps="leads_pipeline.features.loading_ahead.step:steps",
    derives=(".versions/ahead",),
)
