"""An emulated continuous-batching engine with vLLM's interface: for the demo, the tests and the
benchmarks."""
