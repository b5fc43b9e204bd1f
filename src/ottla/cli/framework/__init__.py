"""What all tools have in common: their declaration, how they run, what they print, how they fail."""
