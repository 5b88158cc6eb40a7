"""Writes the teacher of `all-methods`: a logistic regression on raw pixels of Fashion-MNIST.

It stands in for CLIP, whose weights no package has. It is trained on the first 5,000 training
images, of which a run may hold some, and knows more labels than all clients of a run together.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from fedbb.data import load_dataset, save_teacher

IMAGES = 5000


def main() -> None:
    """Fit the teacher and write its logits for all training images."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the .npz file to write")
    parser.add_argument("--data", default="fashion-mnist")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    dataset = load_dataset(options.data)
    pixels = dataset.train.inputs.reshape(len(dataset.train), -1) / 255
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a hundred steps are enough here
        teacher = LogisticRegression(max_iter=100).fit(
            pixels[:IMAGES], dataset.train.labels[:IMAGES]
        )
    save_teacher(options.out, dataset, teacher.decision_function(pixels), text=teacher.coef_)
    tested = dataset.test.inputs.reshape(len(dataset.test), -1) / 255
    print(f"test accuracy of the teacher: {teacher.score(tested, dataset.test.labels):.3f}")


if __name__ == "__main__":
    main()
