"""The last linear layer from sums over clients: closed forms, training on features."""
