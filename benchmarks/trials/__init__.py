"""What takes over beyond one machine, tried on this one: `python -m benchmarks object_storage`.

Belongs here: scripts that can be run again. Doesn't: what was seen (docs/scaling.md).
"""

import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks import portal
from benchmarks.environments import interpreter
from benchmarks.portal import Workload
from benchmarks.side_by_side import FIRST, LEADS, OWN_CODE, YESTERDAY, run


def object_storage() -> None:
    """Pull W1, then try its staged files on an S3-compatible server."""
    w1 = Workload("W1", FIRST, YESTERDAY, 50, LEADS)
    script = Path(__file__).parent / "object_storage.py"
    with tempfile.TemporaryDirectory() as folder, portal.running(w1.leads) as asked:
        run(OWN_CODE, asked, w1, Path(folder))
        environment = {**os.environ, "LEADS_DATA_DIR": folder}
        subprocess.run([str(interpreter(script)), str(script)], env=environment, check=True)
