"""Who may call, and what each may do."""
