"""FedBBPlusLoss in the Trainer of Hugging Face, as `compute_loss_func`; no download is needed."""

from tempfile import TemporaryDirectory

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from fedbb import FedBBPlusLoss

torch.manual_seed(0)
labels = torch.tensor([0] * 90 + [1] * 10)  # one sequence in ten is of class 1
tokens = torch.randint(2, 20, (100, 8))
tokens[labels == 1, 0] = 1
rows = [{"input_ids": ids, "labels": label} for ids, label in zip(tokens, labels, strict=True)]
loss = FedBBPlusLoss.from_targets(labels, reduction="sum")


def compute_loss(outputs, labels, num_items_in_batch=None):
    """Return the mean loss; with accumulated batches the Trainer tells how many samples."""
    return loss(outputs.logits, labels) / (num_items_in_batch or len(labels))


size = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
config = BertConfig(vocab_size=20, num_hidden_layers=1, num_labels=2, **size)
model = BertForSequenceClassification(config)
with TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=15,
        learning_rate=5e-3,
        per_device_train_batch_size=20,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    Trainer(model, arguments, train_dataset=rows, compute_loss_func=compute_loss).train()
with torch.no_grad():
    found = model.eval()(tokens).logits.argmax(dim=1)
print(f"recall: {(found == 1)[labels == 1].float().mean():.3f}")
