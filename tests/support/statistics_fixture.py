"""Made-up statistics of a job of many nodes, as `copper stop` leaves them in stats.json, to look at pages without the nodes:

    python3 tests/support/statistics_fixture.py 1000 >stats.json && copper report -o report.html stats.json

The job imports a package on all nodes at once; some nodes are slow, some read alone, some are lost.
"""

import json
import math
import random
import sys

BEGIN_MS = 1_795_384_800_000
STEP_MS = 250
PACKAGES = "/lustre/sw/conda/lib/python3.11/site-packages"


def timeline(nodes, rng):
    """The nodes come within 4 s, read metadata for 10 s and large files after that, and train from then on."""
    steps = []
    for step in range(110):
        at = step * STEP_MS / 1000
        ready = round(nodes * (math.tanh(at - 1.5) - math.tanh(at - 1.5 - STEP_MS / 1000)) / 2) if at < 5 else 0
        burst = math.exp(-((at - 7) / 3) ** 2) + 0.35 * math.exp(-((at - 15) / 2) ** 2)
        requests = int(nodes * 95 * burst * rng.uniform(0.8, 1.2))
        operations = int(210 * math.exp(-((at - 5.5) / 2) ** 2) * rng.uniform(0.7, 1.3))
        bytes_read = int(nodes * 9_000_000 * math.exp(-((at - 14) / 4) ** 2) * rng.uniform(0.8, 1.2))
        counts = [abs(ready), requests, operations, int(operations * 310_000), bytes_read, 3 if 60 <= step < 63 and nodes > 10 else 0]
        if any(counts):
            steps.append([step, *counts])
    left = nodes - sum(step[1] for step in steps)
    steps[0][1] += left
    return {"begin_ms": BEGIN_MS, "step_ms": STEP_MS, "steps": steps}


def conspicuous(nodes, rng):
    found = [{"rank": rank, "host": f"cn{rank:04}", "state": "serving", "why": "", "ready_ms": BEGIN_MS + rng.randint(0, 3900),
              "requests": rng.randint(1500, 2500), "wait_p99_us": int(rng.paretovariate(1.6) * 4000),
              "wait_max_us": 900_000, "direct_reads": 0, "retries": rng.randint(0, 9), "rss_bytes": rng.randint(4, 9) << 27}
             for rank in rng.sample(range(nodes), min(nodes, 24))]
    found.sort(key=lambda node: -node["wait_p99_us"])
    if nodes > 10:
        for node, why in zip(found, ("crashed: signal 11 (Segmentation fault)", "")):
            node.update(state="degraded", why=why, direct_reads=rng.randint(1, 9))
    return found


def paths(nodes, rng):
    modules = [f"{PACKAGES}/{package}/{name}.py" for package in ("torch", "numpy", "scipy/stats", "transformers/models")
               for name in ("__init__", "core", "_utils", "config", "types")]
    used = [{"path": path, "requests": nodes * rng.randint(3, 9), "absent": 0, "bytes_read": nodes * rng.randint(1, 90) * 1000}
            for path in modules]
    absent = [{"path": f"{PACKAGES}/{name}{ending}", "requests": nodes * 2, "absent": nodes * 2, "bytes_read": 0}
              for name in ("torch", "numpy", "scipy") for ending in (".cpython-311-x86_64-linux-gnu.so", ".abi3.so", ".so")]
    return sorted(used + absent, key=lambda path: -path["requests"])


def statistics(nodes):
    rng = random.Random(nodes)
    line = timeline(nodes, rng)
    requests, operations, read, given, direct = (sum(step[column] for step in line["steps"]) for column in range(2, 7))
    lost = [{"host": f"cn{rank:04}", "rank": rank, "state": "lost", "why": "it does not answer"}
            for rank in ((nodes // 3, nodes // 2) if nodes > 10 else ())]
    return {"schema": 1, "job": "4711", "mount": "/tmp/user/copper", "nodes": nodes, "alive": nodes - len(lost),
            "uptime_seconds": 3725.0, "trees": ["/lustre/sw/conda"], "lost": lost, "per_node": lost,
            "totals": {"fuse": {"requests": requests, "files_read": nodes * 2400, "bytes_read": given,
                                "siblings_fetched": 5100, "siblings_used": 4300, "imports_fetched": 3300,
                                "imports_used": 3100, "libraries_fetched": 210, "libraries_used": 205},
                       "backing": {"listings": operations // 8, "file_opens": 2500, "stats": operations // 8,
                                   "reads": operations - operations // 4 - 2500, "bytes": read},
                       "fallbacks": {"direct_reads": direct}, "fabric": {"retries": nodes * 2},
                       "profile": {"fetched": 6100, "bytes_fetched": 900 << 20, "foretold": 5900, "unforeseen": 160}},
            "memory": {"rss_bytes_max": 9 << 27, "rss_bytes_total": nodes * (6 << 27)},
            "waits": {"p50": 45, "p99": 5100, "max": 912_000},
            "timeline": line, "conspicuous": conspicuous(nodes, rng), "top_paths": paths(nodes, rng)}


if __name__ == "__main__":
    print(json.dumps(statistics(int(sys.argv[1])), indent=1))
