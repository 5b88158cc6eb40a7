"""What the server runs."""

from fedbb.engine.flower.server import app

__all__ = ["app"]
