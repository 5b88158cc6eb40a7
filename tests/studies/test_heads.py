"""The table of classifiers in closed form on the models of a grid."""

from studies.heads import TRAINED, table

ACCURACY = {
    ("FedAvg", TRAINED): (0.40, 0.42),
    ("FedAvg", "LDA"): (0.45, 0.49),
    ("FedBB", TRAINED): (0.41, 0.43),
    ("FedBB", "LDA"): (0.41, 0.43),
}


def stored_rows(accuracy=ACCURACY):
    return [
        {
            "data": "δ = 0.1",
            "method": method,
            "seed": str(seed),
            "head": head,
            "test accuracy": str(value),
            "test worst class": str(value / 2),
        }
        for (method, head), values in accuracy.items()
        for seed, value in enumerate(values)
    ]


def lines_of(text, method):
    return [
        [entry.strip() for entry in line.strip("|").split("|")]
        for line in text.splitlines()
        if f"| {method} |" in line
    ]


def test_a_method_has_its_score_as_trained_with_the_form_and_the_paired_difference():
    whole, worst = lines_of(table(stored_rows(), ("14a", "14b")), "FedAvg")
    assert whole[:4] == ["14a.1", "FedAvg", "41.0 ± 1.4", "47.0 ± 2.8"]
    # The differences are 5 and 7 points: mean 6, and 12.706 · √2 / √2 on both sides of it.
    assert whole[4] == "+6.0 [−6.7, +18.7], no clear difference (2 of 2 seeds)"
    assert worst[:4] == ["14b.1", "FedAvg", "20.5 ± 0.7", "23.5 ± 1.4"]


def test_the_form_of_one_method_is_not_compared_with_another():
    ((_, _, trained, served, gap), _) = lines_of(table(stored_rows(), ("14a", "14b")), "FedBB")
    assert trained == served == "42.0 ± 1.4"
    assert gap == "equal"


def test_a_missing_seed_is_said():
    rows = [row for row in stored_rows() if row["method"] != "FedBB" or row["seed"] == "0"]
    whole, _ = lines_of(table(rows, ("14a", "14b")), "FedBB")
    assert "(1 of 2 seeds)" in whole[2]
