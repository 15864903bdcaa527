"""Changes: a form, a preview of its effects, a confirmation, the results."""
