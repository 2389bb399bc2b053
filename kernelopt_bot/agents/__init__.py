"""Brains: who proposes candidates, and how a language model is asked."""
