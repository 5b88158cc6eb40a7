"""Three hospitals train a network of their own; a fourth, which has no part in it, validates it."""

from tempfile import TemporaryDirectory

import numpy as np
from sklearn.datasets import load_breast_cancer
from torch import nn

import fedbb

# Features of tumors. The data names no hospitals, so each case is given one; the hospitals differ
# in size and in their share of malignant tumors.
features, labels = load_breast_cancer(return_X_y=True)
names, rng = np.array(["Bonn", "Jena", "Ulm", "Kiel"]), np.random.default_rng(0)
shares = np.array([[0.5, 0.2, 0.1, 0.2], [0.1, 0.2, 0.5, 0.2]])  # of malignant and benign tumors
sites = np.array([rng.choice(names, p=shares[label]) for label in labels])
outside = sites == "Kiel"

data = fedbb.Dataset.from_arrays(
    features[~outside],
    labels[~outside],
    classes=["malignant", "benign"],
    columns={"site": sites[~outside]},
    test_share=0.2,
    normalize=True,
    name="tumors",
)
hospitals = fedbb.partition.by_column(data, "site")
print(hospitals)


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


with TemporaryDirectory() as folder:
    local = fedbb.LocalConfig(epochs=2, lr=0.02)
    # The best round is chosen on a fifth of each hospital's cases, not on the test data.
    result = fedbb.simulate(
        data, hospitals, model=build, method="fedbb", local=local, validation=0.2, out=folder
    )
    model = fedbb.load_model(folder, model=build, best=True)  # what the outside hospital gets
print(f"hospitals: test balanced accuracy {result.best['balanced_accuracy']:.3f}")

predicted = model.predict(features[outside]).argmax(axis=1)  # raw features; it normalizes them
for number, name in enumerate(model.classes):
    cases = labels[outside] == number
    print(f"outside, {name}: recall {(predicted[cases] == number).mean():.3f} of {cases.sum()}")
