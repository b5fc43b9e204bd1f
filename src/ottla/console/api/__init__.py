"""Everything the console can do, as operations of its JSON API; a module for each family."""
