"""Everything that awaits: sockets, clocks, processes, metrics, configuration, the command line."""
