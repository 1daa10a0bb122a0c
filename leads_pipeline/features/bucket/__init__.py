"""The bucket: the data of several machines in a store, which each of them reads through a copy.

    settings.py     the address in LEADS_DATA_DIR, and AWS_ENDPOINT_URL
    bucket.py       what the core asks for: the store, its copy, and whether it is fit
    store.py        a bucket that speaks S3
    cache.py        the copy of its raw files on this machine
    proof.py        tries out whether it does what the pipeline needs
    questions.py    what `doctor` asks
    step.py         deletes the copy after the data has moved into the folder

Without the feature, LEADS_DATA_DIR has to name a folder.
"""

from typing import Final

from leads_pipeline.features.feature import Feature

FEATURE: Final = Feature(
    name="bucket",
    settings="leads_pipeline.features.bucket.settings:BucketSettings",
    bucket="leads_pipeline.features.bucket.bucket",
    steps="leads_pipeline.features.bucket.step:steps",
    derives=(".cache/raw", ".cache/restricted"),
    questions="leads_pipeline.features.bucket.questions:questions",
)
