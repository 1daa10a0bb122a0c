# /// script
# dependencies = [
#     "dlt[duckdb,parquet]==1.31.0", "duckdb==2.0.1", "pyarrow==26.0.1", "orjson==3.13.0",
# ]
# ///
"""dlt_pipeline.py with the same work as own code: raw text that is synced, and the same marts."""

import json
import os
import subprocess
from pathlib import Path

import dlt_pipeline  # beside this file


def read(window: dict[str, str], content: bytes) -> list[dict]:
    """Keep the text of an answer, synced. Return its leads with their scope."""
    folder = dlt_pipeline.FOLDER / "kept" / window["from-time"][:10]
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / f"{window['branch-id']}.json", os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, content)
    os.fsync(descriptor)
    os.close(descriptor)

    scope = f"branch-{window['branch-id']}"
    return [{**lead, "scope": scope} for lead in json.loads(content)["applicants"]]


def main() -> None:
    """Run the pipeline, then make the marts by our own interpreter."""
    dlt_pipeline.read = read
    dlt_pipeline.main()
    command = [os.environ["BENCH_PYTHON"], str(Path(__file__).with_name("whole.py"))]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
