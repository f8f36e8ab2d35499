"""Models, their versions and aliases, and the policies that say how deletions are carried out."""
