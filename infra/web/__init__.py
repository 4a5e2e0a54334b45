"""The pages for people: static files, and what is filled into them. See `pages.py`."""
