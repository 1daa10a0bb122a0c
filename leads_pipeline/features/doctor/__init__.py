"""The doctor: asks whether everything works, and reads every file.

    command.py        the commands `doctor` and `verify`
    questions.py      whether settings, secret, services and data folder work
    file_system.py    tries out what a file system has
    verify.py         whether files are whole, and counts agree from raw files to marts

The questions of other features are their own: `Feature.questions` and `Feature.verifier`.
"""

from typing import Final

from leads_pipeline.features.feature import Command, Feature

FEATURE: Final = Feature(
    name="doctor",
    commands={
        "doctor": Command(
            "leads_pipeline.features.doctor.command:doctor",
            "Check settings, secret, token, services and data folder.",
        ),
        "verify": Command(
            "leads_pipeline.features.doctor.command:verify",
            "Check every file, and compare counts from raw files to marts.",
        ),
    },
)
