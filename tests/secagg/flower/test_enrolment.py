"""Enrolment: keys that are never written over, a roster that everybody pins, terms that hold."""

import json
import stat

import pytest

from fedbb.cli.main import main as fedbb
from fedbb.errors import PrivacyError, RecipeError, RunError
from fedbb.flower.admin.doctor import examine
from fedbb.flower.admin.paths import FederationFolder
from fedbb.flower.admin.templates import make_federation
from fedbb.recipes.check import check_recipe
from fedbb.recipes.privacy import agree
from fedbb.secagg.client_secrets import read_server_keys, read_site_keys
from fedbb.secagg.flower.enrolment import (
    enrol,
    enrolment_folder,
    keys_for,
    make_identity,
)
from fedbb.secagg.primitives.keys import Identity, fingerprint
from helpers.flower_loopback import with_defense
from helpers.secagg_grid import enrolled, private_recipe


@pytest.fixture
def recipe(tmp_path):
    return private_recipe(tmp_path)


@pytest.fixture
def folder(tmp_path):
    folder = FederationFolder(tmp_path / "federation")
    make_federation(folder, 3)
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def test_every_site_and_the_server_can_take_part_afterwards(folder, recipe):
    pieces = enrol(folder, recipe)
    assert all(piece.made for piece in pieces)
    server = read_server_keys(enrolment_folder(folder))
    for number in range(3):
        pinned = read_site_keys(folder.site(number).path, number)
        assert pinned.roster == server.roster
        assert pinned.enrolment == server.enrolment
        agree(pinned.roster, recipe, check_recipe(recipe))
    assert keys_for(folder, recipe) == {"keys": str(enrolment_folder(folder).resolve())}


def test_nothing_is_written_over(folder, recipe):
    enrol(folder, recipe)
    before = contents(folder)
    assert not any(piece.made for piece in enrol(folder, recipe))
    assert contents(folder) == before


def test_private_parts_are_for_their_owner_only(folder, recipe):
    enrol(folder, recipe)
    keys = list(folder.path.rglob("*.key"))
    assert {path.name for path in keys} == {"identity.key", "aggregator.key", "enrolment.key"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    keys[0].chmod(0o640)
    with pytest.raises(RunError, match=r"can be read by others; chmod 600"):
        enrol(folder, recipe)


def test_no_site_gets_a_key_that_is_not_its_own(folder, recipe):
    enrol(folder, recipe)
    for site in folder.sites():
        assert {path.name for path in site.path.glob("*.key")} == {"identity.key"}


@pytest.mark.parametrize(
    ("defense", "told"),
    [
        ({"max_weight": 0.5}, "max_weight is 1.0 in the roster and 0.5 in the recipe"),
        ({"quorum": 1.0}, "least is 3 in the roster and 4 in the recipe"),
    ],
)
def test_a_recipe_on_other_terms_is_refused_and_told_what_to_do(defense, told, tmp_path):
    recipe = private_recipe(tmp_path, clients=4)
    folder = enrolled(recipe, tmp_path, 4)
    other = with_defense(recipe, **defense)
    for refuse in (enrol, keys_for):
        with pytest.raises(RunError, match=rf"other terms: {told}; .* enrol them again"):
            refuse(folder, other)


def test_another_floor_is_another_term(folder, recipe, tmp_path):
    enrol(folder, recipe)
    floor = private_recipe(tmp_path, method={"name": "fedbb", "options": {"floor": 0.25}})
    with pytest.raises(
        RunError, match=r"least_dispersion is .* in the roster and 0.25 in the recipe"
    ):
        enrol(folder, floor)


def test_another_number_of_clients_is_refused(folder, tmp_path):
    with pytest.raises(RunError, match="among 4 clients from 0, and the roster names 0, 1, 2"):
        enrol(folder, private_recipe(tmp_path, clients=4))


def test_two_sites_are_too_few(tmp_path):
    folder = FederationFolder(tmp_path / "two")
    make_federation(folder, 2)
    with pytest.raises((PrivacyError, RecipeError), match="of two, each would learn the other's"):
        enrol(folder, private_recipe(tmp_path, clients=3))


def test_an_open_recipe_has_nothing_to_enrol_for(folder, tmp_path):
    with pytest.raises(RunError, match='privacy = "none"; there is nothing'):
        enrol(folder, private_recipe(tmp_path, privacy="none"))


def test_a_site_makes_its_identity_itself_and_gives_only_the_public_half(folder, recipe, tmp_path):
    with pytest.raises(RunError, match=r"site-0/identity.pub is missing: the site creates it"):
        enrol(folder, recipe, keys=False)
    elsewhere = FederationFolder(tmp_path / "elsewhere")
    make_federation(elsewhere, 3)
    for number in range(3):
        make_identity(elsewhere.site(number))
        public = (elsewhere.site(number).path / "identity.pub").read_bytes()
        (folder.site(number).path / "identity.pub").write_bytes(public)
    enrol(folder, recipe)
    assert list(folder.path.rglob("identity.key")) == []
    for name in ("roster.json", "enrolment.pub"):
        (elsewhere.site(2).path / name).write_bytes((folder.site(2).path / name).read_bytes())
    assert read_site_keys(elsewhere.site(2).path, 2).roster.members.keys() == {0, 1, 2}


def test_a_roster_of_other_keys_is_refused(folder, recipe):
    enrol(folder, recipe)
    for name in ("identity.key", "identity.pub"):
        (folder.site(1).path / name).unlink()
    with pytest.raises(RunError, match="names other keys than the sites have now; delete it"):
        enrol(folder, recipe)
    (enrolment_folder(folder) / "roster.json").unlink()
    told = [piece.what for piece in enrol(folder, recipe)]
    assert sum("NOT that of" in what for what in told) == 3


def test_a_roster_that_another_key_signed_is_not_taken(folder, recipe, tmp_path):
    enrol(folder, recipe)
    other = enrolled(recipe, tmp_path / "other")
    site = folder.site(0).path
    (site / "roster.json").write_bytes((enrolment_folder(other) / "roster.json").read_bytes())
    with pytest.raises(RunError, match="not signed by the enrolment key that is pinned here"):
        read_site_keys(site, 0)


def test_a_wrong_or_damaged_key_is_told_without_its_content(folder, recipe):
    enrol(folder, recipe)
    key = folder.site(0).path / "identity.key"
    for content in ("not hexadecimal", "abcd"):
        key.write_text(content)
        with pytest.raises(RunError, match=r"identity.key is not a") as caught:
            read_site_keys(key.parent, 0)
        assert content not in str(caught.value)
    key.write_text(Identity.draw().secret.hex())
    with pytest.raises(RunError, match="has another key, or none, for client 0"):
        read_site_keys(key.parent, 0)
    server = enrolment_folder(folder) / "aggregator.key"
    server.write_text(Identity.draw().secret.hex())
    with pytest.raises(RunError, match="has another key for the server"):
        read_server_keys(server.parent)


def test_the_enrolment_key_may_be_kept_elsewhere(folder, recipe):
    enrol(folder, recipe)
    (enrolment_folder(folder) / "enrolment.key").unlink()
    assert not any(piece.made for piece in enrol(folder, recipe))
    (enrolment_folder(folder) / "roster.json").unlink()
    with pytest.raises(RunError, match="without it no roster can be signed"):
        enrol(folder, recipe)


def test_the_doctor_tells_who_signed_and_what_is_missing(folder, recipe):
    def told(site):
        return [(f.level, f.message) for f in examine(site.path) if f.subject.endswith("identity")]

    site = folder.site(1)
    assert told(site) == []
    make_identity(site)
    ((level, words),) = told(site)
    assert level == "bad"
    assert "enrolment.pub is missing" in words
    enrol(folder, recipe)
    mark = fingerprint(read_server_keys(enrolment_folder(folder)).enrolment)
    assert told(site) == [("ok", f"in a roster of 3, signed by {mark}")]
    with site.settings_file.open("a") as file:
        file.write("private = false\n")
    assert [level for level, _ in told(site)] == ["ok", "warn"]
    assert "open runs" in told(site)[1][1]


def run_command(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["fedbb", "flower", "enrol", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        fedbb()
    return ended.value.code or 0


def test_a_private_recipe_is_not_started_where_nobody_is_enrolled(
    folder, recipe, tmp_path, monkeypatch, capsys
):
    path = tmp_path / "recipe.json"
    path.write_text(recipe.model_dump_json())
    monkeypatch.setattr("sys.argv", ["fedbb", "flower", "run", str(path), str(folder.path)])
    with pytest.raises(SystemExit) as ended:
        fedbb()
    assert ended.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "aggregator.key is missing; private runs need it, and `fedbb flower enrol`" in told


def test_the_command_enrols_sites_for_a_recipe(folder, recipe, tmp_path, monkeypatch, capsys):
    path = tmp_path / "recipe.json"
    path.write_text(recipe.model_dump_json())
    assert run_command(monkeypatch, folder.path) == 2
    assert "fedbb flower enrol DIR RECIPE" in capsys.readouterr().err
    assert run_command(monkeypatch, folder.site(1).path) == 0
    assert "identity of site-1" in capsys.readouterr().out
    assert run_command(monkeypatch, folder.path, path, "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert sum(piece["made"] for piece in made) == 2 * 3 - 2 + 4 + 2 * 3
    assert run_command(monkeypatch, folder.path, path, "--set", "defense.max_weight=0.5") == 2
    assert "max_weight is 1.0 in the roster" in capsys.readouterr().err.replace("\n", " ")
