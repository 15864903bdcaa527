"""The API: the same routes for programs, as JSON below /api/v1, with tokens."""
