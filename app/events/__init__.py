"""What happened: the audit log, and the outbox that tells others after the commit."""
