"""The service-level benchmark: three business types, a burst, and what share of the calls is answered inside its target."""
