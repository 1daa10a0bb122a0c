"""Run the benchmarks and print their tables: `python -m benchmarks [NAME ...]`."""

import sys
from collections.abc import Callable

from benchmarks import erasing, latency, publishing, pushes, scale, side_by_side

BENCHMARKS: dict[str, Callable[[], None]] = {
    "side_by_side": side_by_side.main,
    "latency": latency.main,
    "scale": scale.main,
    "publishing": publishing.main,
    "pushes": pushes.main,
    "erasing": erasing.main,
}


def main() -> None:
    """Run the named benchmarks, or all; with BENCH_QUICK the first alone, in two minutes."""
    for name in sys.argv[1:] or list(BENCHMARKS)[: 1 if side_by_side.QUICK else None]:
        print(f"\n== {name}\n")
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
