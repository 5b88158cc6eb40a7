"""Runs on a federation of real processes, started and followed."""

import time
from pathlib import Path

from fedbb.flower.admin import processes, supernode
from fedbb.runs.folder import RunFolder

# Bounds for a machine that does many other things; alone, a run takes about half a minute.
PATIENCE = 400


def start(federation, recipe, path, **settings):
    config = {"recipe": recipe.model_dump_json(), "folder": str(path), "wait": 120.0, **settings}
    return federation.submit(None, config)


def complete(federation, run, path):
    """Wait for a run to end well; return its summary and its records."""
    state = federation.wait_for(run, PATIENCE)
    assert state.status == "finished:completed", (state, federation.logs("superlink")[-3000:])
    folder = RunFolder(path)
    return folder.read_json("summary.json"), folder.records()


def wait_until(condition, seconds=PATIENCE):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def wait_for_job(federation, site):
    """Wait until a site has got a job that it had not got by now."""
    before = federation.logs(site).count("Receiving: train")
    wait_until(lambda: federation.logs(site).count("Receiving: train") > before)


def rounds_done(path):
    return len(RunFolder(path).records())


def missing(records):
    """Return who was away in which round."""
    return {
        (absent["client"], record["round"]) for record in records for absent in record["absent"]
    }


def workers(node):
    """Return the worker processes of a site."""
    found = processes.find_marked(node.program.mark)
    return [pid for pid in found if supernode.WORKER in _command(pid)]


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
