"""`expunge demo`: a real deletion on real data, over HTTP like any caller."""
