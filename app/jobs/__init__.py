"""Jobs: queued, claimed under a lease, computed elsewhere, and settled."""
