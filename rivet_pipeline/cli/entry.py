"""Where the `rivet` command begins: `rivet hook` is dealt with here, and everything else handed to `main.py`.

A hook is called at every turn of somebody's agent, so it starts in milliseconds, prints nothing, and ends with 0
whatever happens. Nothing that takes long to import may be imported here.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Runs the command line and exits."""
    if sys.argv[1:2] == ["hook"] and not {"-h", "--help"} & set(sys.argv[2:]):
        _hook(sys.argv[2] if len(sys.argv) > 2 else "")
    from rivet_pipeline.cli.main import main as run

    run()


def _hook(harness: str) -> None:
    try:
        from rivet_pipeline.transcripts.hook_jobs import leave_job

        # The environment is otherwise the settings' alone to read; loading them takes longer than all of this.
        leave_job(harness, os.environ)
    finally:
        # Not even a failure to import, or an interrupt, may reach the agent.
        os._exit(0)


if __name__ == "__main__":
    main()
