"""What is kept of a session between its requests: where its KV cache is, and, if its client asks for that, what was said."""
