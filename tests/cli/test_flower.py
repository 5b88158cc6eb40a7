import json
import re
import signal
import time
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from fedbb.cli import flower
from fedbb.flower.admin.paths import FederationFolder
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe
from fedbb.runs.folder import RunFolder
from helpers.commands import fedbb, started
from helpers.disk_limit import disk_limit
from helpers.small_run import small_recipe

needs_flower = pytest.mark.skipif(find_spec("flwr") is None, reason="flwr is not installed")


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The folder of a federation with two sites, certificates and a port of its own."""
    from fedbb.flower.admin.local import free_port

    monkeypatch.chdir(tmp_path)
    server = f"localhost:{free_port('127.0.0.1')}"
    words = ("flower", "init", "hospitals", "--sites", 2, "--server", server, "-q")
    assert fedbb(*words, monkeypatch=monkeypatch).code == 0
    assert fedbb("flower", "certs", "hospitals", "-q", monkeypatch=monkeypatch).code == 0
    return tmp_path / "hospitals"


@pytest.mark.parametrize("verb", ["init", "certs", "up", "join", "status", "doctor", "admit"])
def test_without_the_extra_it_is_named(tmp_path, monkeypatch, verb):
    monkeypatch.setattr(flower, "find_spec", lambda name: None)
    done = fedbb("flower", verb, tmp_path, monkeypatch=monkeypatch)
    assert done.code == 2
    assert done.err.strip().endswith('pip install "fedbb[flower]"')
    assert len(done.err.strip().splitlines()) == 1


def test_help_needs_no_extra(monkeypatch):
    monkeypatch.setattr(flower, "find_spec", lambda name: None)
    done = fedbb("flower", "up", "--help", monkeypatch=monkeypatch)
    assert done.code == 0
    assert "Ctrl-C" in done.out


@needs_flower
def test_init_on_a_full_disk_leaves_nothing_in_the_way_of_the_next_try(tmp_path, monkeypatch):
    with disk_limit():
        done = fedbb("flower", "init", tmp_path / "trial", monkeypatch=monkeypatch)
    assert done.code == 2
    assert done.err.startswith(f"fedbb: {tmp_path / 'trial'} cannot be written: ")
    assert not (tmp_path / "trial").exists()
    assert fedbb("flower", "init", tmp_path / "trial", monkeypatch=monkeypatch).code == 0


def test_init_tells_what_it_made_and_what_comes_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = fedbb("flower", "init", "hospitals", "--sites", 2, monkeypatch=monkeypatch)
    assert done.out.splitlines() == [
        "made hospitals/app",
        "made hospitals/site-0",
        "made hospitals/site-1",
        "made hospitals/federation.toml",
        "next: fedbb flower certs hospitals",
    ]
    again = fedbb("flower", "init", "hospitals", "--sites", 3, "--json", monkeypatch=monkeypatch)
    assert json.loads(again.out) == {"made": ["hospitals/site-2"], "sites": 3}
    same = fedbb("flower", "init", "hospitals", monkeypatch=monkeypatch)
    assert same.out.startswith("hospitals already exists, with 3 sites")


@needs_flower
def test_certs_tells_what_it_made_and_what_it_kept(made, monkeypatch):
    (made / "site-1" / "node.key").unlink()
    (made / "site-1" / "node.pub").unlink()
    done = fedbb("flower", "certs", "hospitals", monkeypatch=monkeypatch)
    lines = [line.split("  ") for line in done.out.splitlines()]
    assert [path for word, path, _ in lines if word == "made"] == [
        "hospitals/site-1/node.key",
        "hospitals/site-1/node.pub",
    ]
    assert len([word for word, *_ in lines if word == "kept"]) == 8


@needs_flower
def test_a_site_makes_its_own_key(made, monkeypatch):
    (made / "site-0" / "node.key").unlink()
    (made / "site-0" / "node.pub").unlink()
    done = fedbb("flower", "certs", "hospitals/site-0", "--json", monkeypatch=monkeypatch)
    assert [Path(piece["path"]).name for piece in json.loads(done.out)] == ["node.key", "node.pub"]


@needs_flower
def test_the_doctor_ends_with_one_if_something_is_bad(made, monkeypatch):
    done = fedbb("flower", "doctor", "hospitals", "--json", monkeypatch=monkeypatch)
    findings = json.loads(done.out)
    assert {"level", "subject", "message", "advice"} == findings[0].keys()
    assert done.code == 0, findings
    (made / "site-0" / "node.key").chmod(0o644)
    done = fedbb("flower", "doctor", "hospitals", monkeypatch=monkeypatch)
    assert done.code == 1
    assert "→ chmod 600" in done.out


@needs_flower
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["status", "hospitals"], "start it with: fedbb flower up hospitals"),
        (["status", "."], "is not a federation"),
        (["admit", "hospitals"], "start it with"),
        (["dismiss", "hospitals", "site-0"], "start it with"),
        (["doctor", "."], "neither the folder of a federation nor"),
        (["certs", "."], "is not a federation"),
        (["join", "hospitals"], "has no site.toml"),
        (["init", "."], "holds other files"),
        (["init", "hospitals", "--server", "x"], "host:port"),
        (["init", "hospitals", "--server", "elsewhere:1"], "names another server"),
        (["run", "none.toml", "hospitals"], "none.toml cannot be read"),
        (
            ["run", "RECIPE", "hospitals", "--set", "data.partition.clients=2"],
            "start it with: fedbb flower up hospitals",
        ),
        (["run", "RECIPE", "hospitals", "--set", "local.rl=1"], "did you mean lr?"),
        (["run", "RECIPE", "."], "is not a federation"),
        (["up", "hospitals", "--run", "none.toml"], "none.toml cannot be read"),
        (["up", "hospitals", "--host", "203.0.113.5"], "cannot be listened on"),
    ],
)
def test_bad_input_ends_with_one_message_and_exit_code_two(made, monkeypatch, words, message):
    recipe = made.parent / "small.json"
    recipe.write_text(small_recipe(made.parent).model_dump_json())
    done = fedbb(
        "flower", *(recipe if word == "RECIPE" else word for word in words), monkeypatch=monkeypatch
    )
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


@needs_flower
def test_a_server_that_is_gone_is_told(made, monkeypatch):
    (made / "server" / "address.json").write_text('{"address": "127.0.0.1:9"}')
    done = fedbb("flower", "status", "hospitals", monkeypatch=monkeypatch)
    assert done.code == 2
    assert "no server responds at 127.0.0.1:9" in done.err


@needs_flower
@pytest.mark.parametrize("verb", ["run", "up"])
def test_a_recipe_for_more_sites_than_there_are_is_refused_at_once(made, monkeypatch, verb):
    Path("five.toml").write_text(
        '[data]\nname = "digits"\npartition = { kind = "even", clients = 5 }\n'
        '[method]\nname = "fedavg"\n',
        "utf-8",
    )
    words = {
        "run": ("flower", "run", "five.toml", "hospitals"),
        "up": ("flower", "up", "hospitals", "--run", "five.toml"),
    }
    done = fedbb(*words[verb], monkeypatch=monkeypatch)
    assert done.code == 2
    assert "5 clients, but hospitals has 2 sites: add --set data.partition.clients=2" in done.err
    assert not list((made / "runs").glob("*"))
    assert not (made / "server" / "address.json").exists()


def test_a_run_that_ends_before_its_first_round_is_not_said_to_be_saved(tmp_path):
    recipe = small_recipe(tmp_path)
    federation = FederationFolder(tmp_path / "hospitals")
    told = flower._stopped(RunFolder(tmp_path / "none"), recipe, federation)
    assert told == "stopped before the first round; nothing is kept, start the run again"


def test_a_run_that_was_set_up_and_has_no_round_is_continued(tmp_path):
    federation, folder = FederationFolder(tmp_path / "hospitals"), RunFolder(tmp_path)
    folder.write_json("recipe.json", {})
    told = flower._stopped(folder, small_recipe(tmp_path), federation)
    assert told.startswith("stopped before the first round; continue with: ")
    assert told.endswith(f"--resume {tmp_path} {federation.path}")


def wait_for_line(process, words, seconds=240):
    limit = time.monotonic() + seconds
    while words not in (line := process.stdout.readline()):
        assert line, process.stderr.read()
        assert time.monotonic() < limit
    return line


@needs_flower
@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(600)
def test_a_federation_from_nothing_to_a_finished_run_that_leaves_nothing(tmp_path, monkeypatch):
    """Up by one command; a run cut by Ctrl-C goes on; SIGTERM ends everything."""
    from fedbb.flower.admin import processes
    from fedbb.flower.admin.local import free_port

    monkeypatch.chdir(tmp_path)
    partition = {"kind": "even", "clients": 1}
    recipe = tmp_path / "small.json"
    values = small_recipe(tmp_path).model_dump(mode="json")
    values["data"]["partition"] = partition
    recipe.write_text(json.dumps({**values, "rounds": {"number": 2}}))
    port = free_port("127.0.0.1")
    words = ("flower", "up", "hospitals", "--sites", 1, "--port", port)
    with started(*words, cwd=tmp_path) as process:
        assert "1 site online" in wait_for_line(process, "ready at")
        # The server's programs have the mark of the process that started them.
        marks = {
            entry.split(b"=")[1].split(b"/")[0].decode()
            for path in Path("/proc").glob("[0-9]*/environ")
            for entry in readable(path).split(b"\0")
            if entry.startswith(processes.MARK.encode()) and str(port).encode() in command(path)
        }
        (mark,) = marks
        cut = ("flower", "run", recipe, "hospitals", "--out", "here")
        with started(*cut, cwd=tmp_path) as run:
            wait_for_line(run, "round 1/2")
            run.send_signal(signal.SIGINT)
            out, err = run.communicate(timeout=60)
        assert run.returncode == 130, err
        assert "continue with: fedbb flower run --resume here hospitals" in out
        words = ("flower", "run", "--resume", "here", "hospitals", "--json")
        done = fedbb(*words, monkeypatch=monkeypatch)
        assert done.code == 0, done.err
        assert json.loads(done.out.splitlines()[-1])["rounds"] == 2
        state = json.loads(
            fedbb("flower", "status", "hospitals", "--json", monkeypatch=monkeypatch).out
        )
        assert [site["status"] for site in state["sites"]] == ["online"]
        assert [run["status"] for run in state["runs"]] == [
            "finished:completed",
            "finished:stopped",
        ]
        assert state["runs"][0]["done"] == state["runs"][0]["rounds"] == 2
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert processes.find_marked(mark) == []
    inline = fedbb("run", recipe, "--out", "inline", "--json", monkeypatch=monkeypatch)
    here, there = (
        RunFolder(tmp_path / name).read_json("summary.json") for name in ("here", "inline")
    )
    assert inline.code == 0
    assert here["sha256"] == there["sha256"]


def readable(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def command(path):
    return readable(path.with_name("cmdline"))


PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text("utf-8")


def test_every_command_of_the_page_on_deployment_is_one_with_the_options_it_has():
    from typer.main import get_group

    from fedbb.cli.flower import app

    verbs = get_group(app).commands
    told = re.findall(r"fedbb flower (\w+)((?: [^\s#`)]+)*)", PAGE)
    assert {verb for verb, _ in told} >= {"init", "certs", "up", "join", "run", "status", "doctor"}
    for verb, words in told:
        known = {
            option
            for parameter in verbs[verb].params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        given = {word for word in words.split() if word.startswith("--")}
        assert given <= known, (verb, words)


def test_the_recipe_of_the_page_on_deployment_is_sound():
    (recipe,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)
    check_recipe(make_recipe(tomllib.loads(recipe)))
