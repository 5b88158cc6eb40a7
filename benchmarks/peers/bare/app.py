"""The same work in a bare loop: no framework, one process, all cores as threads."""

from __future__ import annotations

import copy

import torch
import work
from network import SmallNetwork


def main() -> None:
    options = work.read_options()
    torch.set_num_threads(options.cores)
    model = SmallNetwork()
    state = copy.deepcopy(model.state_dict())
    for number in range(options.rounds):
        proof, trained = work.Proof(), []
        for client in range(options.clients):
            model.load_state_dict(state)
            proof += work.train(model, client, options.images)
            trained.append(copy.deepcopy(model.state_dict()))
        state = {name: torch.stack([one[name] for one in trained]).mean(0) for name in state}
        work.tell(number + 1, proof)


if __name__ == "__main__":
    main()
