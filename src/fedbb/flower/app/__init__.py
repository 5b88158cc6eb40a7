"""The Flower client app and server app that run a recipe."""
