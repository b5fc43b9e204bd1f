"""Pages: each is a function that asks what the API asks, and makes HTML of the answer."""
