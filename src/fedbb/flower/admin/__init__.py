"""Certificates, processes and administration of a Flower federation."""
