"""The package gives its two public names without a long path, and loads without Flower."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

import fedbb.flower


@pytest.mark.skipif(find_spec("flwr") is None, reason="needs the extra fedbb[flower]")
def test_public_names_are_those_of_their_modules():
    from fedbb.flower import ClientBalancedStrategy, mods, report_label_statistics, strategy

    assert report_label_statistics is mods.report_label_statistics
    assert ClientBalancedStrategy is strategy.ClientBalancedStrategy
    assert dir(fedbb.flower) == sorted(fedbb.flower.__all__)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Strategy'"):
        _ = fedbb.flower.Strategy


def test_the_package_loads_without_flower():
    code = "import sys; sys.modules['flwr'] = None; import fedbb.flower; print(dir(fedbb.flower))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "report_label_statistics" in done.stdout
