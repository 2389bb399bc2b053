"""GitHub payloads and what they ask for."""
