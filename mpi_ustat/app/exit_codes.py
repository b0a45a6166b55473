"""Exit codes that more than one part of the program gives."""

from __future__ import annotations

INTERRUPTED = 130
"""Exit code of an interrupted run: 128 and the number of SIGINT, as shells have it."""

STOPPED = 75
"""Exit code of a run that wrote a checkpoint and is to be resumed (sysexits' EX_TEMPFAIL)."""
