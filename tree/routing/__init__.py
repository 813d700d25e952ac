"""All state of the gateway's decisions: synchronous, driven by events with `now` as an argument. It never awaits."""
