"""The report of a client of an NVFlare job; and the package loads without NVFlare."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import fedbb.nvflare
from fedbb import count_labels, dispersion
from fedbb.nvflare import report_label_statistics


def test_a_report_is_two_figures_in_the_meta_data():
    model = SimpleNamespace(meta={"mine": 1})
    assert report_label_statistics(model, [0, 0, 0, 1, 2, 2], classes=4) is model
    assert model.meta == {
        "mine": 1,
        "fedbb-samples": 6,
        "fedbb-share-std": pytest.approx(dispersion([3, 1, 2, 0])),
    }


def test_multi_label_data_and_counts_are_reported_too():
    table = np.array([[1, 0], [0, np.nan], [1, 1]])
    counts = count_labels(table, "multilabel", 2)
    reports = [
        report_label_statistics(SimpleNamespace(meta={}), labels, reading="count-std").meta
        for labels in (table, counts)
    ]
    assert reports[0] == reports[1]
    assert set(reports[0]) == {"fedbb-samples", "fedbb-count-std"}


def test_class_numbers_need_the_number_of_classes():
    with pytest.raises(ValueError, match="needs classes="):
        report_label_statistics(SimpleNamespace(meta={}), [0, 1])


def test_the_package_loads_without_nvflare():
    code = (
        "import sys; sys.modules['nvflare'] = None; import fedbb.nvflare; "
        "print(dir(fedbb.nvflare), fedbb.nvflare.report_label_statistics.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "['ClientBalancedAggregator', 'report_label_statistics'] report" in done.stdout
    with pytest.raises(AttributeError, match="has no attribute 'Aggregator'"):
        _ = fedbb.nvflare.Aggregator
