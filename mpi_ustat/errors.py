"""The errors that a user can cause and mend."""

from __future__ import annotations


class UserError(ValueError):
    """Something the caller can put right.

    The message is one sentence that names the cause and the remedy; the command line prints it alone and exits 2.
    """
