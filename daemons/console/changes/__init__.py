"""How changes are made: a form, a preview of what it will do, a confirmation, the results."""
