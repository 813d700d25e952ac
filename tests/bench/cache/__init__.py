"""Whether a gateway sends requests where their KV cache is."""
