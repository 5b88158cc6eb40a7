"""Networks that return logits, embedding and stages."""
