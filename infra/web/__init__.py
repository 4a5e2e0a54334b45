"""The pages for people: static files, and the facts that are filled into them. See `pages.py`."""
