"""Penalties of local training: proximal, contrastive, alignment."""
