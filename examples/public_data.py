"""Real data sets that come with packages, so that nothing is downloaded: tables and images.

scikit-learn has the wines. `pip install statsmodels` brings the American National Election Study,
Debian's `apt-get install dataset-fashion-mnist` clothing. What is not installed is left out.
"""

from sklearn.datasets import load_wine

import fedbb

PARTIES = ["strong Dem", "weak Dem", "ind Dem", "ind", "ind Rep", "weak Rep", "strong Rep"]


def wines():
    frame = load_wine(as_frame=True).frame
    return fedbb.Dataset.from_frame(frame, "target", classes=["0", "1", "2"], test_share=0.25)


def voters():
    from statsmodels.datasets import anes96

    frame = anes96.load_pandas().data
    frame["PID"] = [PARTIES[int(number)] for number in frame["PID"]]
    return fedbb.Dataset.from_frame(frame, "PID", classes=PARTIES, test_share=0.25)


def clothes():
    return fedbb.data.load_dataset("fashion-mnist").subset(600).long_tail(0.1)


for load in (wines, voters, clothes):
    try:
        data = load()
    except (ImportError, fedbb.FedbbError):
        print(f"{load.__name__} not installed")
        continue
    clients = fedbb.partition.dirichlet(data, clients=4, concentration=0.5, seed=0)
    local = fedbb.LocalConfig(epochs=2, batch_size=16, lr=0.02)
    for method in ("fedavg", "fedavg+lda-head"):
        result = fedbb.simulate(data, clients, model="mlp", method=method, local=local, rounds=5)
        score = result.final["balanced_accuracy"]
        print(
            f"{load.__name__}, {method}: {score:.3f} balanced accuracy, {len(data.classes)} classes"
        )
