"""A worker runs fedbb's app for one message after another, and any other app once."""

import hashlib
from functools import partial
from importlib.resources import as_file, files

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.common.serde import context_to_proto, fab_to_proto, run_to_proto
from flwr.supercore.run import Run

from fedbb.flower import internals
from fedbb.flower.app import site as site_module
from fedbb.flower.app.frames import RESIDENT, SINGLE_USE
from fedbb.flower.app.serde import unpack_client_info
from fedbb.flower.app.settings import SiteSettings
from fedbb.flower.app.site import OpenSites, open_site
from fedbb.flower.app.worker import answer
from helpers.flower_grid import take_identity
from helpers.small_run import small_recipe

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's
OTHER = """
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.query("info")
def info(message, context):
    return Message(RecordDict(), reply_to=message)
"""


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(tmp_path))  # what an app prepends is taken back
    take_identity(monkeypatch)


def own_app():
    with as_file(files("fedbb.flower")) as package:
        return internals.build_fab_from_disk(package / "template" / "app")


def other_app(folder, package="other", source=OTHER):
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text("")
    (folder / package / "client.py").write_text(source)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "other"\nversion = "1.0.0"\ndescription = ""\n'
        'license = "Apache-2.0"\ndependencies = []\n'
        '[tool.flwr.app]\npublisher = "someone"\n'
        f'[tool.flwr.app.components]\nserverapp = "{package}.client:app"\n'
        f'clientapp = "{package}.client:app"\n[tool.flwr.app.config]\n'
    )
    return internals.build_fab_from_disk(folder)


def task(bundle, name, recipe, state):
    """Return a task as the SuperNode hands it out: a question for the site's client info."""
    config = {"recipe": recipe.model_dump_json()}
    node = {"client": 0, "state": str(state)}
    context = Context(1, 1, node_config=node, state=RecordDict(), run_config=config)
    fab = internals.Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
    run = Run.create_empty(1)
    run.fab_id, run.fab_version, run.fab_hash = name, "1.0.0", fab.hash_str
    given = internals.PullTaskInputResponse(
        context=context_to_proto(context), run=run_to_proto(run), fab=fab_to_proto(fab)
    )
    message = Message(RecordDict(), 1, "query.info")
    objects = internals.get_all_nested_objects(message)
    parts = [part for key, item in objects.items() for part in (key.encode(), item.deflate())]
    return [given.SerializeToString(), message.object_id.encode(), *parts]


def received(frames):
    """Return whether the worker stays, and its reply."""
    contents = {key.decode(): value for key, value in zip(frames[4::2], frames[5::2], strict=True)}
    tree = internals.ObjectTree.FromString(frames[3])
    return frames[0], internals.inflate_object_from_contents(tree.object_id, contents)


def test_fedbbs_own_app_stays_and_replies_as_the_app_does(tmp_path):
    recipe = small_recipe(tmp_path)
    asked = partial(task, own_app(), "fedbb/fedbb-app", recipe, tmp_path / "state")
    apps = {}
    for _ in range(2):
        kind, reply = received(answer(asked(), apps))
        assert kind == RESIDENT
        figures, _ = unpack_client_info(reply.content)
        assert figures["samples"] == open_site(recipe, SiteSettings(0)).info().samples
    assert len(apps) == 1


def test_another_app_gets_its_own_process_each_time(tmp_path):
    asked = task(other_app(tmp_path / "a"), "someone/other", small_recipe(tmp_path), tmp_path)
    kind, reply = received(answer(asked, {}))
    assert kind == SINGLE_USE
    assert not reply.has_error()


def test_a_worker_of_one_app_refuses_another_and_an_app_that_fails_is_reported(tmp_path):
    asked = partial(task, name="someone/other", recipe=small_recipe(tmp_path), state=tmp_path)
    _, reply = received(answer(asked(other_app(tmp_path / "a")), {"hash": None}))
    assert "serves another app" in reply.error.reason
    _, reply = received(answer(asked(other_app(tmp_path / "b", "broken", "app = 1 / 0")), {}))
    assert reply.error.code == internals.ErrorCode.LOAD_CLIENT_APP_EXCEPTION


def test_a_run_opens_its_data_once_and_the_next_run_looks_again(tmp_path, monkeypatch):
    recipe, opened, sites = small_recipe(tmp_path), [], OpenSites()
    settings = [SiteSettings(client) for client in range(2)]
    monkeypatch.setattr(site_module, "_open_site", lambda *given: opened.append(given) or object())
    sites.open(recipe, settings[0], "run")
    sites.open(recipe, settings[0], "run")
    assert len(opened) == 2  # nothing is kept in a process that ends
    sites.limit = 2
    kept = sites.open(recipe, settings[0], "run")
    assert sites.open(recipe, settings[0], "run") is kept
    assert sites.open(recipe, settings[1], "run") is not kept
    assert sites.open(recipe, settings[0], "other") is not kept
    assert len(opened) == 5
    sites.open(recipe, settings[0], "run")  # two others were used since
    assert len(opened) == 6
