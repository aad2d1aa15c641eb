"""Measurements of speed and quality. Never part of the tests."""
