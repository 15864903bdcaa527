"""Several brokers of one machine under one command: what each is, and who starts them again."""
