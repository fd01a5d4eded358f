#!/usr/bin/python3
"""Our broadcast beside MPI_Bcast (bench/bcast.cpp), between 4 and 8 ranks over shared memory and over TCP.

    bench/bcast.py [--runs N] [--plot docs/bcast.svg]

Prints a table; the plot needs Debian's python3-matplotlib.
"""

import argparse
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support"))

from copper import build_directory

TRANSPORTS = {"shared memory": "vader,self", "TCP": "tcp,self"}


def measure(ranks, transport, runs):
    """Rows of (bytes, seconds of MPI_Bcast, of ours pushed, of ours asked for)."""
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", TRANSPORTS[transport],
             "--mca", "btl_tcp_if_include", "lo", "-n", str(ranks), build_directory() / "bench" / "copper_bcast", "--runs",
             str(runs)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]]
    return [(int(row[1]), *(float(cell) / 1e6 for cell in row[2:5])) for row in cells]


def plot(results, path):
    import matplotlib  # needed for the plot alone
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "copper"
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for (ranks, transport), rows in results.items():
        axes.plot([row[0] for row in rows], [row[3] / row[1] for row in rows], marker="o",
                  label=f"{ranks} ranks, {transport}")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("bytes")
    axes.set_ylabel("time against MPI_Bcast")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--plot", metavar="FILE", help="where to write the plot, an SVG")
    arguments = parser.parse_args()
    results = {(ranks, transport): measure(ranks, transport, arguments.runs)
               for transport in TRANSPORTS for ranks in (4, 8)}
    print("| ranks | transport | bytes | MPI_Bcast | pushed | asked for | pushed / MPI | asked for / MPI |")
    print("|---|---|---|---|---|---|---|---|")
    for (ranks, transport), rows in results.items():
        for size, mpi, pushed, asked in rows:
            print(f"| {ranks} | {transport} | {size:,} | {mpi * 1e6:,.1f} us | {pushed * 1e6:,.1f} us | "
                  f"{asked * 1e6:,.1f} us | {pushed / mpi:.2f} | {asked / mpi:.2f} |")
    if arguments.plot:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
