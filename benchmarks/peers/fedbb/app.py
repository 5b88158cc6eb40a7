"""The same work in fedbb's pool, as a recipe, with its records and checkpoints."""

from __future__ import annotations

import sys
from pathlib import Path

import work

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks.work import Work, recipe

from fedbb.recipes.reader import make_recipe
from fedbb.runs.runner import run


def main() -> None:
    options = work.read_options()
    wanted = Work("small-cnn", options.clients, options.images)
    values = recipe(wanted, Path(options.data), "pool")
    values["rounds"] = {"number": options.rounds}
    for record in run(make_recipe(values), Path(options.folder), workers=options.cores):
        steps = sum(client["steps"] for client in record["clients"])
        assert steps == wanted.steps, f"{steps} steps where {wanted.steps} were to be taken"
        # A partition gives every image to one client, and an epoch takes each image once.
        loss = sum(client["train_loss"] for client in record["clients"]) * options.images
        serials = wanted.total * (wanted.total + 1) // 2
        work.tell(record["round"], work.Proof(wanted.total, serials, loss))


if __name__ == "__main__":
    main()
