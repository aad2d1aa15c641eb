"""A small program that `rivet up` runs before Dagster's daemon: `python -m rivet_pipeline.automation.leftovers`.

It ends the runs that a killed `rivet up` left behind (see `instance.py`), and makes Dagster's tables when they are
missing.
"""

import dagster as dg

from rivet_pipeline.automation.instance import end_leftover_runs


def main() -> None:
    """Ends the leftover runs of the instance in DAGSTER_HOME and prints how many there were."""
    with dg.DagsterInstance.get() as instance:
        ended = end_leftover_runs(instance)
    if ended:
        print(f"ended {len(ended)} runs of an earlier start")  # noqa: T201 - goes to the log


if __name__ == "__main__":
    main()
