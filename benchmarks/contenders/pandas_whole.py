"""pandas_script.py with the same work as own code: raw text that is synced, and the same marts."""

import pandas_script  # beside this file
import whole
from asking import fetch_all


def main() -> None:
    """Fetch and keep, flatten, store, make the marts."""
    pandas_script.store(pandas_script.flatten(fetch_all(whole.keep)))
    whole.make_marts(lambda path: path.replace(".", "_"))


if __name__ == "__main__":
    main()
