# Recipe for Spack. Not yet run with Spack. There is no release archive, so it builds a checkout:
#   spack repo create copper-repo && mkdir -p copper-repo/packages/copper && cp package.py copper-repo/packages/copper
#   spack repo add copper-repo && spack dev-build -d PATH_OF_THE_CHECKOUT copper@0.1.0
from spack.package import *


class Copper(CMakePackage):
    """Reads a parallel filesystem on one node and broadcasts it to all nodes of a job, for imports on supercomputers."""

    license("Apache-2.0")

    version("0.1.0")

    depends_on("cxx", type="build")
    depends_on("cmake@3.21:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cli11", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("tl-expected", type="build")
    depends_on("hwloc@2:")
    depends_on("libfuse@3.10:")
    depends_on("libsodium")
    depends_on("lz4")
    depends_on("mpi")
    depends_on("ncurses")
    depends_on("spdlog")
    depends_on("tbb")
    depends_on("tomlplusplus")
    depends_on("util-linux")  # libmount
    depends_on("xxhash")

    def cmake_args(self):
        return [self.define("BUILD_TESTING", False)]
