"""`python -m mpi_ustat` is the command `mpi-ustat`."""

from typing import NoReturn

from mpi_ustat.app.signals import hold


def console() -> NoReturn:
    """Run the command line; signals that come while it is loaded are held back."""
    hold()
    from mpi_ustat.app import cli

    cli.console()


if __name__ == "__main__":
    console()
