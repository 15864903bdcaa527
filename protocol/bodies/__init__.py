"""Every JSON body, declared once by subject."""
