"""Random programs that index NumPy arrays, against the complex step: how many are right, and what goes wrong.

python benchmarks/fuzz_indexing.py [--minutes M] [--first SEED]
"""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engine"))
from index_programs import check

BATCH = 500


def batch(first):
    """The outcomes of one batch of seeds, and what was wrong."""
    outcomes, faults = Counter(), []
    for seed in range(first, first + BATCH):
        try:
            outcomes[check(seed)] += 1
        except AssertionError as error:
            outcomes["wrong"] += 1
            faults.append(str(error).strip())
        except Exception as error:
            outcomes[f"raised {type(error).__name__}"] += 1
            faults.append(f"seed {seed}: {error}")
    return outcomes, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    end, outcomes, faults = time.monotonic() + 60 * arguments.minutes, Counter(), []
    cores = os.cpu_count() or 1
    seeds = count(arguments.first, BATCH)
    with ProcessPoolExecutor(cores) as pool:
        while time.monotonic() < end:
            for found, wrong in pool.map(batch, list(islice(seeds, 4 * cores))):
                outcomes += found
                faults += wrong
    print(f"{sum(outcomes.values())} programs: {dict(outcomes)}")
    print("\n".join(faults[:20]))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
