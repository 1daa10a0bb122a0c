# /// script
# dependencies = ["chdb==4.4.0"]
# ///
"""ClickHouse as a reader of Delta tables, in an environment of its own: each line asks for a table at a version.

An answer is a stream of Arrow with its length before it; an empty one says that ClickHouse couldn't.
"""

import json
import os
import struct
import sys

from chdb.session import Session


def main() -> None:
    """Answer until there are no more lines."""
    os.chdir("/")  # it reads files below this folder alone
    session = Session()
    for line in sys.stdin:
        asked = json.loads(line)
        version = -1 if asked["version"] is None else int(asked["version"])
        places = ", ".join(f"'{part}'" for part in asked["place"])
        settings = f"delta_lake_snapshot_version = {version}, output_format_arrow_string_as_string = 1"
        try:
            query = f"select * from {asked['function']}({places}) settings {settings}"  # noqa: S608 - a test's own
            answer = session.query(query, "ArrowStream").bytes()
        except Exception:  # noqa: BLE001 - it has several, of which it exports one
            answer = b""
            # Else what the failed query has put out by then would stand at the beginning of the next one's answer.
            session.close()
            session = Session()
        sys.stdout.buffer.write(struct.pack("<Q", len(answer)) + answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
