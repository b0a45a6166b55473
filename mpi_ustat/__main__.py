"""`python -m mpi_ustat` is the command `mpi-ustat`."""

from mpi_ustat.app.cli import console

console()
