"""The driver of a job, as a program of its own so that it can be killed: ADDRESS FOLDER."""

import sys

import ray

import rullama.ray
from conftest import E2B

OPTIONS = {"max_tokens": 32, "temperature": 1.0}
MODEL_OPTIONS = {"backend": "cpu", "slots": 2, "context": 256, "config": {"backend.options.threads": 1}}


def run(folder, **changes):
    arguments = {
        "model": str(E2B),
        "options": OPTIONS,
        "model_options": MODEL_OPTIONS,
        "seed": 5,
        "keep": ["tag"],
        "batch_size": 8,
        "rows_per_file": 16,
        "workers": 2,
    }
    dataset = ray.data.read_parquet(f"{folder}/in")
    return rullama.ray.map_batches(dataset, f"{folder}/out", **(arguments | changes))


if __name__ == "__main__":
    ray.init(address=sys.argv[1], logging_level="warning", log_to_driver=False)
    result = run(sys.argv[2])
    print(result.rows, result.failed)
