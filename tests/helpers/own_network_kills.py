"""Kill runs of own networks and resume them; prints as JSON how each ended.

Arguments: a folder, and cases such as "pool:tied". For each case it prints the SHA-256 of the final
model of an inline run that nobody disturbs, that of a run by the engine that was killed and
resumed, and how many rounds were saved when it was killed. A process of its own, so that it can
fork: it has one thread and no worker processes.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import torch

from fedbb.flower.app.server import serve
from fedbb.flower.app.settings import RunSettings
from fedbb.flower.app.transport import GridTransport
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from helpers.digest_runs import CLIENTS
from helpers.flower_loopback import open_loopback, take_identity
from helpers.kills import end, forward_passes, kill_at
from helpers.own_networks import NETWORKS, install_tokens, own_recipe

ROUNDS = 3
ENGINES = {"inline": "inline", "pool": "pool", "flower": "inline"}


def rounds_of(engine, recipe, path, *, resume=False):
    """Run or resume a recipe by an engine and yield each round."""
    if engine != "flower":
        workers = 2 if engine == "pool" else None
        return run(recipe, path, resume=resume, workers=workers, allow_code=True)
    config = {"state": f"{path}-state", "allowed-code": recipe.model.name}
    grid = GridTransport(open_loopback(recipe, CLIENTS, **config), poll=0.01)
    return serve(grid, RunSettings(recipe, path, score="sites", wait=5.0, resume=resume))


def kill_and_resume(folder, engine, network):
    """Return the SHA-256 without and with a kill, and the rounds that were saved at the kill."""
    os.environ["FEDBB_ALLOWED_CODE"] = NETWORKS[network]["name"]
    inline = own_recipe(folder, network, rounds={"number": ROUNDS})
    whole, killed = (folder / f"{engine}-{network}-{name}" for name in ("whole", "killed"))
    passes = forward_passes(lambda: list(rounds_of("inline", inline, whole)))
    recipe = own_recipe(folder, network, rounds={"number": ROUNDS}, engine=ENGINES[engine])

    def be_killed():
        if engine != "pool":
            kill_at(2 * passes // 3)
        for _ in rounds_of(engine, recipe, killed):
            if engine == "pool":  # whose layers run in the workers
                os.kill(os.getpid(), signal.SIGKILL)

    assert end(be_killed) == -signal.SIGKILL
    saved = len(RunFolder(killed).records())
    assert end(lambda: list(rounds_of(engine, recipe, killed, resume=True))) == 0
    sums = [RunFolder(path).read_json("summary.json")["sha256"] for path in (whole, killed)]
    return [*sums, saved]


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, cases = Path(sys.argv[1]), sys.argv[2:]
    with pytest.MonkeyPatch.context() as patch:
        take_identity(patch)
        install_tokens(place / "site", patch)
        print(json.dumps({case: kill_and_resume(place, *case.split(":")) for case in cases}))
