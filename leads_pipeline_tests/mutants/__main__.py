"""`python -m leads_pipeline_tests.mutants [NAME ...] [--tests PATH ...]`: which mutants do the tests catch?

Each mutant's own tests run, or those that are given. The exit code is 1 if a mutant is alive. A process that a test
starts without the variables of this one runs the product as it is.
"""

import argparse
import os
import subprocess
import sys

from leads_pipeline_tests.mutants import broken  # noqa: F401 - it declares them
from leads_pipeline_tests.mutants.patching import MUTANTS, ROOT, TESTS, VARIABLE, check

CAUGHT, ALIVE = 1, 0  # pytest's exit codes: tests failed, all passed


def main() -> int:
    """Try the mutants and print a line for each."""
    parser = argparse.ArgumentParser(description="Break the product on purpose, and see the tests notice.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="words of the mutants' names; all if there are none")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="these tests instead of each mutant's own")
    given = parser.parse_args()
    chosen = [one for one in MUTANTS.values() if not given.names or any(word in one.name for word in given.names)]
    results = []
    for one in chosen:
        check(one)
        path = os.pathsep.join(
            filter(None, (str(ROOT / "leads_pipeline_tests/mutants/site"), os.environ.get("PYTHONPATH")))
        )
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-x",
                "-q",
                "-p",
                "no:cacheprovider",
                *(given.tests or [str(TESTS / test) for test in one.tests]),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, VARIABLE: one.name},
            capture_output=True,
            text=True,
            check=False,
        )
        # An exit code alone may also come from an environment that is broken.
        lines = done.stdout.splitlines()
        by = next((line.split(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR leads"))), "")
        verdict = (
            "ALIVE" if done.returncode == ALIVE else "caught" if done.returncode == CAUGHT and by else "no tests ran"
        )
        results.append(verdict)
        print(f"{verdict:<12} {one.name} ({one.promise}) {by}", flush=True)  # noqa: T201 - it is a command
        if verdict == "no tests ran":
            print(done.stdout[-2000:], done.stderr[-2000:])  # noqa: T201 - likewise
    print(f"{results.count('caught')} of {len(results)} mutants are caught.")  # noqa: T201 - likewise
    return 0 if set(results) == {"caught"} else 1


sys.exit(main())
