"""A site behind a bad line: what it sends counts once, and to the bit, or in time it does not."""

import shutil
import subprocess
import threading
from contextlib import contextmanager

import pytest

from fedbb.flower.admin.local import LOOPBACK, free_port, node_command, release
from fedbb.flower.admin.processes import environment
from helpers.flower_runs import complete, missing, start, wait_for_job, wait_until
from helpers.small_run import finish, small_recipe
from helpers.tcp_proxy import Proxy

pytestmark = [pytest.mark.flower, pytest.mark.timeout(600)]


@pytest.fixture
def line(federation):
    """Site 2 calls the server through a proxy, whose faults the test sets."""
    with Proxy(federation.address) as proxy, _calling(federation, proxy.address):
        yield proxy


@contextmanager
def _calling(federation, address):
    node = federation.nodes[2]
    node.program.stop()
    release(node.site, federation.control)
    command = node_command(node.site, node.site.node_config(), address, free_port(LOOPBACK))
    log = node.site.state / "proxied.log"
    other = federation._group.start("proxied", command, environment(node.site.state / "flwr"), log)
    before, node.program = node.program, other
    try:
        federation.wait_for_nodes([node])
        yield
    finally:
        other.stop()
        node.program = before
        node.restart()


def same_as_inline(federation, folder, recipe, run):
    summary, records = complete(federation, run, folder / "flower")
    assert missing(records) == set()
    assert summary["sha256"] == finish(recipe, folder / "inline")[0]["sha256"]


def test_a_connection_that_is_reset_in_mid_upload_is_made_again_and_counts_once(
    federation, line, tmp_path
):
    recipe = small_recipe(tmp_path, rounds={"number": 1})
    run = start(federation, recipe, tmp_path / "flower")
    wait_for_job(federation, federation.nodes[2].name)
    line.cut_after = 100_000
    same_as_inline(federation, tmp_path, recipe, run)
    assert line.cuts == 1


@pytest.mark.slow
def test_a_slow_line_takes_longer_and_changes_nothing(federation, line, tmp_path):
    recipe = small_recipe(tmp_path, rounds={"number": 1})
    line.delay, line.rate = 0.25, 64_000
    run = start(federation, recipe, tmp_path / "flower")
    same_as_inline(federation, tmp_path, recipe, run)


@pytest.mark.slow
def test_a_line_that_is_deaf_for_a_while_changes_nothing(federation, line, tmp_path):
    recipe = small_recipe(tmp_path, rounds={"number": 2})
    run = start(federation, recipe, tmp_path / "flower")
    wait_for_job(federation, federation.nodes[2].name)
    line.deaf.set()
    timer = threading.Timer(10.0, line.deaf.clear)
    timer.start()
    same_as_inline(federation, tmp_path, recipe, run)
    timer.join()


SHIFT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t which, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(which, now);
    if (which == CLOCK_REALTIME) now->tv_sec += atol(getenv("CLOCK_SHIFT"));
    return failed;
}
"""


@pytest.fixture(scope="module")
def shifted_clock(tmp_path_factory):
    """Return a library that makes a program's clock wrong by CLOCK_SHIFT seconds."""
    if shutil.which("cc") is None:
        pytest.skip("there is no compiler to make a wrong clock with")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "shift.c").write_text(SHIFT)
    library = folder / "shift.so"
    command = ["cc", "-shared", "-fPIC", "-o", library, folder / "shift.c", "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return str(library)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [3600, -3600])
def test_a_node_whose_clock_is_an_hour_off_is_kept_out(shift, federation, shifted_clock, tmp_path):
    node = federation.nodes[2]
    node.program.stop()
    release(node.site, federation.control)
    variables = environment(node.site.state / "flwr")
    variables |= {"LD_PRELOAD": shifted_clock, "CLOCK_SHIFT": str(shift)}
    config = node.site.node_config()
    command = node_command(node.site, config, federation.address, free_port(LOOPBACK))
    refused = federation.logs("superlink").count("401")
    wrong = federation._group.start("wrong", command, variables, tmp_path / "node.log")
    try:
        # Flower ends the node without a word; `fedbb flower doctor` says what is wrong.
        wait_until(lambda: not wrong.is_running(), 120)
        assert node.name not in federation.online()
        assert federation.logs("superlink").count("401") > refused
    finally:
        wrong.stop()
        node.restart()
