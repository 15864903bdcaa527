"""The same routes for programs: JSON below /api/v1, with tokens."""
