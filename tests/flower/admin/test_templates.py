import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import get_fab_metadata

from fedbb.errors import RunError
from fedbb.flower.admin.local import node_command
from fedbb.flower.admin.paths import FederationFolder, SiteFolder, join_address, split_address
from fedbb.flower.admin.templates import make_federation
from fedbb.flower.app.settings import read_site_settings


@pytest.fixture
def folder(tmp_path):
    folder = FederationFolder(tmp_path / "federation")
    make_federation(folder, 3)
    return folder


def test_the_app_is_one_that_flower_takes_and_small(folder):
    bundle = build_fab_from_disk(folder.app)
    assert get_fab_metadata(bundle) == ("fedbb/fedbb-app", "1.0.0")
    assert len(bundle) < 10_000


def test_the_app_holds_no_code_of_its_own(folder):
    for end, module in (("server", "server"), ("client", "client")):
        lines = (folder.app / "fedbb_app" / f"{end}_app.py").read_text().splitlines()
        assert f"from fedbb.flower.app.{module} import app" in lines
        assert len([line for line in lines if line]) == 3


def test_the_app_takes_every_setting_of_a_run(folder):
    settings = pytest.importorskip("fedbb.flower.app.settings")
    told = tomllib.loads((folder.app / "pyproject.toml").read_text())
    config = told["tool"]["flwr"]["app"]["config"]
    named = [name.replace("-", "_") for name in config]
    assert named == list(settings.RunSettings.__dataclass_fields__)
    assert config["score"] == settings.RunSettings.score
    assert config["wait"] == settings.RunSettings.wait
    assert config["sites"] == settings.RunSettings.sites


def test_each_site_has_its_number_its_readme_and_a_place_for_its_state(folder):
    for number, site in enumerate(folder.sites()):
        assert site.settings()["client"] == number
        assert site.settings()["name"] == f"site-{number}"
        assert site.state.is_dir()
        assert f"fedbb flower join site-{number}" in (site.path / "README.md").read_text("utf-8")
        assert "localhost:8443" in (site.path / "README.md").read_text("utf-8")


def test_sites_are_added_and_nothing_is_written_over(folder):
    settings = folder.site(0).settings_file
    settings.write_text('client = 0\nserver = "localhost:8443"\ndata = "mine.npz"\n')
    made = make_federation(folder, 4)
    assert made == [folder.site(3).path]
    assert folder.site(0).settings()["data"] == "mine.npz"


def test_a_site_tells_its_client_where_its_own_data_lies(folder):
    site = folder.site(1)
    here = {"state": str(site.state.resolve()), "keys": str(site.path.resolve())}
    assert site.node_config() == {"client": 1, **here}
    site.settings_file.write_text(
        'client = 1\nserver = "a:1"\ndata = "../x \\"y\\".npz"\nwhole = true\n'
    )
    config = site.node_config()
    assert config["data"] == str(folder.path.resolve() / 'x "y".npz')
    assert config["whole"] is True
    assert "allowed-code" not in config


def test_a_site_lists_the_code_that_it_allows(folder):
    site = folder.site(1)
    site.settings_file.write_text(
        'client = 1\nserver = "a:1"\nallowed-code = ["my.nets:build", "my_losses:Own.loss"]\n'
    )
    config = site.node_config()
    assert config["allowed-code"] == "my.nets:build,my_losses:Own.loss"
    command = node_command(site, config, "a:1", 9000)
    given = tomllib.loads(Path(command[command.index("--node-config") + 1]).read_text())
    assert read_site_settings(given).allowed_code == ("my.nets:build", "my_losses:Own.loss")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('client = "0"\nserver = "a:1"', "client must be int"),
        ("client = true\nserver = 'a:1'", "client must be int"),
        ("client = 0", "server is missing"),
        ('client = 0\nserver = "a:1"\ndatta = "x"', "datta is unknown"),
        ("client = ", "not valid TOML"),
        ('client = 0\nserver = "a:1"\nallowed-code = "a:b"', "allowed-code must be list"),
        ('client = 0\nserver = "a:1"\nallowed-code = ["a.b"]', "allowed-code holds 'a.b'; allowed"),
        ('client = 0\nserver = "a:1"\nallowed-code = ["a:b,c:d"]', "allowed-code holds 'a:b,c:d'"),
    ],
)
def test_wrong_settings_of_a_site_are_told(folder, text, told):
    folder.site(0).settings_file.write_text(text)
    with pytest.raises(RunError, match=told):
        folder.site(0).settings()


def test_a_folder_with_other_things_is_refused(tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(RunError, match="holds other files"):
        make_federation(FederationFolder(tmp_path), 1)


def test_a_federation_has_one_server(folder):
    make_federation(folder, 3, "localhost:8443")
    with pytest.raises(RunError, match="names another server"):
        make_federation(folder, 3, "elsewhere:8443")


@pytest.mark.parametrize("address", ["host", "host:", ":80", "host:0", "host:70000", "host:x"])
def test_an_address_needs_host_and_port(address):
    with pytest.raises(RunError, match="host:port"):
        split_address(address, "here")


@pytest.mark.parametrize("address", ["localhost:8443", "10.0.0.1:1", "[::1]:8443"])
def test_addresses_are_split_and_joined(address):
    assert join_address(*split_address(address, "here")) == address


def test_site_folders_are_found_by_number(folder):
    make_federation(folder, 11)
    (folder.path / "site-x").mkdir()
    assert [site.path.name for site in folder.sites()][-2:] == ["site-9", "site-10"]
    assert SiteFolder(folder.path / "site-x") not in folder.sites()


def test_the_servers_files_are_closed_to_other_users_also_in_an_older_folder(tmp_path):
    folder = FederationFolder(tmp_path / "fed")
    make_federation(folder, 0)
    for step in ("new", "older"):
        with closing(sqlite3.connect(folder.database)) as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute(f"CREATE TABLE {step} (x)")
            files = list(folder.server.iterdir())
            assert len(files) > 1
            assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
        assert folder.server.stat().st_mode & 0o777 == 0o700
        folder.server.chmod(0o755)
        folder.database.chmod(0o644)
        make_federation(folder, 0)
