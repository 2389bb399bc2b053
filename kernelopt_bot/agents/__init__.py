"""Brains: who proposes candidates."""
