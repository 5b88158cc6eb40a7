"""Signed messages, roster, transport and replay protection."""
