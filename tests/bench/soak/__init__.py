"""Whether hours of mixed load and trouble leave anything behind, lose a request, or bring an error that nothing explains."""
