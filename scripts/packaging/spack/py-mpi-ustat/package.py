# SPDX-License-Identifier: BSD-3-Clause
"""Spack recipe: see scripts/packaging/README.md for the commands."""

import os

from spack.package import *


class PyMpiUstat(PythonPackage):
    """U-statistics over data spread across MPI processes: estimation, standard errors, learning."""

    homepage = "https://doi.org/10.1007/978-3-030-46147-8_14"
    # On no index: the source distribution lies in the current folder.
    url = f"file://{os.getcwd()}/mpi_ustat-0.2.0.tar.gz"
    manual_download = True

    license("BSD-3-Clause")

    version("0.2.0")

    variant("plot", default=False, description="Draw pictures of results")
    variant("parquet", default=False, description="Read Parquet files")
    variant("sklearn", default=False, description="PairwiseRanker, an estimator of scikit-learn")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("mpi", type=("build", "run"))
    depends_on("py-mpi4py@4.1:", type=("build", "run"))
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-scipy@1.11.1:", type=("build", "run"))
    depends_on("py-h5py@3.10:", type=("build", "run"))
    depends_on("py-tqdm@4.60:", type=("build", "run"))
    depends_on("py-threadpoolctl@3.1:", type=("build", "run"))
    depends_on("py-matplotlib@3.8:", when="+plot", type=("build", "run"))
    depends_on("py-pyarrow@14:", when="+parquet", type=("build", "run"))
    depends_on("py-scikit-learn@1.6:", when="+sklearn", type=("build", "run"))

    import_modules = ["mpi_ustat"]

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_command(self):
        Executable(self.prefix.bin.join("mpi-ustat"))("--version")
